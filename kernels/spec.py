"""The types that a kernel is written with: problems and configs of an op, and the code that runs them.

Standard library only, so that a server, a client or a replay reads a signature without torch or triton.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, Literal

from tuner.kernels.dtypes import dtype_name, itemsize, torch_dtype
from tuner.kernels.signature import MAX_SIZE, Attribute, Config, Dim, Knob, Problem, Signature, Value
from tuner.kernels.source import source_hash

__all__ = [
    "MAX_SIZE",
    "Attribute",
    "Config",
    "Dim",
    "Kernel",
    "Knob",
    "Launch",
    "Limits",
    "Operand",
    "Problem",
    "Signature",
    "Value",
    "cdiv",
    "dtype_name",
    "itemsize",
    "next_power_of_2",
    "torch_dtype",
]


def cdiv(a: int, b: int) -> int:
    """Return `a / b`, rounded up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """Return the smallest power of two that is at least `n`; 1 for `n` below 1."""
    return 1 << max(0, n - 1).bit_length()


@dataclass(frozen=True)
class Limits:
    """Resources of a card that a kernel may use."""

    capability: tuple[int, int]
    sm_count: int
    shared_bytes: int
    """Shared memory that one block can opt in to, including the compiler's own."""
    registers_per_sm: int = 65536
    registers_per_thread: int = 255
    threads_per_block: int = 1024
    warp_size: int = 32


@dataclass(frozen=True)
class Operand:
    """A tensor that a kernel is launched with.

    `role`: "in" is read, "out" is written in full, "inout" is read and written, and restored before each launch.
    `strides` counts elements; None is contiguous. `fill(tensor, generator)` fills a tensor that does not take random
    numbers, such as indices; without it floats are normal and integers uniform.
    """

    shape: tuple[int, ...]
    dtype: str
    role: Literal["in", "out", "inout"] = "in"
    strides: tuple[int, ...] | None = None
    fill: Callable[[Any, Any], object] | None = None

    @property
    def element_strides(self) -> tuple[int, ...]:
        """Strides in elements; those of a contiguous tensor if none are stated."""
        return self.strides or tuple(prod(self.shape[dim + 1 :]) for dim in range(len(self.shape)))

    @property
    def bytes(self) -> int:
        """Bytes of its elements."""
        return prod(self.shape) * itemsize(self.dtype)


@dataclass(frozen=True)
class Launch:
    """One kernel launch as a value: `fn[grid](*args, **kwargs)`.

    The compile pool calls `fn.warmup` with it, so the launch later finds what was compiled ahead.
    """

    fn: Any
    grid: tuple[int, ...]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    def __call__(self) -> Any:
        """Launch. Return the compiled kernel, as Triton does."""
        return self.fn[self.grid](*self.args, **self.kwargs)


def _anything(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    return True


@dataclass(frozen=True)
class Kernel:
    """An op: its signature and its code. Its module states `KERNEL = Kernel(...)`, and the catalog finds it there.

    Tensors travel as a mapping from operand name to `torch.Tensor`, or to a stand-in that has `shape`, `dtype`,
    `stride(i)` and `data_ptr()` when the compile pool calls `launch`.
    """

    signature: Signature
    operands: Callable[[Problem], Mapping[str, Operand]]
    """Tensors of a problem, in the order in which a caller names them."""
    launch: Callable[[Problem, Config, Mapping[str, Any]], tuple[Launch, ...]]
    """Launches of a config, in order; () if there is nothing to do. It never reads the tensors' elements."""
    reference: Callable[[Problem, Mapping[str, Any], slice], Mapping[str, Any]]
    """Rows `slice` (of the first dim) of each written operand, in higher precision, computed by torch."""
    vendor: Callable[[Problem, Mapping[str, Any]], object]
    """Runs what a user would call without this kernel, writing to the same operands."""
    default: Callable[[Problem, Limits], Mapping[str, Value]]
    """Config that runs untuned: a rule over dims and limits, without special cases for shapes."""
    workspace: Callable[[Problem, Config, Limits], Mapping[str, Operand]] = lambda problem, config, limits: {}
    """Tensors that a config needs beside the operands, such as partial sums; `launch` gets them under their names.

    Integers are 0 at first, and each launch leaves them 0; floats are uninitialised. Successive launches on one stream
    may share them. Their shapes may depend on the card, such as on its number of multiprocessors.
    """
    valid: Callable[[Problem, Mapping[str, Any], Limits], bool] = _anything
    """Test of a config's feasibility: the single statement of the rules."""
    parts: tuple[Mapping[str, tuple[Value, ...]], ...] = ({},)
    """Choices that go together, such as those of one variant. Each feasible config is in one of the parts, so that
    other combinations are not enumerated. A knob that a part omits has all its choices there."""
    flops: Callable[[Problem], int] = lambda problem: 0
    """Floating-point operations of the problem; 0 for a kernel that only moves data."""
    rounding: Callable[[Problem], float] = lambda problem: 0.0
    """Relative rounding error of the products, if it is coarser than that of the outputs: 2^-10 for tf32."""
    finite_only: bool = False
    """True if configs are checked on finite inputs only, since the op defines no result for infinities and NaN."""
    exact: bool = False
    """True if outputs must equal the reference bit for bit, as a copy does."""

    @property
    def op(self) -> str:
        """Name of the op."""
        return self.signature.op

    @cached_property
    def source(self) -> str:
        """Source hash: of `launch` and the functions that it reaches, jit functions included."""
        return source_hash(self.launch)

    def default_config(self, problem: Problem, limits: Limits) -> Config:
        """Return the default as a `Config`."""
        return self.signature.config(self.default(problem, limits))

    def tensors(self, problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
        """Return the tensors that `launch` is given: the operands and the config's workspace."""
        return {**self.operands(problem), **self.workspace(problem, config, limits)}

    def bytes(self, problem: Problem) -> int:
        """Return the fewest bytes that the problem moves: each input read once, each output written once."""
        return sum(operand.bytes * (2 if operand.role == "inout" else 1) for operand in self.operands(problem).values())
