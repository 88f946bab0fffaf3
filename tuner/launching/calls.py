"""Which problem a call of an op is, and which tensors it takes: from tensors to dims, dtype and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from tuner import catalog
from tuner.errors import UsageError
from tuner.kernels.spec import Kernel, Problem, cdiv, dtype_name
from tuner.measure.tensors import overlaps

Tensors = Mapping[str, Tensor]

_MOVED_AS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_SHARED = 128
"""Columns of a and of b, and rows of b, that have one scale, where scales are of blocks."""
_NO_MATRIX = {"bias", "scale_a", "scale_b"}
"""Operands whose shapes follow from those of the others."""


@cache
def kernel(op: str) -> Kernel:
    """The kernel of an op of ours."""
    return catalog.load(op)


def check(op: str, tensors: Tensors, **attributes: str) -> None:
    """Whether shapes, dtypes, devices and attributes fit. Looks at nothing that a tensor without memory has not.

    Raises:
        UsageError: the rule, what was given, and the way out.
    """
    (first, one), *others = tensors.items()
    for name, tensor in tensors.items():
        if tensor.ndim != 2 and name not in _NO_MATRIX:
            raise UsageError(
                f"{op} takes matrices, and {name} has shape {_shape(tensor)}; "
                f"make it one, as in {name}.reshape(-1, {name}.shape[-1])"
            )
    for name, tensor in others:
        if tensor.dtype != one.dtype and name not in _OWN_DTYPES.get(op, {}):
            raise UsageError(
                f"{op} takes tensors of one dtype, and {first} is {one.dtype} but {name} {tensor.dtype}; "
                f"convert one of them with .to()"
            )
        if tensor.device != one.device:
            raise UsageError(
                f"{op} takes tensors on one device, and {first} is on {one.device} but {name} on {tensor.device}; "
                f"move one of them with .to()"
            )
    _check_dtype(op, first, one.dtype)
    for name, dtypes in _OWN_DTYPES.get(op, {}).items():
        if _name(tensors[name].dtype) not in dtypes:
            raise UsageError(
                f"{op}'s {name} is {' or '.join(dtypes)}, not {tensors[name].dtype}; convert it with .to()"
            )
    for name, value in attributes.items():
        _check_choice(op, name, value)
    expected = _OUT[op](tensors)
    if tuple(tensors["out"].shape) != expected:
        raise UsageError(
            f"{op} writes to an out of shape {expected} here, not {_shape(tensors['out'])}; "
            "leave out away and it is made"
        )


def check_memory(op: str, tensors: Tensors) -> None:
    """Whether a kernel can read and write where the tensors are.

    Raises:
        UsageError: as `check`.
    """
    out = tensors["out"]
    if not out.is_cuda:
        raise UsageError(
            f"{op} runs on a GPU, and its tensors are on {out.device}; move them with .cuda(), or call torch instead"
        )
    if overlaps(tuple(out.shape), out.stride()):
        raise UsageError(
            f"{op} writes each element of out to a place of its own, and out has strides {out.stride()}; "
            "leave out away and it is made"
        )
    for name, tensor in tensors.items():
        if op != "softmax" and name != "out" and tensor.data_ptr() == out.data_ptr() and out.numel():
            raise UsageError(f"{op} cannot write over what it reads, and out is {name}; leave out away and it is made")


def fits(op: str, name: str, tensor: Tensor) -> bool:
    """Whether the kernel takes these strides; else a copy stands in, `laid_out`."""
    if op == "scaled_gemm":
        along = {"a": 1, "b": 0}.get(name)
        return along is None or bool(tensor.shape[along] == 1 or tensor.stride(along) == 1)
    if tensor.is_contiguous():
        return True
    if op != "gemm":
        return bool(tensor.shape[1] == 1 or tensor.stride(1) == 1)
    if name == "bias":
        return False
    return name == "out" or bool(tensor.stride(1 if name == "a" else 0) < _far())


@cache
def _far() -> int:
    """The stride along K from which a step of the gemm is too many elements for 32 bits."""
    (steps,) = (knob.choices for knob in kernel("gemm").signature.knobs if knob.name == "BLOCK_K")
    return 2**31 // max(map(int, steps))


def laid_out(op: str, name: str, tensor: Tensor) -> Tensor:
    """A copy with strides that the kernel takes."""
    return tensor.t().contiguous().t() if (op, name) == ("scaled_gemm", "b") else tensor.contiguous()


def problem(op: str, tensors: Tensors, **attributes: str) -> Problem:
    """The problem that an op's operands, none of them empty, are an instance of."""
    return kernel(op).signature.problem({**_VALUES[op](tensors), **attributes})


def fill_with_nothing(tensors: Tensors, **attributes: str) -> None:
    """What a product without products writes: the activation of the bias."""
    nothing = torch.zeros((), dtype=torch.float32, device=tensors["out"].device)
    bias = tensors.get("bias", nothing).float()
    tensors["out"].copy_({"none": bias, "silu": silu(bias), "gelu": gelu(bias)}[attributes.get("activation", "none")])


def operands(op: str, tensors: Tensors) -> Tensors:
    """The tensors as the kernel knows them: what only moves may be of any type, and moves as integers."""
    one = tensors["out"].dtype
    if op != "transpose" or _name(one) in kernel(op).signature.dtypes:
        return tensors
    return {name: tensor.view(_MOVED_AS[one.itemsize]) for name, tensor in tensors.items()}


def precision() -> str:
    """How fp32 products are to be made: what torch was told of its own."""
    return "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"


def _check_dtype(op: str, name: str, dtype: torch.dtype) -> None:
    known = kernel(op).signature.dtypes
    if _name(dtype) in known or (op == "transpose" and dtype.itemsize in _MOVED_AS):
        return
    takes = "elements of 1, 2, 4 or 8 bytes" if op == "transpose" else ", ".join(known)
    raise UsageError(f"{op} takes {takes}, and {name} is {dtype}; convert it with .to()")


def _check_choice(op: str, name: str, value: str) -> None:
    choices = next(attribute.choices for attribute in kernel(op).signature.attributes if attribute.name == name)
    if value not in choices:
        raise UsageError(f"{op}'s {name} is one of {', '.join(map(str, choices))}, not {value!r}")


def _name(dtype: torch.dtype) -> str | None:
    try:
        return dtype_name(dtype)
    except UsageError:
        return None


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def _product_shape(op: str, tensors: Tensors) -> tuple[int, ...]:
    a, b = tensors["a"], tensors["b"]
    if a.shape[1] != b.shape[0]:
        raise UsageError(
            f"{op} multiplies a (M, K) by b (K, N), not {_shape(a)} by {_shape(b)}; a matrix can be turned with .t()"
        )
    return (a.shape[0], b.shape[1])


def _gemm_shape(tensors: Tensors) -> tuple[int, ...]:
    M, N = _product_shape("gemm", tensors)
    bias = tensors.get("bias")
    if bias is not None and tuple(bias.shape) != (N,):
        raise UsageError(f"gemm adds a bias of shape {(N,)} here, not {_shape(bias)}")
    return (M, N)


def _scaled_shape(tensors: Tensors) -> tuple[int, ...]:
    M, N = _product_shape("scaled_gemm", tensors)
    if not _of_tensors(tensors):
        along = cdiv(tensors["a"].shape[1], _SHARED)
        for name, shape in (("scale_a", (M, along)), ("scale_b", (along, cdiv(N, _SHARED)))):
            if _shape(tensors[name]) != shape:
                raise UsageError(
                    f"scaled_gemm takes one scale for a and one for b, or those of blocks of {_SHARED}, "
                    f"and {name} of shape {shape} here, not {_shape(tensors[name])}; it can be turned with .t()"
                )
    return (M, N)


def _of_tensors(tensors: Tensors) -> bool:
    """Whether either factor has one scale. Where that is all that blocks have, it means the same."""
    return bool(tensors["scale_a"].numel() == tensors["scale_b"].numel() == 1)


_OWN_DTYPES = {"scaled_gemm": {"scale_a": ("fp32",), "scale_b": ("fp32",), "out": ("bf16", "fp16")}}
"""Operands whose dtype is not that of the others."""

_OUT: dict[str, Callable[[Tensors], tuple[int, ...]]] = {
    "gemm": _gemm_shape,
    "scaled_gemm": _scaled_shape,
    "softmax": lambda tensors: _shape(tensors["x"]),
    "transpose": lambda tensors: _shape(tensors["x"])[::-1],
}


def _gemm_values(tensors: Tensors) -> dict[str, object]:
    a, b = tensors["a"], tensors["b"]
    letters = "".join("t" if x.stride(0) == 1 and x.stride(1) >= x.shape[0] > 1 else "n" for x in (a, b))
    values = {"M": a.shape[0], "N": b.shape[1], "K": a.shape[1], "dtype": a.dtype}
    values |= {"layout": letters, "bias": "bias" in tensors}
    return values | ({"precision": precision()} if a.dtype == torch.float32 else {})


def _scaled_values(tensors: Tensors) -> dict[str, object]:
    a, b, out = tensors["a"], tensors["b"], tensors["out"]
    scales = "tensor" if _of_tensors(tensors) else "block"
    values = {"M": a.shape[0], "N": b.shape[1], "K": a.shape[1], "dtype": a.dtype}
    return values | {"scales": scales, "out_dtype": dtype_name(out.dtype)}


def _unary_values(tensors: Tensors) -> dict[str, object]:
    x = tensors["x"]
    return {"M": x.shape[0], "N": x.shape[1], "dtype": x.dtype}


_VALUES: dict[str, Callable[[Tensors], dict[str, object]]] = {
    "gemm": _gemm_values,
    "scaled_gemm": _scaled_values,
    "softmax": _unary_values,
    "transpose": _unary_values,
}
