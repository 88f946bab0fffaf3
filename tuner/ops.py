"""Tuned kernels that model code calls as it calls torch: `gemm(a, b)`, `scaled_gemm(a, b, scale_a, scale_b)`,
`softmax(x)`, `transpose(x)`.

A call looks up how its tensors are described (shapes, strides, dtypes, device, alignment) and launches what was
prepared for such ones: with the tuned config where there is one, else with the kernel's default. It never tunes and
never waits for others; the first call of a kind compiles, as any Triton kernel's does, unless `tuner.precompile` did.

Results are written to `out`, which may not share memory with an input; softmax may work in place. There is no backward
pass: what would record one is refused. Everything runs on the current stream: in captured graphs, from several threads,
and inside `torch.compile`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable

import torch
from torch import Tensor

from tuner.client import client
from tuner.client.pinned import Pinned
from tuner.errors import UsageError
from tuner.kernels.spec import Kernel, Problem
from tuner.launching import calls
from tuner.launching.arguments import Pointers, make_room
from tuner.launching.launcher import Call, prepare
from tuner.launching.warm import compile_ahead
from tuner.measure import device
from tuner.measure.compile import describe_error, is_compile_error

_log = logging.getLogger("tuner")

_MOST = 8192
"""Kinds of calls that stay prepared, a few KB each. Then the oldest goes, and is prepared anew when it comes again."""

_prepared: dict[object, Call] = {}
_replaced: dict[object, Call] = {}
"""What was prepared before the last refresh. It is on the card, so a graph may be captured with it at any time."""
_launched: set[tuple[str, int]] = set()
"""Which op was prepared on which device."""
_COMPILES = 2
"""At once, while the process is at work."""

_PLAIN = {Tensor, torch.nn.Parameter}
"""Tensors with memory. What becomes of others, such as the fake ones of tracing, is for torch to decide."""
_tracing = torch.compiler.is_dynamo_compiling
_recording = torch.is_grad_enabled
_matmul_setting = torch.backends.cuda.matmul.__getattr__
"""What reading an attribute of it comes to, in a third of the time."""


def gemm(
    a: Tensor, b: Tensor, out: Tensor | None = None, *, bias: Tensor | None = None, activation: str = "none"
) -> Tensor:
    """out (M, N) = activation(a (M, K) @ b (K, N) + bias (N,)), in fp32 until it is rounded, with any strides.

    Products of fp32 are made as `torch.backends.cuda.matmul.fp32_precision` says: `tf32`, else `ieee`.

    Args:
        a, b, out, bias: of one dtype.
        activation: `none`, `silu` or `gelu`.

    Raises:
        UsageError: shapes, dtypes or devices do not fit, the tensors are not on a GPU, or a gradient is asked for.
    """
    if out is None:
        out = torch.empty(a.shape[:1] + b.shape[1:], dtype=a.dtype, device=a.device)
    gradient = (a.requires_grad or b.requires_grad or out.requires_grad) and _recording()
    plain = type(a) in _PLAIN and type(b) in _PLAIN and type(out) in _PLAIN
    if bias is not None:
        gradient = gradient or (bias.requires_grad and _recording())
        plain = plain and type(bias) in _PLAIN
    if _tracing() or not plain:
        _refuse(gradient)
        _torch_gemm(a, b, out, bias, activation)
        return out
    at: Pointers = (a.data_ptr(), b.data_ptr(), out.data_ptr())
    key: tuple[object, ...] = (
        gemm, activation, _matmul_setting("fp32_precision") if a.dtype is torch.float32 else "",
        gradient, at[0] == at[1], at[2] in at[:2],
        a.shape, a.stride(), a.dtype, a.get_device(), at[0] & 15,
        b.shape, b.stride(), b.dtype, b.get_device(), at[1] & 15,
        out.shape, out.stride(), out.dtype, out.get_device(), at[2] & 15,
    )  # fmt: skip
    tensors = {"a": a, "b": b, "out": out}
    if bias is not None:
        at = (*at, bias.data_ptr())
        key = (
            *key, at.index(at[3]), bias.shape, bias.stride(), bias.dtype, bias.get_device(), at[3] & 15,
        )  # fmt: skip
        tensors["bias"] = bias
    call = _prepared.get(key) or _prepare(gemm, key, tensors, gradient, activation=activation)
    call(at)
    return out


def scaled_gemm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    out: Tensor | None = None,
    *,
    out_dtype: torch.dtype = torch.bfloat16,
    accumulate: str = "fp32",
) -> Tensor:
    """out (M, N) = a (M, K) @ b (K, N) of 8-bit floats (e4m3), times their scales, summed up in fp32.

    Both are read along K: a by its rows, b by its columns, as the transpose of an `nn.Linear`'s weight lies. Of others
    copies are made.

    Args:
        scale_a, scale_b: fp32; one number each, or (M, K / 128) and (K / 128, N / 128), rounded up. From 65 rows on it
            is faster where scale_a lies in columns, `stride(0) == 1`, as torch wants it, each aligned to 16 bytes.
        out_dtype: bfloat16 or float16, where `out` is not given.
        accumulate: `fp32`, or `fast`, which leaves sums to Hopper's tensor cores with fewer bits; blocks are always
            summed up in fp32.

    Raises:
        UsageError: as `gemm`, or the card multiplies no 8-bit floats.
    """
    if out is None:
        out = torch.empty(a.shape[:1] + b.shape[1:], dtype=out_dtype, device=a.device)
    tensors = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "out": out}
    gradient = any(tensor.requires_grad for tensor in tensors.values()) and _recording()
    if _tracing() or not all(type(tensor) in _PLAIN for tensor in tensors.values()):
        _refuse(gradient)
        _torch_scaled_gemm(a, b, scale_a, scale_b, out, accumulate)
        return out
    at: Pointers = (a.data_ptr(), b.data_ptr(), scale_a.data_ptr(), scale_b.data_ptr(), out.data_ptr())
    key = (
        scaled_gemm, accumulate, gradient, at[4] in at[:4], at[0] == at[1], at[2] == at[3],
        a.shape, a.stride(), a.dtype, a.get_device(), at[0] & 15,
        b.shape, b.stride(), b.dtype, b.get_device(), at[1] & 15,
        scale_a.shape, scale_a.stride(), scale_a.dtype, scale_a.get_device(), at[2] & 15,
        scale_b.shape, scale_b.stride(), scale_b.dtype, scale_b.get_device(), at[3] & 15,
        out.shape, out.stride(), out.dtype, out.get_device(), at[4] & 15,
    )  # fmt: skip
    call = _prepared.get(key) or _prepare(scaled_gemm, key, tensors, gradient, accumulate=accumulate)
    call(at)
    return out


def softmax(x: Tensor, out: Tensor | None = None) -> Tensor:
    """Softmax over the rows of x (M, N). Where the elements of a row are not neighbours, a contiguous copy is made.

    Raises:
        UsageError: as `gemm`.
    """
    return _unary(softmax, _torch_softmax, x, out)


def transpose(x: Tensor, out: Tensor | None = None) -> Tensor:
    """out (N, M) = x (M, N) transposed; elements of 1, 2, 4 or 8 bytes, whatever they mean. Copies as softmax does.

    Raises:
        UsageError: as `gemm`.
    """
    return _unary(transpose, _torch_transpose, x, out)


def refresh() -> None:
    """Takes up what was tuned since this process first asked, as `tuner.refresh` does, which does this too.

    It is compiled first, while other threads go on. Graphs that are captured already keep what they have.

    Raises:
        as `precompile`; then what is prepared stays in use.
    """
    client.refresh()


def _compile_first(pinned: Pinned, in_background: bool) -> None:
    """Loading onto the card is left to the call that needs it where others may be capturing a graph meanwhile."""
    for name, index in sorted(_launched):
        compile_ahead(pinned, [name], index, _COMPILES if in_background else None, load=not in_background)


def _prepare_anew() -> None:
    _replaced.clear()
    _replaced.update(_prepared)
    _prepared.clear()


client.on_refresh(_compile_first, _prepare_anew)


def _after_fork() -> None:
    """A child has not the card that its parent has."""
    _prepared.clear()
    _replaced.clear()


os.register_at_fork(after_in_child=_after_fork)


def _unary(op: Callable[..., Tensor], in_torch: Callable[..., None], x: Tensor, out: Tensor | None) -> Tensor:
    if out is None:
        shape = x.shape[::-1] if op is transpose else x.shape
        out = torch.empty(shape, dtype=x.dtype, device=x.device)
    gradient = (x.requires_grad or out.requires_grad) and _recording()
    if _tracing() or not (type(x) in _PLAIN and type(out) in _PLAIN):
        _refuse(gradient)
        in_torch(x, out)
        return out
    at = x.data_ptr(), out.data_ptr()
    key = (
        op, gradient, at[0] == at[1],
        x.shape, x.stride(), x.dtype, x.get_device(), at[0] & 15,
        out.shape, out.stride(), out.dtype, out.get_device(), at[1] & 15,
    )  # fmt: skip
    call = _prepared.get(key) or _prepare(op, key, {"x": x, "out": out}, gradient)
    call(at)
    return out


def _refuse(gradient: bool) -> None:
    if gradient:
        raise UsageError(
            "tuner.ops has no backward pass, and a tensor requires a gradient; "
            "call it under torch.no_grad(), or detach() what is given"
        )


def _prepare(op: Callable[..., Tensor], key: object, tensors: calls.Tensors, gradient: bool, **attributes: str) -> Call:
    """What launches an op on tensors like these. It is kept, unless it serves these alone."""
    name, out = op.__name__, tensors["out"]
    _refuse(gradient)
    calls.check(name, tensors, **attributes)
    calls.check_memory(name, tensors)
    if out.numel() == 0:
        return lambda at: None
    if tensors.get("a", out).numel() == 0:  # a sum of nothing
        return lambda at: calls.fill_with_nothing(tensors, **attributes)
    if not all(calls.fits(name, operand, tensor) for operand, tensor in tensors.items()):
        return lambda at: _by_copies(op, tensors, **attributes)
    operands = calls.operands(name, tensors)
    torch.cuda.init()  # refuses, in torch's words, in a child of a process that has the card
    if key in _replaced and torch.cuda.is_current_stream_capturing():
        return _replaced[key]
    with torch.cuda.device(out.device):
        call = _with_best(calls.kernel(name), calls.problem(name, operands, **attributes), operands)
    make_room(_prepared, _MOST)
    _prepared[key] = call
    _launched.add((name, out.get_device()))
    return call


def _by_copies(op: Callable[..., Tensor], tensors: calls.Tensors, **attributes: str) -> None:
    """Copies stand in for tensors whose strides the kernel does not take."""
    unfit = {name for name, tensor in tensors.items() if not calls.fits(op.__name__, name, tensor)}
    inputs = {
        name: calls.laid_out(op.__name__, name, x) if name in unfit else x
        for name, x in tensors.items()
        if name != "out"
    }
    if "out" in unfit:
        tensors["out"].copy_(op(**inputs, **attributes))
    else:
        op(**inputs, **attributes, out=tensors["out"])


def _with_best(kernel: Kernel, problem: Problem, operands: calls.Tensors) -> Call:
    """Prepared with the tuned config; with the default where there is none, or where it does not run here."""
    index = torch.cuda.current_device()
    limits = device.describe(index).limits
    best = client.best_config(kernel.op, device=index, **problem.values)
    default = kernel.default_config(problem, limits)
    config = best.config or default
    if config != default and not kernel.valid(problem, config, limits):
        _log.warning("%s: the default is used, since today's rules refuse %s", problem.text, config.text)
        config = default
    try:
        call = prepare(kernel, problem, config, operands, limits)
    except Exception as error:
        # A tensor descriptor asserts that what it describes is aligned, and a view need not be.
        if config == default or not (is_compile_error(error) or isinstance(error, AssertionError)):
            raise
        _log.warning("%s: the default is used: %s fails: %s", problem.text, config.text, describe_error(error))
        config = default
        call = prepare(kernel, problem, config, operands, limits)
    _log.debug("%s: launched with %s (%s)", problem.text, config.text, best.match)
    return call


@torch.library.custom_op("tuner::gemm", mutates_args=("out",))
def _torch_gemm(a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None, activation: str) -> None:
    added = None if bias is None else bias.as_subclass(Tensor)
    gemm(a.as_subclass(Tensor), b.as_subclass(Tensor), out.as_subclass(Tensor), bias=added, activation=activation)


@torch.library.custom_op("tuner::scaled_gemm", mutates_args=("out",))
def _torch_scaled_gemm(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out: Tensor, accumulate: str) -> None:
    given = (tensor.as_subclass(Tensor) for tensor in (a, b, scale_a, scale_b, out))
    scaled_gemm(*given, accumulate=accumulate)


@torch.library.custom_op("tuner::softmax", mutates_args=("out",))
def _torch_softmax(x: Tensor, out: Tensor) -> None:
    softmax(x.as_subclass(Tensor), out.as_subclass(Tensor))


@torch.library.custom_op("tuner::transpose", mutates_args=("out",))
def _torch_transpose(x: Tensor, out: Tensor) -> None:
    transpose(x.as_subclass(Tensor), out.as_subclass(Tensor))


@_torch_gemm.register_fake
def _(a: Tensor, b: Tensor, out: Tensor, bias: Tensor | None, activation: str) -> None:
    tensors = {"a": a, "b": b, "out": out}
    calls.check("gemm", tensors if bias is None else {**tensors, "bias": bias}, activation=activation)


@_torch_scaled_gemm.register_fake
def _(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, out: Tensor, accumulate: str) -> None:
    tensors = {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b, "out": out}
    calls.check("scaled_gemm", tensors, accumulate=accumulate)


@_torch_softmax.register_fake
def _(x: Tensor, out: Tensor) -> None:
    calls.check("softmax", {"x": x, "out": out})


@_torch_transpose.register_fake
def _(x: Tensor, out: Tensor) -> None:
    calls.check("transpose", {"x": x, "out": out})
