"""The tensors a kernel is measured on: drawn, poisoned, guarded and restored by the operands' roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, nan

import torch

from tuner.errors import MeasureError
from tuner.kernels.spec import Operand, torch_dtype

_POISON = 0x5A5A5A5A5A5A5A5A
"""What outputs that know no NaN are filled with, as many of its bytes as an element has."""
_BAND, _BAND_BYTES = 0xA5, 4096
"""What stands on either side of a tensor that is written, and how much of it."""
_WITHOUT_INFINITY = (torch.float8_e4m3fn,)


def dtype_of(name: str) -> torch.dtype:
    """torch's dtype of ours: `bf16` -> `torch.bfloat16`."""
    dtype = getattr(torch, torch_dtype(name))
    assert isinstance(dtype, torch.dtype)
    return dtype


def allocate(operands: Mapping[str, Operand], device: str) -> dict[str, torch.Tensor]:
    """Uninitialised tensors with the shapes and strides that the operands state.

    Those that are written stand between bands that nobody may write to: `intact` tells.

    Raises:
        MeasureError: elements of an operand that is written share memory.
    """
    return {name: _allocated(name, operand, device, _BAND_BYTES) for name, operand in operands.items()}


def workspace(operands: Mapping[str, Operand], device: str) -> dict[str, torch.Tensor]:
    """A kernel's workspace as a config first gets it, with NaN for the floats that may hold anything."""
    made = blank(operands, device)
    for tensor in made.values():
        if tensor.is_floating_point():
            tensor.fill_(nan)
    return made


def blank(operands: Mapping[str, Operand], device: str) -> dict[str, torch.Tensor]:
    """A workspace on the current stream: integers 0, floats whatever was there."""
    made = {
        name: torch.empty_strided(o.shape, o.element_strides, dtype=dtype_of(o.dtype), device=device)
        for name, o in operands.items()
    }
    for tensor in made.values():
        if not tensor.is_floating_point():
            tensor.zero_()
    return made


def relocate(
    operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor], alignment: int
) -> dict[str, torch.Tensor]:
    """The same tensors, but what is written is in another place, aligned to so many bytes and no more."""
    moved = {
        name: _allocated(name, operand, str(tensors[name].device), _BAND_BYTES + alignment)
        for name, operand in operands.items()
        if operand.role != "in"
    }
    for name, tensor in moved.items():
        tensor.copy_(tensors[name])
    return {**tensors, **moved}


def copy(operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same contents in a place of its own."""
    copies = allocate(operands, str(next(iter(tensors.values())).device))
    for name, copy in copies.items():
        copy.copy_(tensors[name])
    return copies


def guards_intact(operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor]) -> bool:
    """Whether nothing was written beside the operands."""
    bands = [band for name, operand in operands.items() if operand.role != "in" for band in _bands(tensors[name])]
    return all(bool((band == _BAND).all()) for band in bands)


def checksums(operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """A number for each tensor that is only read, by which a change of its contents is noticed."""
    return {name: _sum(bits(tensors[name])) for name, operand in operands.items() if operand.role == "in"}


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """The same bits as integers, so that NaN equals itself."""
    return tensor.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def draw(
    operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor], seed: int, *, special: bool = False
) -> None:
    """Fills whatever a kernel reads: floats normal, integers uniform, or as the operand says.

    `special` puts zeros, infinities and NaN in a few places among the floats, and the extremes among the integers.
    """
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
        if special and operand.fill is None and tensor.numel() > 0:
            for value in _specials(tensor.dtype):
                place = [
                    int(torch.randint(size, (), generator=generator, device=tensor.device)) for size in tensor.shape
                ]
                tensor[tuple(place)] = value


def _specials(dtype: torch.dtype) -> list[float]:
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return [0, info.min, info.max]
    infinite = [inf, -inf] if dtype not in _WITHOUT_INFINITY else []
    return [0.0, -0.0, nan, *infinite]


def poison(operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor]) -> None:
    """Fills outputs so that an element nobody wrote cannot pass for a result, and mends what stands beside them."""
    for name, operand in operands.items():
        for band in _bands(tensors[name]) if operand.role != "in" else ():
            band.fill_(_BAND)
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


def _sum(integers: torch.Tensor) -> int:
    """Of all bits, taken as 64-bit numbers: torch would widen shorter ones first, in eight times an int8's memory."""
    by_stride = sorted(range(integers.ndim), key=integers.stride, reverse=True)
    flat = integers.permute(by_stride).reshape(-1)  # a view, unless the tensor has gaps
    rest = flat.numel() % (8 // flat.element_size())
    longs, last = flat[: flat.numel() - rest], flat[flat.numel() - rest :]
    return int(longs.view(torch.int64).sum()) + int(last.sum(dtype=torch.int64))


def _allocated(name: str, operand: Operand, device: str, offset: int) -> torch.Tensor:
    dtype, strides = dtype_of(operand.dtype), operand.element_strides
    if operand.role == "in":
        return torch.empty_strided(operand.shape, strides, dtype=dtype, device=device)
    if overlaps(operand.shape, strides):
        raise MeasureError(f"elements of {name} share memory, by strides {strides}; what is written may not")
    buffer = torch.full(
        (offset + _span(operand.shape, strides) * dtype.itemsize + _BAND_BYTES,),
        _BAND,
        dtype=torch.uint8,
        device=device,
    )
    elements = buffer[offset : buffer.numel() - _BAND_BYTES].view(dtype)
    return elements.as_strided(operand.shape, strides, elements.storage_offset())


def _bands(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The bytes of its storage before and after a tensor."""
    storage = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    start = tensor.storage_offset() * tensor.element_size()
    end = start + _span(tensor.shape, tensor.stride()) * tensor.element_size()
    return storage[:start], storage[end:]


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Elements from the first to the last."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if all(shape) else 0


def overlaps(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether two elements may have one place: each stride must step over all that the smaller ones reach."""
    reached = 0
    for stride, size in sorted((stride, size) for size, stride in zip(shape, strides, strict=True) if size > 1):
        if stride <= reached:
            return True
        reached += stride * (size - 1)
    return False
