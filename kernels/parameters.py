"""Dims, attributes and knobs: the parameters of an op's problems and configs; standard library only."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tuner.errors import KernelFault, UsageError
from tuner.kernels.dtypes import shown
from tuner.kernels.fields import (
    check_choices,
    check_default,
    check_dtype,
    check_name,
    check_text,
    check_tuple,
    check_whole,
)
from tuner.kernels.sizes import MAX_SIZE
from tuner.kernels.values import UNSET, Unset, Value, listed, spells

LONGEST_OPEN = 200
"""Characters of the value of an open attribute."""


@dataclass(frozen=True)
class Dim:
    """A size of the problem. If it is not given, it is `default`: a number, or the value of another dim."""

    name: str
    default: int | str | None = None
    help: str = ""
    ranges: tuple[int, ...] = ()
    """Last sizes of the ranges by which `tuner bench` groups problems; larger sizes are one more range."""

    def range_of(self, size: int) -> str:
        """Return the name of the range that a size is in, such as `M 17-96`; the dim has ranges."""
        first = 1
        for last in self.ranges:
            if size <= last:
                return f"{self.name} {first:,}-{last:,}"
            first = last + 1
        return f"{self.name} above {self.ranges[-1]:,}"

    def check(self) -> None:
        """Raise KernelFault if a kernel file cannot have it."""
        check_name("dim", self.name, reserved=True)
        check_text(f"Dim {self.name}", "help", self.help)
        if isinstance(self.default, str):
            check_name("dim", self.default)
        elif self.default is not None:
            check_whole(f"Dim {self.name}", "default", self.default, 1, MAX_SIZE)
        check_tuple(f"Dim {self.name}", "ranges", self.ranges, int, "last sizes")
        least = 1
        for last in self.ranges:
            check_whole(f"Dim {self.name}", "each of ranges", last, least, MAX_SIZE)
            least = last + 1


@dataclass(frozen=True)
class Attribute:
    """A property of the problem other than a size. `dtypes`: dtypes that it applies to; () is all.

    Without choices it is open: its value is any text of up to 200 printable characters.
    """

    name: str
    choices: tuple[Value, ...] | None
    default: Value
    help: str = ""
    dtypes: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise KernelFault if a kernel file cannot have it."""
        owner = f"Attribute {self.name}"
        check_name("attribute", self.name, reserved=True)
        check_text(owner, "help", self.help)
        if self.choices is None:
            check_text(owner, "default of an open attribute", self.default)
        else:
            check_choices(owner, self.choices)
            check_default(owner, self.default, self.choices)
        check_tuple(owner, "dtypes", self.dtypes, str, "names of dtypes")
        for dtype in self.dtypes:
            check_dtype(owner, dtype)

    def value(self, op: str, given: object) -> Value:
        """Return the choice that a value means, or the text of an open attribute's value.

        Raises:
            UsageError: There is no such choice, or no such text.
        """
        if self.choices is None:
            return self._text(op, given)
        for choice in self.choices:
            if spells(given, choice):
                return choice
        raise UsageError(f"{op}: {self.name} is one of {listed(self.choices)}, not {shown(given)}")

    def _text(self, op: str, given: object) -> str:
        text = str(given) if isinstance(given, str | int | float) else ""
        if len(text) > LONGEST_OPEN or not text.isprintable() or not isinstance(given, str | int | float):
            raise UsageError(
                f"{op}: {self.name} is a text of up to {LONGEST_OPEN} printable characters, not {shown(given)}"
            )
        return text


@dataclass(frozen=True)
class Knob:
    """A choice of a config. With a `default`, a knob can be added later: configs stored without it stay valid.

    None may be a choice, for an option that is then left to the compiler. `default=None` is a default only if it is.
    """

    name: str
    choices: tuple[Value, ...]
    help: str = ""
    default: Value | Unset = UNSET

    def __post_init__(self) -> None:
        if self.default is None and not (isinstance(self.choices, tuple) and None in self.choices):
            object.__setattr__(self, "default", UNSET)

    @cached_property
    def has_floats(self) -> bool:
        """True if a choice is a float."""
        return any(type(choice) is float for choice in self.choices)

    def check(self) -> None:
        """Raise KernelFault if a kernel file cannot have it."""
        owner = f"Knob {self.name}"
        check_name("knob", self.name)
        check_text(owner, "help", self.help)
        check_choices(owner, self.choices, none=True)
        if self.default is not UNSET:
            check_default(owner, self.default, self.choices)
        if self.name in ("num_warps", "num_stages"):
            choice: Any
            for choice in self.choices:
                check_whole(owner, "each choice", choice, int(self.name == "num_warps"))
                if self.name == "num_warps" and choice & (choice - 1):
                    raise KernelFault(f"{owner}: each choice is a power of two, not {choice}; replace it")
