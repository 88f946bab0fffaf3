"""The problem of given tensors: dims are inferred from shapes by the kernel's own `operands`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import count, islice
from typing import Any

from tuner.captured.kernel import CapturedKernel
from tuner.errors import KernelFault, TunerError, UsageError
from tuner.kernels.calling import Tensors, short_name
from tuner.kernels.dtypes import torch_dtype
from tuner.kernels.spec import Config, Kernel, Launch, Limits, Operand, Problem, Step
from tuner.measure.stand_ins import stand_in

_PRIMES = (11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71)
_SCALES = (128, 1, 1024)
"""Factors of the sizes that are tried, since a kernel may refuse those that are no multiple of a block."""


def problem_of(kernel: Kernel, tensors: Tensors, given: Mapping[str, object]) -> Problem:
    """Return the problem of the given tensors.

    A dim that is not given is inferred from the shapes, and the dtype from the tensors. The kernel of a captured call
    has one problem. Strides are not compared with those of the operands; `check_strides` does that.

    Args:
        given: dims, `dtype` and attributes that the caller states.

    Raises:
        UsageError: a dim cannot be read from the shapes, or shapes or dtypes are not those of the operands.
    """
    misfits: list[tuple[int, UsageError]] = []
    if isinstance(kernel, CapturedKernel):
        given = {**kernel.problem.values, **given}
    for dtype in _dtypes(kernel, tensors, given):
        try:
            values = {**given, "dtype": dtype}
            problem = kernel.signature.problem({**values, **_sizes(kernel, tensors, values)})
        except UsageError as error:
            misfits.append((-1, error))
            continue
        operands = kernel.operands(problem)
        misfit = _misfit(kernel.op, operands, tensors)
        if misfit is None:
            return problem
        fitting = sum(
            name in tensors and short_name(tensors[name].dtype) == each.dtype for name, each in operands.items()
        )
        misfits.append((fitting, misfit))
    raise max(misfits, key=lambda each: each[0])[1]


def check_strides(kernel: Kernel, problem: Problem, tensors: Tensors, limits: Limits) -> None:
    """Check that the kernel can use the strides of the tensors.

    Strides other than those of the operands are accepted if `launch` passes them to the kernel. A stride that changes
    no argument is one that the kernel assumes.

    Raises:
        UsageError: the kernel assumes other strides.
    """
    operands = kernel.operands(problem)
    for name, tensor in tensors.items():
        expected = operands[name].element_strides
        pairs = zip(tensor.shape, tensor.stride(), expected, strict=True)
        differing = [dim for dim, (size, own, stride) in enumerate(pairs) if size > 1 and own != stride]
        if differing and not _passes_on(kernel, problem, limits, name, differing):
            remedy = ".contiguous()" if operands[name].strides is None else " laid out so"
            raise UsageError(
                f"{kernel.op} takes {name} with strides {expected} here, not {tensor.stride()}; pass {name}{remedy}"
            )


def _dtypes(kernel: Kernel, tensors: Tensors, given: Mapping[str, object]) -> Iterator[object]:
    """Yield the dtypes that the problem may have: those of the tensors, in their order, and the default."""
    if given.get("dtype") is not None:
        yield given["dtype"]
        return
    known = kernel.signature.dtypes
    yield from dict.fromkeys([name for x in tensors.values() if (name := short_name(x.dtype)) in known] + [known[0]])


def _sizes(kernel: Kernel, tensors: Tensors, given: Mapping[str, object]) -> dict[str, int]:
    """Return the dims that are not given and can be inferred from the shapes, or else from strides that are stated.

    The kernel's operands are evaluated with another prime number for each dim, so that a size is recognised by its
    value.

    Raises:
        UsageError: a dim that has no default is in no shape.
    """
    missing = [dim for dim in kernel.signature.dims if given.get(dim.name) is None]
    if not missing:
        return {}
    found: dict[str, int] = {}
    by_stride: dict[str, int] = {}
    operands, tried = _tried(kernel, given, [dim.name for dim in missing])
    for dim, size in tried.items():
        for name, operand in operands.items():
            if size in operand.shape and name in tensors and tensors[name].ndim == len(operand.shape):
                found.setdefault(dim, tensors[name].shape[operand.shape.index(size)])
            elif name in tensors and size in (operand.strides or ()) and tensors[name].ndim == len(operand.shape):
                by_stride.setdefault(dim, tensors[name].stride((operand.strides or ()).index(size)))
    found = {**by_stride, **found}
    for each in missing:
        if each.name not in found and each.default is None:
            raise UsageError(
                f"{kernel.op}: {each.name} cannot be read from shapes of {', '.join(tensors)}; give {each.name}=SIZE"
            )
    return found


def _tried(
    kernel: Kernel, given: Mapping[str, object], names: list[str]
) -> tuple[Mapping[str, Operand], dict[str, int]]:
    """Return the operands of a problem with recognisable sizes, and these sizes.

    Raises:
        UsageError: the signature or the kernel refuses all of them.
    """
    refusal: UsageError | None = None
    for sizes in _trials(names, {*given.values()}):
        try:
            return kernel.operands(kernel.signature.problem({**given, **sizes})), sizes
        except KernelFault:
            continue
        except UsageError as error:
            refusal = error
    stated = ", ".join(f"{name}=SIZE" for name in names)
    raise refusal or UsageError(
        f"{kernel.op}: dims cannot be read from shapes, since trial sizes are refused; give {stated}"
    )


def _trials(names: list[str], stated: Collection[object]) -> Iterator[dict[str, int]]:
    """Yield sizes that are told apart by their values: multiples of primes, then powers of 2.

    Of the powers, earlier dims are multiples of later ones, as heads of q are of those of k.
    """
    for scale in _SCALES:
        yield {name: scale * prime for name, prime in zip(names, _PRIMES, strict=False)}
    powers = (2**power for power in count(6) if 2**power not in stated)
    yield dict(zip(names, reversed([*islice(powers, len(names))]), strict=True))


def _misfit(op: str, operands: Mapping[str, Operand], tensors: Tensors) -> UsageError | None:
    """Return the error of the first tensor that does not fit its operand, or None."""
    for name in tensors:
        if name not in operands:
            return UsageError(f"{op} takes {', '.join(operands)} here, not {name}; leave it out")
    for name, operand in operands.items():
        if name not in tensors:
            return UsageError(
                f"{op} also takes {name}, {_described(operand)} here; pass {name}=torch.empty(...) or the like"
                if operand.role == "out"
                else f"{op} also takes {name}, {_described(operand)} here; pass {name}="
            )
        tensor = tensors[name]
        if tuple(tensor.shape) != operand.shape:
            return UsageError(
                f"{op} takes {name} of shape {operand.shape} here, not {tuple(tensor.shape)}; "
                "correct it, or the tensors and dims that its shape follows from"
            )
        if short_name(tensor.dtype) != operand.dtype:
            return UsageError(
                f"{op} takes {name} of dtype {torch_dtype(operand.dtype)} here, not {str(tensor.dtype)[6:]}; "
                "convert it with .to()"
            )
    return None


def _described(operand: Operand) -> str:
    return f"a tensor of shape {operand.shape} and dtype {torch_dtype(operand.dtype)}"


def _passes_on(kernel: Kernel, problem: Problem, limits: Limits, name: str, dims: list[int]) -> bool:
    """Return whether `launch` passes each of these strides of an operand to its kernels."""
    config = kernel.default_config(problem, limits)
    operands = kernel.tensors(problem, config, limits)
    try:
        usual = _arguments(kernel, problem, config, operands)
        for dim in dims:
            strides = list(operands[name].element_strides)
            strides[dim] = (
                2 * sum(size * stride for size, stride in zip(operands[name].shape, strides, strict=True)) + 16
            )
            other = replace(operands[name], strides=tuple(strides))
            if _arguments(kernel, problem, config, {**operands, name: other}) == usual:
                return False
    except (TunerError, RuntimeError, AssertionError):  # a view that such strides do not have
        return False
    return True


def _arguments(kernel: Kernel, problem: Problem, config: Config, operands: Mapping[str, Operand]) -> list[Any]:
    """Return the arguments of all launches, but for their tensors."""
    stand_ins = {name: stand_in(operand) for name, operand in operands.items()}
    return [_plain(launch) for launch in kernel.launch(problem, config, stand_ins)]


def _plain(step: Step) -> list[Any]:
    values = [*step.args, *step.kwargs.values()] if isinstance(step, Launch) else step.args
    shown = [tuple(value.strides) if hasattr(value, "block_shape") else value for value in values]
    return [
        step.grid if isinstance(step, Launch) else (),
        *(value for value in shown if not hasattr(value, "data_ptr")),
    ]
