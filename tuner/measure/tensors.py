"""The tensors a kernel is measured on: allocated, drawn, poisoned, guarded and restored by the operands' roles."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import inf, nan
from typing import Any

import torch

from tuner.kernels.launch import distinct
from tuner.kernels.spec import Operand, torch_dtype

_POISON = 0x5A5A5A5A5A5A5A5A
"""Fill of outputs whose dtype has no NaN, cut to the size of an element."""
_GUARD_BYTES = 4096
"""Number of the guard bytes on either side of a tensor."""
_WITHOUT_INFINITY = (torch.float8_e4m3fn,)


def dtype_of(name: str) -> torch.dtype:
    """Return torch's dtype of our name: `bf16` -> `torch.bfloat16`."""
    dtype = getattr(torch, torch_dtype(name))
    assert isinstance(dtype, torch.dtype)
    return dtype


def allocate(operands: Mapping[str, Operand], device: str) -> dict[str, torch.Tensor]:
    """Return uninitialised tensors with the operands' shapes and strides.

    Guard bytes stand on either side of each tensor; `written_beside` checks them. Beside a tensor that is read they
    are NaN, or -1, so that a read out of bounds shows.

    Args:
        device: of the operands that are not on the host. Without a GPU ("cpu"), no memory is pinned.
    """
    return {name: _allocated(operand, device, _GUARD_BYTES) for name, operand in operands.items()}


def workspace(operands: Mapping[str, Operand], device: str) -> dict[str, torch.Tensor]:
    """Return a workspace for correctness checks: integers 0, floats NaN."""
    made = blank(operands, device)
    for tensor in made.values():
        if tensor.is_floating_point():
            tensor.fill_(nan)
    return made


def blank(operands: Mapping[str, Operand], device: str) -> dict[str, torch.Tensor]:
    """Return a workspace, made on the current stream: integers 0, floats uninitialised."""
    made = {
        name: torch.empty_strided(o.shape, o.element_strides, dtype=dtype_of(o.dtype), **_memory(o, device))
        for name, o in operands.items()
    }
    for tensor in made.values():
        if not tensor.is_floating_point():
            tensor.zero_()
    return made


def relocate(
    operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor], alignment: int
) -> dict[str, torch.Tensor]:
    """Return the tensors with those that are written moved to addresses aligned to `alignment` bytes, and no more.

    An operand's own offset is added.
    """
    moved = {
        name: _allocated(operand, _device_of(tensors), _GUARD_BYTES + alignment)
        for name, operand in operands.items()
        if operand.role != "in"
    }
    for name, tensor in moved.items():
        tensor.copy_(tensors[name])
    return {**tensors, **moved}


def copy(operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return newly allocated tensors with the same contents."""
    copies = allocate(operands, _device_of(tensors))
    for name, copy in copies.items():
        distinct(copy).copy_(distinct(tensors[name]))
    return copies


def written_beside(operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor]) -> list[str]:
    """Return the names of the operands beside which guard bytes have changed."""
    guards = [
        (name, guard, _guard_of(operand)) for name, operand in operands.items() for guard in _guards(tensors[name])
    ]
    changes = [(guard != byte).any() for _, guard, byte in guards]
    found = torch.stack([each.to(changes[-1].device) for each in changes]).tolist() if changes else []
    return list(dict.fromkeys(name for (name, _, _), is_changed in zip(guards, found, strict=True) if is_changed))


def checksums(
    operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor], roles: tuple[str, ...] = ("in",)
) -> dict[str, int]:
    """Return a checksum of each tensor of these roles."""
    return {name: _sum(bits(tensors[name])) for name, operand in operands.items() if operand.role in roles}


def changed(tensors: Mapping[str, torch.Tensor], before: Mapping[str, int]) -> list[str]:
    """Return the names of the tensors whose checksum is another than before."""
    return [name for name, checksum in before.items() if _sum(bits(tensors[name])) != checksum]


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the same bits as integers, so that NaN equals itself."""
    return tensor.view({1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])


def draw(
    operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor], seed: int, *, special: bool = False
) -> None:
    """Fill the tensors that a kernel reads: floats normal, integers uniform, or by the operand's own `fill`.

    Args:
        special: also set a few elements to zeros, infinities and NaN (floats) or to the extremes (integers).
    """
    for index, (name, operand) in enumerate(operands.items()):
        if operand.role == "out":
            continue
        tensor = distinct(tensors[name])
        generator = torch.Generator(tensor.device).manual_seed(seed * 1009 + index)
        if operand.fill is not None:
            operand.fill(tensors[name], generator)
        elif tensor.dtype == torch.bool:
            tensor.random_(0, 2, generator=generator)
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
    """Return the special values of a dtype."""
    if dtype == torch.bool:
        return []
    if not dtype.is_floating_point:
        info = torch.iinfo(dtype)
        return [0, info.min, info.max]
    infinite = [inf, -inf] if dtype not in _WITHOUT_INFINITY else []
    return [0.0, -0.0, nan, *infinite]


def poison(operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor], turn: int = 0) -> None:
    """Fill outputs with one of three values, so that an unwritten or a read element shows.

    Args:
        turn: 0 is NaN or a fixed pattern, 1 the highest value, 2 the lowest, and so on. 0 also resets the guards.
    """
    for name, operand in operands.items():
        for guard in _guards(tensors[name]) if turn == 0 else ():
            guard.fill_(_guard_of(operand))
        if operand.role == "out":
            _poison(tensors[name], turn)


def poison_floats(tensors: Mapping[str, torch.Tensor], turn: int) -> None:
    """Fill the floats of a workspace, which no launch may read before it has written them."""
    for tensor in tensors.values():
        if tensor.is_floating_point():
            _poison(tensor, turn)


def _poison(tensor: torch.Tensor, turn: int) -> None:
    if tensor.is_floating_point():
        info = torch.finfo(tensor.dtype)
        tensor.fill_((nan, info.max, info.min)[turn % 3])
        return
    whole = tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor  # a boolean that is neither
    limits = torch.iinfo(whole.dtype)
    whole.fill_((_POISON % 2 ** (8 * whole.element_size() - 1), limits.max, limits.min)[turn % 3])


def restorer(operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor]) -> Callable[[], None] | None:
    """Return a function that restores the operands that are read and written, or None if there are none."""
    kept = {name: tensors[name].clone() for name, operand in operands.items() if operand.role == "inout"}
    if not kept:
        return None

    def restore() -> None:
        for name, value in kept.items():
            tensors[name].copy_(value)

    return restore


def written(operands: Mapping[str, Operand], tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors that hold results."""
    return {name: tensors[name] for name, operand in operands.items() if operand.role != "in"}


def _sum(integers: torch.Tensor) -> int:
    """Sum all bits as 64-bit integers. Summing shorter ones directly would widen them first, 8 times for int8.

    Elements before the first multiple of 8 bytes in the storage, and after the last, are summed by themselves.
    """
    by_stride = sorted(range(integers.ndim), key=integers.stride, reverse=True)
    flat = integers.permute(by_stride).reshape(-1).contiguous()  # a view, unless the tensor has gaps
    each = 8 // flat.element_size()
    first = -flat.storage_offset() % each
    last = flat.numel() - (flat.numel() - first) % each
    if first >= last:
        return int(flat.sum(dtype=torch.int64))
    beside = flat[:first].sum(dtype=torch.int64) + flat[last:].sum(dtype=torch.int64)
    return int(flat[first:last].view(torch.int64).sum() + beside)


def _allocated(operand: Operand, device: str, offset: int) -> torch.Tensor:
    """Return one operand's tensor, `offset` bytes and its own offset into a buffer of guard bytes."""
    dtype, strides = dtype_of(operand.dtype), operand.element_strides
    offset += operand.offset
    buffer = torch.full(
        (offset + _span(operand.shape, strides) * dtype.itemsize + _GUARD_BYTES,),
        _guard_of(operand),
        dtype=torch.uint8,
        **_memory(operand, device),
    )
    elements = buffer[offset : buffer.numel() - _GUARD_BYTES].view(dtype)
    return elements.as_strided(operand.shape, strides, elements.storage_offset())


def _device_of(tensors: Mapping[str, torch.Tensor]) -> str:
    """Return the device of the tensors that are not on the host; the CPU if all are."""
    return next((str(tensor.device) for tensor in tensors.values() if not tensor.is_cpu), "cpu")


def _memory(operand: Operand, device: str) -> dict[str, Any]:
    """Return where torch allocates an operand: arguments of its functions that make tensors."""
    if operand.place == "device" or device == "cpu":
        return {"device": device}
    return {"device": "cpu", "pin_memory": operand.place == "pinned"}


def _guard_of(operand: Operand) -> int:
    """Return the guard byte of an operand: one that is read has NaN beside it."""
    return 0xA5 if operand.role == "out" else 0xFF


def _guards(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the guard bytes before and after a tensor in its storage."""
    storage = torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(tensor.untyped_storage())
    start = tensor.storage_offset() * tensor.element_size()
    end = start + _span(tensor.shape, tensor.stride()) * tensor.element_size()
    return storage[:start], storage[end:]


def _span(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Return the number of elements from the first to the last in memory."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) if all(shape) else 0
