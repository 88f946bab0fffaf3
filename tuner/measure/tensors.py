"""The tensors a kernel is measured on: drawn, poisoned and restored by the operands' roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from tuner.kernels.spec import Operand, torch_dtype

_POISON = 0x5A5A5A5A5A5A5A5A
"""What outputs that know no NaN are filled with, as many of its bytes as an element has."""


def dtype_of(name: str) -> torch.dtype:
    """torch's dtype of ours: `bf16` -> `torch.bfloat16`."""
    dtype = getattr(torch, torch_dtype(name))
    assert isinstance(dtype, torch.dtype)
    return dtype


def allocate(operands: Mapping[str, Operand], device: str) -> dict[str, torch.Tensor]:
    """Uninitialised tensors with the shapes and strides that the operands state."""
    return {
        name: torch.empty_strided(operand.shape, operand.element_strides, dtype=dtype_of(operand.dtype), device=device)
        for name, operand in operands.items()
    }


def draw(operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor], seed: int) -> None:
    """Fills whatever a kernel reads: floats normal, integers uniform, or as the operand says."""
    for index, (name, operand) in enumerate(operands.items()):
        if operand.role == "out":
            continue
        tensor = tensors[name]
        generator = torch.Generator(tensor.device).manual_seed(seed * 1009 + index)
        if operand.fill is not None:
            operand.fill(tensor, generator)
        elif not tensor.is_floating_point():
            info = torch.iinfo(tensor.dtype)
            tensor.random_(info.min, info.max, generator=generator)
        elif tensor.element_size() == 1:  # torch draws no 8-bit floats
            tensor.copy_(torch.empty_like(tensor, dtype=torch.float16).normal_(generator=generator))
        else:
            tensor.normal_(generator=generator)


def poison(operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor]) -> None:
    """Fills outputs so that an element nobody wrote cannot pass for a result."""
    for name, operand in operands.items():
        if operand.role == "out":
            tensor = tensors[name]
            tensor.fill_(float("nan") if tensor.is_floating_point() else _POISON % 2 ** (8 * tensor.element_size() - 1))


def restorer(operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor]) -> Callable[[], None] | None:
    """What puts the operands that are read and written back as they are now; None where there are none."""
    kept = {name: tensors[name].clone() for name, operand in operands.items() if operand.role == "inout"}
    if not kept:
        return None

    def restore() -> None:
        for name, value in kept.items():
            tensors[name].copy_(value)

    return restore


def written(operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors that hold results."""
    return {name: tensors[name] for name, operand in operands.items() if operand.role != "in"}
