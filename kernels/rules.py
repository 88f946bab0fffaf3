"""The constraints that make a config feasible: those of the kernel, each with its name, and the card's threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tuner.errors import KernelFault
from tuner.kernels.fields import check_function
from tuner.kernels.parts import KernelPart, check_stated, plain

if TYPE_CHECKING:
    from tuner.kernels.problem import Problem
    from tuner.kernels.spec import Limits

Rule = Callable[["Problem", Mapping[str, Any], "Limits"], bool | str]
"""Test of a config: True if it is feasible; False, or a text that says why, if it is not."""


class Rules:
    """The `valid` of a kernel: it calls one function or several, after the limits of the card.

    Args:
        valid: as the kernel file states it.
    """

    def __init__(self, valid: Rule | tuple[Rule, ...]) -> None:
        self.stated = valid
        functions = valid if isinstance(valid, tuple) else (valid,)
        self._rules = tuple(KernelPart("valid", plain(function), check_stated) for function in functions)

    def check(self, op: str) -> None:
        """Raise KernelFault if they are neither a function nor a tuple of functions."""
        for rule in self._rules:
            check_function(op, "valid", rule.fn)
        if not self._rules:
            raise KernelFault(f"{op}: valid has at least one function, not (); leave it out to try all configs")

    def __call__(self, problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
        """Return whether a config is feasible."""
        if _threads(config, limits) > limits.threads_per_block:
            return False
        for rule in self._rules:  # a loop, since millions of configs are asked for
            result = rule(problem, config, limits)
            if result is not True and not _allows(result):
                return False
        return True

    def refusal(self, problem: Problem, config: Mapping[str, Any], limits: Limits) -> str | None:
        """Return the first constraint that refuses a config, with file and line; None if the config is feasible."""
        threads = _threads(config, limits)
        if threads > limits.threads_per_block:
            return f"the card: {threads:,} threads needed, a block has {limits.threads_per_block:,}"
        for rule in self._rules:
            result = rule(problem, config, limits)
            if not _allows(result):
                return _described(rule, result)
        return None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rules) and self._rules == other._rules

    def __hash__(self) -> int:
        return hash(self._rules)

    @property
    def place(self) -> str:
        """File and line of the first function."""
        return self._rules[0].place


class RulesField:
    """The field `valid` of a kernel: a function or a tuple of functions becomes `Rules`."""

    def __get__(self, kernel: object | None, kind: type | None = None) -> Rules:
        return _ALL if kernel is None else kernel.__dict__["valid"]

    def __set__(self, kernel: object, valid: Rules | Rule | tuple[Rule, ...]) -> None:
        kernel.__dict__["valid"] = valid if isinstance(valid, Rules) else Rules(valid)


def _anything(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    return True


_ALL = Rules(_anything)
"""The rules of a kernel that states none."""


def _threads(config: Mapping[str, Any], limits: Limits) -> int:
    threads: int = config["num_warps"] * limits.warp_size
    return threads


def _allows(result: bool | str) -> bool:
    return not result if isinstance(result, str) else bool(result)


def _described(rule: KernelPart, result: bool | str) -> str:
    """Return the name of a rule, its place, and what it says or the first line of its docstring."""
    name = getattr(rule.fn, "__name__", "valid")
    lines = (getattr(rule.fn, "__doc__", None) or "").strip().splitlines()
    says = " ".join(str(result).split()) if isinstance(result, str) else lines[0].rstrip(".") if lines else ""
    about = f" ({rule.place})" if rule.place else ""
    return f"{'valid' if name == '<lambda>' else name}{about}{f': {says}' if says else ''}"
