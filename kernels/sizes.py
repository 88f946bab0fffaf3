"""Largest sizes that a kernel's 32-bit arithmetic can count to; standard library only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from tuner.errors import KernelFault, UsageError
from tuner.kernels.dtypes import shown
from tuner.kernels.fields import check_tuple, check_whole
from tuner.kernels.values import Value

MAX_SIZE = 2**31 - 1
"""Largest size of a dim: Triton passes sizes as 32-bit integers."""


@dataclass(frozen=True)
class SizeLimit:
    """Largest size of a dim for which the kernel's indices, rounded up to whole blocks, fit 32 bits.

    `attribute`, `choices`: the limit is for problems that have one of these choices of the attribute; "" is all.
    """

    dim: str
    most: int
    attribute: str = ""
    choices: tuple[Value, ...] = ()

    def check(self, op: str, dims: Collection[str], attributes: Mapping[str, tuple[Value, ...] | None]) -> None:
        """Raise KernelFault if a kernel file cannot have it. `attributes`: choices of each; None for an open one."""
        if self.dim not in dims:
            raise KernelFault(f"{op}: a SizeLimit names a dim ({', '.join(dims)}), not {shown(self.dim)}; correct it")
        check_whole(f"SizeLimit of {self.dim}", "most", self.most, 1, MAX_SIZE)
        check_tuple(f"SizeLimit of {self.dim}", "choices", self.choices, object, "choices of its attribute")
        if self.attribute and self.attribute not in attributes:
            known = ", ".join(attributes) or "none here"
            raise KernelFault(f"SizeLimit of {self.dim}: attribute is one of {known}, not {shown(self.attribute)}")
        known_choices = attributes.get(self.attribute, ())
        for choice in self.choices:
            if choice not in known_choices if known_choices is not None else not isinstance(choice, str):
                raise KernelFault(
                    f"SizeLimit of {self.dim}: choices are those of its attribute, not {shown(choice)}; correct it"
                )

    def refuse_larger(self, op: str, sizes: Mapping[str, int], attributes: Mapping[str, Value]) -> None:
        """Raise UsageError for a problem that is larger."""
        applies = not self.attribute or attributes.get(self.attribute) in self.choices
        if sizes.get(self.dim, 0) <= self.most or not applies:
            return
        given = f" with {self.attribute}={attributes[self.attribute]}" if self.attribute else ""
        raise UsageError(
            f"{op}: {self.dim} is at most {self.most}{given}, since the kernel counts in 32 bits, "
            f"not {sizes[self.dim]}; split the problem"
        )
