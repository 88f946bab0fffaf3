"""Values of knobs that a Triton kernel can be launched with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.exchange.imported import LIMITS, ImportLimits
from tuner.kernels.dtypes import shown
from tuner.kernels.spec import Signature
from tuner.records.signatures import is_value
from tuner.records.strict import is_text

_TILE = re.compile(r"BLOCK(_[A-Z0-9]+)*")
"""Names of knobs that kernels of other projects pass to `tl.arange`, which takes powers of two."""
_COUNT = re.compile(r"(GROUP|SPLIT)(_[A-Z0-9]+)*|num_ctas|maxnreg")
"""Names of knobs that count something."""


@dataclass(frozen=True)
class KnobRule:
    """Values of a knob: those of `kinds`, and numbers from `least` to `most`."""

    kinds: tuple[type, ...]
    least: int = 1
    most: int = 0
    power_of_two: bool = False

    def fault(self, name: str, value: object) -> str:
        """Return what is wrong with a value, as a sentence without a full stop, or an empty text."""
        if type(value) in self.kinds and (type(value) not in (int, float) or self._holds(value)):
            return ""
        return f"{name} is {self}, not {shown(value)}"

    def _holds(self, value: Any) -> bool:
        return self.least <= value <= self.most and not (self.power_of_two and value & (value - 1))

    def __str__(self) -> str:
        bounds = f"from {self.least:,} to {self.most:,}"
        names = {
            int: f"{'a power of two' if self.power_of_two else 'a whole number'} {bounds}",
            float: f"a number {bounds}",
            bool: "true or false",
            str: "a text",
            type(None): "null",
        }
        kinds = [kind for kind in names if kind in self.kinds and not (kind is int and float in self.kinds)]
        return " or ".join(names[kind] for kind in kinds)


def whole(value: object) -> Any:
    """Return 1 for 1.0, since some writers of JSON know only floats; other values as they are."""
    return int(value) if isinstance(value, float) and value.is_integer() and is_value(int(value)) else value


def knobs_fault(signature: Signature | None, knobs: Mapping[str, Any], limits: ImportLimits = LIMITS) -> str:
    """Return the fault of a config that its kernel could not be launched with, or an empty text.

    If the signature has choices, a value need not be one of them, but it is of their kind: a number if they are
    numbers, at least 1 if all of them are, and a power of two if all of them are. Without a kernel, the usual names of
    knobs state the rules. A knob that a file leaves out has no fault: Triton's own default applies.
    """
    choices = {} if signature is None else {knob.name: knob.choices for knob in signature.knobs if knob.choices}
    of_op = f"{signature.op}: " if signature is not None and choices else ""
    for name, value in knobs.items():
        rules = [_RULES_OF_LAUNCH[name](limits)] if name in _RULES_OF_LAUNCH else []
        if name in choices:
            rules.append(_rule_of_choices(name, choices[name], limits))
        elif not choices:
            rules += _rules_of_name(name, limits)
        for rule in rules:
            if fault := rule.fault(name, value):
                return f"{of_op}{fault}"
        if not _is_stored(value) and not (rules and value is None):
            return f"{of_op}{name} is a number, a boolean or a short text, not {shown(value)}"
    return ""


def _is_stored(value: object) -> bool:
    """Return whether a store can have a value: not None, which means nothing without choices, nor half a character."""
    return value is not None and is_value(value) and is_text(str(value))


_RULES_OF_LAUNCH: Mapping[str, Callable[[ImportLimits], KnobRule]] = {
    "num_warps": lambda limits: KnobRule((int,), 1, limits.max_num_warps, power_of_two=True),
    "num_stages": lambda limits: KnobRule((int,), 0, limits.max_num_stages),
}
"""Rules of Triton's launch options, for every kernel."""


def _rules_of_name(name: str, limits: ImportLimits) -> list[KnobRule]:
    if _TILE.fullmatch(name):
        return [KnobRule((int,), 1, limits.max_size, power_of_two=True)]
    return [KnobRule((int,), 1, limits.max_size)] if _COUNT.fullmatch(name) else []


def _rule_of_choices(name: str, choices: Sequence[Any], limits: ImportLimits) -> KnobRule:
    kinds = tuple({type(choice): None for choice in choices})
    numbers = [choice for choice in choices if type(choice) in (int, float)]
    if not numbers:
        return KnobRule(kinds)
    powers = all(type(number) is int and number > 0 and not number & (number - 1) for number in numbers)
    return KnobRule(
        (*kinds, int) if float in kinds else kinds,
        least=1 if min(numbers) >= 1 else int(min(0, *numbers)),
        most=int(max(limits.max_size, *numbers)),
        power_of_two=powers and len(numbers) > 1 and name != "num_stages",
    )
