"""Checks of the tensors given to `tuner.launch`, before and after their problem is inferred."""

from __future__ import annotations

from collections.abc import Mapping

from torch.autograd import forward_ad

from tuner.errors import UsageError
from tuner.kernels.calling import Tensors, check_strided, is_recording, refuse_gradient, refuse_tangents
from tuner.kernels.fields import overlaps
from tuner.kernels.overlap import shares_memory
from tuner.kernels.spec import Kernel, Operand
from tuner.kernels.tensors import check_one_device
from tuner.launching.calls import check_device, check_has_memory


def check_given(kernel: Kernel, tensors: Tensors, others: Mapping[str, object]) -> None:
    """Check that the tensors are strided and need no gradient.

    Raises:
        UsageError: they are not, or are negative or conjugate views.
    """
    op = kernel.op
    for name, value in others.items():
        if name not in kernel.signature.parameters:
            check_strided(op, {name: value})
    if not tensors:
        raise UsageError(f"tuner.launch takes tensors by the names of operands, and {op} got none; add x=x")
    check_strided(op, tensors)
    refuse_gradient(is_recording() and any(x.requires_grad for x in tensors.values()), "tuner.launch")
    if forward_ad._current_level >= 0:
        refuse_tangents(op, tensors)
    for name, tensor in tensors.items():
        if tensor.is_neg() or tensor.is_conj():
            kind = "negative" if tensor.is_neg() else "conjugate"
            raise UsageError(
                f"{op} reads the numbers in memory, and {name} is a {kind} view; pass {name}.resolve_neg()"
                f"{'.resolve_conj()' if tensor.is_conj() else ''}"
            )


def check_places(op: str, operands: Mapping[str, Operand], tensors: Tensors, runs_on: str) -> None:
    """Check that the tensors are in the memory that their operands are in: all on one GPU, but for those on the host.

    Raises:
        UsageError: they are not.
    """
    placed = {name: tensors[name] for name, operand in operands.items() if operand.place == "device"}
    check_one_device(op, placed)
    check_device(op, next(iter(placed.values())).device, runs_on)
    for name, operand in operands.items():
        tensor = tensors[name]
        if operand.place == "device":
            continue
        if tensor.device.type != "cpu":
            raise UsageError(
                f"{op} takes {name} in the memory of the host here, not on {tensor.device}; correct the attribute that "
                "says so, or move it with .cpu()"
            )
        if operand.place == "pinned" and not tensor.is_pinned():
            raise UsageError(
                f"{op} takes {name} in pinned memory here, and it is pageable; correct the attribute that says so, or "
                f"pass {name}.pin_memory()"
            )


def check_written(op: str, tensors: Tensors, written: frozenset[str]) -> None:
    """Check that written elements share no memory with other elements.

    Raises:
        UsageError: they do.
    """
    check_has_memory(op, tensors)
    for name in written:
        out = tensors[name]
        if overlaps(tuple(out.shape), out.stride()):
            raise UsageError(
                f"{op} writes each element of {name} to a place of its own, and {name} has strides {out.stride()}; "
                "pass a contiguous one"
            )
        for other, tensor in tensors.items():
            if other != name and shares_memory(tensor, out):
                raise UsageError(
                    f"{op} cannot write over what it reads, and {name} shares memory with {other}; pass {other}.clone()"
                )
