"""The constraints that make a config feasible: those of the kernel, each with its name, and the card's threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.errors import KernelFault
from tuner.kernels.conditions import deciding_condition
from tuner.kernels.fields import check_function
from tuner.kernels.parts import KernelPart, check_stated, plain

if TYPE_CHECKING:
    from tuner.kernels.problem import Problem
    from tuner.kernels.spec import Limits
    from tuner.kernels.watched import Watched

Rule = Callable[["Problem", Mapping[str, Any], "Limits"], bool | str]
"""Test of a config: True if it is feasible; False, or a text that says why, if it is not.

It depends on nothing but its arguments, and does not keep the config, whose values change after the call: a list of all
combinations skips those that agree in what the test has read.
"""


@dataclass(frozen=True)
class Refusal:
    """A constraint that refuses a config."""

    constraint: str
    """Name of the function, with file and line if they are known; or `the card`."""
    condition: str = ""
    """Condition that decided, such as `BLOCK <= N is false`; empty if it is not known, or the function returned a text.
    """
    detail: str = ""
    """Values of the condition for this config, or the text."""

    def __str__(self) -> str:
        about = self.condition + (f" ({self.detail})" if self.detail else "") if self.condition else self.detail
        return f"{self.constraint}: {about}" if about else self.constraint


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

    def last_refused(self, problem: Problem, config: Watched, limits: Limits) -> int | None:
        """Return the place of the last knob on which a refusal depends, -1 for none; None if the config is feasible.

        All combinations that share the values of the knobs up to that place are refused too.
        """
        config.last_place = -1
        if _threads(config, limits) > limits.threads_per_block:
            return config.last_place
        for rule in self._rules:
            config.last_place = -1
            result = rule(problem, config, limits)
            if result is not True and not _allows(result):
                return config.last_place
        return None

    def refusal(self, problem: Problem, config: Mapping[str, Any], limits: Limits) -> Refusal | None:
        """Return the first constraint that refuses a config, and why; None if the config is feasible."""
        threads = _threads(config, limits)
        if threads > limits.threads_per_block:
            says = f"{threads:,} threads needed, a block has {limits.threads_per_block:,}"
            return Refusal("the card", detail=says)
        for rule in self._rules:
            result = rule(problem, config, limits)
            if not _allows(result):
                return _refusal(rule, result, problem, config, limits)
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


def _refusal(
    rule: KernelPart, result: bool | str, problem: Problem, config: Mapping[str, Any], limits: Limits
) -> Refusal:
    """Return the name of a rule with the place of its condition, and its text or the condition."""
    name = getattr(rule.fn, "__name__", "<lambda>")
    shown = "valid" if name == "<lambda>" else name
    text = " ".join(result.split()) if isinstance(result, str) else ""
    found = None if text else deciding_condition(rule.fn, problem, config, limits)
    if found is None:
        return Refusal(f"{shown} ({rule.place})" if rule.place else shown, detail=text)
    inner = "" if found.function == name else f", in {found.function}"
    return Refusal(f"{shown} ({found.place}{inner})", found.text, found.values)
