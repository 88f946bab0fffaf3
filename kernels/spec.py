"""The types that a kernel is written with: problems and configs of an op, and the code that runs them.

Standard library only, so that a server, a client or a replay reads a signature without torch or triton.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from math import prod
from typing import Any, Literal

from tuner.errors import UsageError
from tuner.kernels.source import source_hash

Value = int | bool | str
"""Value of a knob or an attribute; it passes through JSON, SQL and Triton unchanged."""

MAX_SIZE = 2**31 - 1
"""Largest size of a dim: Triton passes sizes as 32-bit integers."""

_TORCH_NAMES = {
    "fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16",
    "fp8e4m3": "float8_e4m3fn", "fp8e5m2": "float8_e5m2",
    "int64": "int64", "int32": "int32", "int16": "int16", "int8": "int8", "uint8": "uint8",
}  # fmt: skip
_ITEMSIZES = {
    "fp64": 8, "fp32": 4, "fp16": 2, "bf16": 2, "fp8e4m3": 1, "fp8e5m2": 1,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1,
}  # fmt: skip
_DTYPES = {alias: name for name, torch in _TORCH_NAMES.items() for alias in (name, torch)} | {
    "float": "fp32",
    "double": "fp64",
    "half": "fp16",
}


def dtype_name(dtype: object) -> str:
    """Return the short name (`bf16`) of a dtype, given by its short name or torch's (`bfloat16`, `torch.bfloat16`).

    Raises:
        UsageError: no dtype has that name.
    """
    text = str(dtype).removeprefix("torch.")
    if text not in _DTYPES:
        raise UsageError(f"a dtype is one of {', '.join(_TORCH_NAMES)} or torch's name for it, not {_shown(dtype)}")
    return _DTYPES[text]


def itemsize(dtype: str) -> int:
    """Return the bytes of one element."""
    return _ITEMSIZES[dtype]


def torch_dtype(dtype: str) -> str:
    """Return the name of a dtype in `torch`: `bf16` -> `bfloat16`."""
    return _TORCH_NAMES[dtype]


def cdiv(a: int, b: int) -> int:
    """Return `a / b`, rounded up."""
    return -(-a // b)


def next_power_of_2(n: int) -> int:
    """Return the smallest power of two that is at least `n`; 1 for `n` below 1."""
    return 1 << max(0, n - 1).bit_length()


@dataclass(frozen=True)
class Dim:
    """A size of the problem. If it is not given, it is `default`: a number, or the value of another dim."""

    name: str
    default: int | str | None = None
    help: str = ""


@dataclass(frozen=True)
class Attribute:
    """A property of the problem other than a size. `dtypes`: dtypes that it applies to; () is all."""

    name: str
    choices: tuple[Value, ...]
    default: Value
    help: str = ""
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Knob:
    """A choice of a config. With a `default`, a knob can be added later: configs stored without it stay valid."""

    name: str
    choices: tuple[Value, ...]
    help: str = ""
    default: Value | None = None


@dataclass(frozen=True)
class Problem:
    """One op at one size, dtype and set of attributes; made by `Signature.problem`.

    Problems with the same canonical `text` are equal. It omits attributes at their default, so that an attribute added
    later does not change the texts stored before.
    """

    op: str = field(compare=False)
    dims: tuple[tuple[str, int], ...] = field(compare=False)
    dtype: str = field(compare=False)
    attributes: tuple[tuple[str, Value], ...] = field(compare=False)
    text: str

    def __getitem__(self, name: str) -> Any:
        """Return the value of a dim, of an attribute, or of `dtype`."""
        return self.values[name]

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Values of the dims, in the signature's order."""
        return tuple(size for _, size in self.dims)

    @cached_property
    def values(self) -> Mapping[str, Value]:
        """All values: dims, `dtype`, attributes."""
        return {**dict(self.dims), "dtype": self.dtype, **dict(self.attributes)}

    @property
    def stated(self) -> Mapping[str, Value]:
        """Values of the canonical text: dims, `dtype`, and the attributes that are not at their default."""
        return _stated(self.values, self.text)


class Config(Mapping[str, Value]):
    """One choice for each knob; made by `Signature.config`. `text` is canonical: sorted, without defaults."""

    __slots__ = ("_values", "text")

    def __init__(self, values: Mapping[str, Value], text: str) -> None:
        self._values = dict(values)
        self.text = text

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    @property
    def stated(self) -> Mapping[str, Value]:
        """Knobs that are not at their default."""
        return _stated(self._values, self.text)

    def __repr__(self) -> str:
        return f"Config({', '.join(f'{name}={value}' for name, value in self.items())})"


@dataclass(frozen=True)
class Signature:
    """The problems and configs of an op: plain data, stored with each search.

    It defines the command line's options, the service's parameters, the canonical texts and Optuna's distributions.
    The first dtype is the default. Knobs always include `num_warps` and `num_stages`.
    """

    op: str
    dims: tuple[Dim, ...]
    dtypes: tuple[str, ...]
    knobs: tuple[Knob, ...]
    attributes: tuple[Attribute, ...] = ()
    summary: str = ""

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[a-z][a-z0-9_]{0,63}", self.op):
            raise UsageError(f"an op's name is lower-case letters, digits and _, up to 64, not {_shown(self.op)}")
        missing = {"num_warps", "num_stages"} - {knob.name for knob in self.knobs}
        if missing:
            raise UsageError(f"{self.op}: every config states {', '.join(sorted(missing))}; add the knob")

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names that describe a problem, in the order in which they are shown."""
        return (*(dim.name for dim in self.dims), "dtype", *(attribute.name for attribute in self.attributes))

    def problem(self, values: Mapping[str, object]) -> Problem:
        """Return the problem that `values` describe, with numbers as ints or as decimal text.

        Raises:
            UsageError: a name is unknown, a dim is missing or out of range, or a choice does not exist.
        """
        unknown = [name for name in values if name not in self.parameters]
        if unknown:
            raise UsageError(f"{self.op} is described by {', '.join(self.parameters)}, not by {_shown(unknown[0])}")
        sizes: dict[str, int] = {}
        for dim in self.dims:
            given = values.get(dim.name)
            sizes[dim.name] = self._default_size(dim, sizes) if given is None else self._size(dim.name, given)
        dtype = dtype_name(self.dtypes[0] if values.get("dtype") is None else values["dtype"])
        if dtype not in self.dtypes:
            raise UsageError(f"{self.op} knows dtype {', '.join(self.dtypes)}, not {dtype}")
        attributes: dict[str, Value] = {}
        for attribute in self.attributes:
            given = values.get(attribute.name)
            if attribute.dtypes and dtype not in attribute.dtypes:
                if given is not None:
                    raise UsageError(
                        f"{self.op}: {attribute.name} applies to dtype {', '.join(attribute.dtypes)}, not to {dtype}"
                    )
            else:
                attributes[attribute.name] = attribute.default if given is None else self._choice(attribute, given)
        return self._problem(sizes, dtype, attributes)

    def config(self, values: Mapping[str, Value]) -> Config:
        """Return the config that `values` describe; missing knobs take their default.

        A value outside today's choices is kept, so that narrowing the choices keeps what was measured.

        Raises:
            UsageError: a knob is unknown or missing.
        """
        names = [knob.name for knob in self.knobs]
        unknown = [name for name in values if name not in names]
        if unknown:
            raise UsageError(f"a {self.op} config has the knobs {', '.join(names)}, not {_shown(unknown[0])}")
        full = {knob.name: values.get(knob.name, knob.default) for knob in self.knobs}
        missing = [name for name, value in full.items() if value is None]
        if missing:
            raise UsageError(f"a {self.op} config states every knob; {', '.join(missing)} is missing")
        chosen = {name: value for name, value in full.items() if value is not None}
        defaults = {knob.name: knob.default for knob in self.knobs}
        return Config(chosen, _text({name: value for name, value in chosen.items() if value != defaults[name]}))

    def as_json(self) -> dict[str, Any]:
        """Return plain lists and dicts, from which `from_json` makes the signature again."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Signature:
        """Return the signature that `as_json` wrote. Unknown fields, of a newer version, are ignored."""

        def each(kind: Any, items: list[dict[str, Any]]) -> tuple[Any, ...]:
            known = kind.__dataclass_fields__
            return tuple(
                kind(**{k: tuple(v) if isinstance(v, list) else v for k, v in item.items() if k in known})
                for item in items
            )

        return Signature(
            op=data["op"],
            dims=each(Dim, data["dims"]),
            dtypes=tuple(data["dtypes"]),
            knobs=each(Knob, data["knobs"]),
            attributes=each(Attribute, data["attributes"]),
            summary=data["summary"],
        )

    def _problem(self, sizes: dict[str, int], dtype: str, attributes: dict[str, Value]) -> Problem:
        defaults = {attribute.name: attribute.default for attribute in self.attributes}
        stated = {name: value for name, value in attributes.items() if value != defaults[name]}
        text = f"{self.op} {_text(sizes, ordered=True)} dtype={dtype} {_text(stated)}".rstrip()
        return Problem(self.op, tuple(sizes.items()), dtype, tuple(attributes.items()), text)

    def _default_size(self, dim: Dim, sizes: dict[str, int]) -> int:
        if dim.default is None:
            raise UsageError(f"{self.op} needs {dim.name}; give {dim.name}=SIZE")
        return sizes[dim.default] if isinstance(dim.default, str) else dim.default

    def _size(self, name: str, given: object) -> int:
        text = str(given)
        if isinstance(given, bool) or not re.fullmatch(r"[0-9]{1,10}", text) or not 1 <= int(text) <= MAX_SIZE:
            raise UsageError(f"{self.op}: {name} is a whole number from 1 to {MAX_SIZE}, not {_shown(given)}")
        return int(text)

    def _choice(self, attribute: Attribute, given: object) -> Value:
        for choice in attribute.choices:
            text = str(given).capitalize() if isinstance(choice, bool) else str(given)  # JSON and URLs write true
            if str(choice) == text:
                return choice
        choices = ", ".join(map(str, attribute.choices))
        raise UsageError(f"{self.op}: {attribute.name} is one of {choices}, not {_shown(given)}")


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


def _text(values: Mapping[str, Value], *, ordered: bool = False) -> str:
    names = values if ordered else sorted(values)
    return " ".join(f"{name}={values[name]}" for name in names)


def _stated(values: Mapping[str, Value], text: str) -> Mapping[str, Value]:
    """Return the values that a canonical text names."""
    names = {part.partition("=")[0] for part in text.split()}
    return {name: value for name, value in values.items() if name in names}


def _shown(value: object) -> str:
    """Return a value from outside, quoted and cut to 80 characters, as an error message shows it."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
