"""A call of an autotuned Triton kernel as plain data, from which a search can repeat it. Standard library only.

Nothing in it is code: the function is named by its module and file, its arguments are described, and its grid is a
table. `tuner.captured.kernel` makes a `Kernel` of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tuner.kernels.spec import Value
from tuner.records.answer import AGREEMENT as AGREEMENT
from tuner.records.answer import REFERENCE as REFERENCE


@dataclass(frozen=True)
class Function:
    """The place of an autotuned function."""

    module: str
    """Name of its module; `__main__` for a script."""
    file: str
    """Path of the module's file."""
    name: str
    """Name at the top level of the module."""


@dataclass(frozen=True)
class Contents:
    """Facts about a tensor's elements, so that inputs like them are drawn."""

    values: tuple[int, ...] | None = None
    """Elements of a small tensor of integers or bools, in the order of its indices; None if they were not kept."""
    low: float | None = None
    """Smallest finite element; None if nothing is known."""
    high: float | None = None
    mean: float | None = None
    deviation: float | None = None
    """Standard deviation. It and `mean` are known only for floats."""
    is_sorted: bool = False
    """True if a vector's elements never decrease, as offsets of sequences do."""


@dataclass(frozen=True)
class TensorArgument:
    """A tensor that a kernel is called with."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    dtype: str
    """Short name, such as `bf16`."""
    offset: int = 0
    """Bytes from the last multiple of 16 to its address."""
    same_as: str = ""
    """Name of an earlier argument with the same address, shape, strides and dtype; empty if there is none."""
    contents: Contents = Contents()


@dataclass(frozen=True)
class DescriptorArgument:
    """A tensor descriptor that a kernel is called with. A config's `pre_hook` may set its block shape."""

    base: TensorArgument
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    block_shape: tuple[int, ...]
    padding: str = "zero"


@dataclass(frozen=True)
class DtypeArgument:
    """A dtype that a kernel is called with, as `tl.float16` is."""

    dtype: str
    """Name in `triton.language`: `float16`, `bfloat16`."""


Argument = TensorArgument | DescriptorArgument | DtypeArgument | Value
"""An argument. Floats may be infinite or NaN."""
Role = Literal["in", "out", "inout"]


@dataclass(frozen=True)
class Grids:
    """Grids of the configs, by the values of the knobs that they depend on."""

    knobs: tuple[str, ...]
    """Knobs that the grid depends on; () if all configs have one grid."""
    sizes: Mapping[tuple[Value, ...], tuple[int, ...]]
    """Grid of one to three numbers, by the values of these knobs."""

    def of(self, config: Mapping[str, Value]) -> tuple[int, ...] | None:
        """Return the grid of a config, or None if it was not evaluated for such values."""
        return self.sizes.get(tuple(config.get(name) for name in self.knobs))


@dataclass(frozen=True)
class Examined:
    """Result of an examination on a card: which tensors are written, and which configs agree."""

    roles: Mapping[str, Role]
    """Role of each tensor by argument."""
    basis: str
    """`reference` or `agreement`."""
    agreed: Mapping[str, Value] | None
    """Agreed config. The outputs of other configs are compared with its outputs. None if there is a reference."""
    agreeing: int
    """Number of configs in that group."""
    differing: int
    """Number of configs that ran and gave other results."""
    source: str
    """Source hash of the function that was examined."""
    triton: str


@dataclass(frozen=True)
class CapturedCall:
    """One call of an autotuned function."""

    function: Function
    op: str
    key: Mapping[str, Value]
    """Arguments in the key of the autotuner, by name. A dtype is its name in `triton.language`."""
    arguments: Mapping[str, Argument]
    """Arguments by the names of the parameters, in their order, constexprs too. Those that a config or a heuristic sets
    are left out."""
    configs: tuple[Mapping[str, Value], ...]
    """Configs after pruning, in their order: values by knob, with `num_warps` and `num_stages`, and with `num_ctas` and
    `maxnreg` if a config of the function changes Triton's default. A knob that a config leaves out is None."""
    grids: Grids = field(default_factory=lambda: Grids((), {}))
    options: Mapping[str, Value] = field(default_factory=dict)
    """Launch options that the caller gives, such as `num_ctas`."""
    reset: tuple[str, ...] = ()
    """Arguments that are set to zero before each launch."""
    restored: tuple[str, ...] = ()
    """Arguments whose contents are restored after each launch of a measurement."""
    examined: Examined | None = None
