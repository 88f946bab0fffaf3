"""The types that a kernel is written with: problems and configs of an op, and the code that runs them.

Standard library only, so that a server, a client or a replay reads a signature without torch or triton.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from random import Random
from typing import Any

from tuner.errors import KernelFault, UsageError
from tuner.kernels.cost import Cost
from tuner.kernels.definition_hash import definition_hash
from tuner.kernels.dtypes import dtype_name, itemsize, shown, torch_dtype
from tuner.kernels.fields import (
    check_function,
    check_name,
    check_tuple,
)
from tuner.kernels.launch import WAITING_STREAMS, HostCall, Launch, Operand, Step, any_on_host
from tuner.kernels.parameters import Attribute, Dim, Knob
from tuner.kernels.parts import KernelPart, ReferencePart, check_dict, check_number, checked_values, plain
from tuner.kernels.problem import Config, Problem
from tuner.kernels.rules import RulesField
from tuner.kernels.signature import Signature
from tuner.kernels.sizes import MAX_SIZE, SizeLimit
from tuner.kernels.source import source_hash
from tuner.kernels.values import Value
from tuner.kernels.vendors import VendorFunction, check_vendors

__all__ = [
    "MAX_SIZE",
    "WAITING_STREAMS",
    "Attribute",
    "Config",
    "Cost",
    "Dim",
    "HostCall",
    "Kernel",
    "Knob",
    "Launch",
    "Limits",
    "Operand",
    "Problem",
    "Signature",
    "SizeLimit",
    "Step",
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
    gb_per_s: float = 0.0
    """Rate of device memory, for estimates; 0 if it is not known."""


@dataclass(frozen=True)
class Kernel:
    """An op: its signature and its code. Its module states `KERNEL = Kernel(...)`, and the catalog finds it there.

    Tensors travel as a mapping from operand name to `torch.Tensor`, or to a stand-in that has `shape`, `dtype`,
    `stride(i)` and `data_ptr()` when the compile pool calls `launch`.
    """

    signature: Signature
    operands: Callable[[Problem], Mapping[str, Operand]]
    """Tensors of a problem, in the order in which a caller names them."""
    launch: Callable[[Problem, Config, Mapping[str, Any]], tuple[Any, ...]]
    """Steps of a config, each a `Launch` or a `HostCall`, in order; () if there is nothing to do. It never reads the
    tensors' elements."""
    reference: Callable[[Problem, Mapping[str, Any], slice], Mapping[str, Any]]
    """Rows `slice` (of the first dim) of each written operand, in higher precision, computed by torch from what is
    read. It gets outputs without their elements."""
    default: Callable[[Problem, Limits], Mapping[str, Value]]
    """Config that runs untuned: a rule over dims and limits, without special cases for shapes."""
    vendor: Callable[[Problem, Mapping[str, Any]], object] | None = None
    """Runs what a user would call without this kernel; None if there is nothing. It writes to the same operands, or
    returns its results by their names, so that a function without `out` is timed without a copy."""
    vendor_name: str = "torch"
    """Name under which the vendor's speed is reported, such as cuBLAS."""
    vendors: Mapping[str, VendorFunction] = field(default_factory=dict)
    """Further vendors by name, such as those of libraries: functions as `vendor`. One that raises, as an import does if
    the library is not installed, is left out."""
    workspace: Callable[[Problem, Config, Limits], Mapping[str, Operand]] = lambda problem, config, limits: {}
    """Tensors that a config needs beside the operands, such as partial sums; `launch` gets them under their names.

    Integers are 0 at first, and each launch leaves them 0; floats are uninitialised. Successive launches on one stream
    may share them. Their shapes may depend on the card, such as on its number of multiprocessors.
    """
    valid: RulesField = RulesField()  # noqa: RUF009
    """Constraint of a config, the single statement of the rules, or a tuple of them. Each returns True, or False or a
    text that says why not. Once a kernel is made, it also knows the card's limit of threads."""
    parts: tuple[Mapping[str, tuple[Value, ...]], ...] = ({},)
    """Choices that go together, such as those of one variant. Each feasible config is in one of the parts, so that
    other combinations are not enumerated. A knob that a part omits has all its choices there."""
    waits: bool = False
    """True if programs of a launch with a workspace wait for each other. Such launches run on at most `WAITING_STREAMS`
    streams at once, whose programs that wait must leave room for another. Replays of CUDA graphs are not counted."""
    flops: Callable[[Problem], int] = lambda problem: 0
    """Floating-point operations of the problem; 0 for a kernel that only moves data."""
    rounding: Callable[[Problem], float] = lambda problem: 0.0
    """Relative rounding error of intermediate results, if it is coarser than that of the outputs: 2^-10 for tf32. Above
    0, outputs of 8-bit and 16-bit integers are quantized: an eighth of their elements may be off by one."""
    finite_only: bool = False
    """True if configs are checked on finite inputs only, since the op defines no result for infinities and NaN."""
    exact: bool = False
    """True if outputs must equal the reference bit for bit, as a copy does. Any NaN equals another."""
    scalars: Mapping[str, float] = field(default_factory=dict)
    """Numbers that launches take beside the tensors, such as `eps`, with the values at which configs are measured. They
    are no part of a problem. `launch`, `reference` and `vendor` find them among the tensors, under their names."""
    draw: Callable[[Random], Mapping[str, object]] | None = None
    """Draws the values of a problem, with sizes as in models, for random suites; None excludes the op from them."""
    estimate: Callable[[Problem, Mapping[str, Any], Limits], Cost] | None = None
    """Estimates the time of a config without the card. Searches learn how much it is worth and begin with what it
    finds fast; None if nothing is known."""
    replaces: bool = False
    """True if a file's kernel stands for the shipped op of its name; without it such a file is refused."""

    def __post_init__(self) -> None:
        if not isinstance(self.signature, Signature):
            raise KernelFault(f"Kernel: signature is a Signature, not {shown(self.signature)}; write Signature(...)")
        self.signature.check()
        for name in ("finite_only", "exact", "replaces", "waits"):
            if not isinstance(value := getattr(self, name), bool):
                raise KernelFault(f"{self.op}: {name} is True or False, not {shown(value)}; replace it")
        self._check_parts()
        self.valid.check(self.op)
        check_vendors(self.op, self.vendor_name, self.vendors)
        object.__setattr__(self, "scalars", checked_values(self.op, self.scalars, self.signature.parameters))
        tensors = {name: _check_tensors(name, self.scalars) for name in ("operands", "workspace")}
        for name, check in {**tensors, **_PARTS}.items():
            if name in ("vendor", "draw", "estimate") and getattr(self, name) is None:
                continue
            check_function(self.op, name, getattr(self, name))
            scalars = self.scalars if name in ("launch", "vendor") else {}
            object.__setattr__(self, name, KernelPart(name, plain(getattr(self, name)), check, scalars))
        object.__setattr__(self, "reference", ReferencePart(self.operands, plain(self.reference), self.scalars))

    def _check_parts(self) -> None:
        check_tuple(self.op, "parts", self.parts, Mapping, "dicts")
        if not self.parts:
            raise KernelFault(f"{self.op}: parts has at least one dict, not (); leave it out for all combinations")
        choices = {knob.name: knob.choices for knob in self.signature.knobs}
        for part in self.parts:
            for name, values in part.items():
                if name not in choices:
                    raise KernelFault(f"{self.op}: parts name knobs ({', '.join(choices)}), not {shown(name)}; add it")
                check_tuple(self.op, f"{name} in parts", values, object, "choices")
                others = [value for value in values if value not in choices[name]]
                if others or not values:
                    wrong = shown(others[0]) if others else "()"
                    raise KernelFault(f"{self.op}: parts have choices of the knob {name}, not {wrong}; correct them")

    def __hash__(self) -> int:
        return hash(self.op)

    @property
    def op(self) -> str:
        """Name of the op."""
        return self.signature.op

    @cached_property
    def source(self) -> str:
        """Source hash: of `launch` and the functions that it reaches, jit functions included."""
        return source_hash(plain(self.launch))

    @cached_property
    def definition(self) -> str:
        """Definition hash: of the other functions and flags that decide inputs and correctness."""
        return definition_hash(self)

    def default_config(self, problem: Problem, limits: Limits) -> Config:
        """Return the default as a `Config`.

        Raises:
            KernelFault: it omits a knob, or a value is none of the knob's choices.
        """
        values, place = self.default(problem, limits), getattr(self.default, "place", "")
        try:
            config = self.signature.config(values)
        except UsageError as error:
            raise KernelFault(f"default: {error}", place) from error
        for knob in self.signature.knobs:
            if config[knob.name] not in knob.choices:
                choices = ", ".join(map(str, knob.choices))
                raise KernelFault(
                    f"default chooses {knob.name} among {choices}, not {shown(config[knob.name])}; add it to the knob",
                    place,
                )
        return config

    def estimator(self, problem: Problem, limits: Limits) -> Callable[[Mapping[str, Any]], float] | None:
        """Return a function that estimates the latency of a config of a problem, in us; None without an estimate."""
        if self.estimate is None:
            return None
        estimate: Callable[[Problem, Mapping[str, Any], Limits], Cost] = self.estimate
        return lambda config: estimate(problem, config, limits).us

    def tensors(self, problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
        """Return the tensors that `launch` is given: the operands and the config's workspace."""
        return {**self.operands(problem), **self.workspace(problem, config, limits)}

    def is_on_host(self, problem: Problem) -> bool:
        """Return whether an operand is in the host's memory. All of its contenders are then timed by the host."""
        return any_on_host(self.operands(problem))

    def bytes(self, problem: Problem) -> int:
        """Return the fewest bytes that the problem moves: each input read once, each output written once."""
        return sum(operand.bytes * (2 if operand.role == "inout" else 1) for operand in self.operands(problem).values())


def _check_tensors(field: str, scalars: Collection[str]) -> Callable[[Any], None]:
    """Return a check for a result that maps names to operands, none of which is the name of a scalar."""

    def check(result: Any) -> None:
        check_dict(field)(result)
        for name, operand in result.items():
            check_name("operand", name.lstrip("_") if isinstance(name, str) else name)
            if name in scalars:
                raise KernelFault(f"{field} returns no tensor by the name of a scalar, and {name} is one; rename one")
            if not isinstance(operand, Operand):
                raise KernelFault(f"{field} returns Operand values, and {name} is {shown(operand)}; write Operand(...)")
        if field == "operands" and all(operand.role == "in" for operand in result.values()):
            raise KernelFault("operands has one that is written, and each has the role in; give one role='out'")

    return check


def _check_launches(result: Any) -> None:
    """Raise KernelFault unless `launch` returned a tuple of launches."""
    if not isinstance(result, tuple) or not all(isinstance(step, Launch | HostCall) for step in result):
        raise KernelFault(f"launch returns a tuple of Launch values, not {shown(result)}; write (Launch(...),)")


def _check_cost(result: Any) -> None:
    """Raise KernelFault unless `estimate` returned a cost with a latency above 0."""
    if not isinstance(result, Cost) or not 0 < result.us < inf:
        raise KernelFault(f"estimate returns a Cost with a latency above 0, not {shown(result)}; correct it")


_PARTS: Mapping[str, Callable[[Any], None] | None] = {
    "launch": _check_launches,
    "reference": None,
    "vendor": None,
    "default": check_dict("default"),
    "flops": check_number("flops"),
    "rounding": check_number("rounding"),
    "draw": check_dict("draw"),
    "estimate": _check_cost,
}
"""Fields of a kernel that are functions and return no tensors, each with the check of its result."""
