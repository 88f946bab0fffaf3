"""The copy of a column by the driver: `cuMemcpy2DAsync` of a matrix one element wide, or a plain copy without gaps."""

from __future__ import annotations

import ctypes
from functools import cache, lru_cache
from typing import Any

_HOST, _DEVICE = 1, 2
"""Types of memory: `CU_MEMORYTYPE_HOST` and `CU_MEMORYTYPE_DEVICE`."""
_INVALID_CONTEXT = 201
"""Error of a thread that has not used the card yet."""


class _Side(ctypes.Structure):
    """One side of `CUDA_MEMCPY2D`."""

    _fields_ = (
        ("x_bytes", ctypes.c_size_t),
        ("y", ctypes.c_size_t),
        ("memory", ctypes.c_uint),
        ("host", ctypes.c_void_p),
        ("device", ctypes.c_uint64),
        ("array", ctypes.c_void_p),
        ("pitch", ctypes.c_size_t),
    )


class _Copy(ctypes.Structure):
    """`CUDA_MEMCPY2D` of the driver's API."""

    _fields_ = (
        ("source", _Side),
        ("destination", _Side),
        ("width_bytes", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    )


def copy_column_by_driver(
    stream: int, x: int, out: int, rows: int, width: int, stride_x: int, stride_out: int, on_host: bool
) -> None:
    """Queue the copy of a column.

    Args:
        x, out: addresses of the first elements.
        width: bytes of an element.
        stride_x, stride_out: elements from a row to the next.
        on_host: True if x is in the host's memory.

    Raises:
        RuntimeError: the driver refuses it.
    """
    driver, at = _driver(), ctypes.c_void_p(stream)
    if stride_x == stride_out == 1:
        queue = driver.cuMemcpyHtoDAsync_v2 if on_host else driver.cuMemcpyDtoDAsync_v2
        given: tuple[Any, ...] = (ctypes.c_uint64(out), ctypes.c_uint64(x), ctypes.c_size_t(rows * width), at)
    else:
        queue = driver.cuMemcpy2DAsync_v2
        given = (ctypes.byref(_described(x, out, rows, width, stride_x, stride_out, on_host)), at)
    error = queue(*given)
    if error == _INVALID_CONTEXT:
        _enter_context(driver)
        error = queue(*given)
    if error:
        name = ctypes.c_char_p()
        driver.cuGetErrorName(error, ctypes.byref(name))
        raise RuntimeError(f"CUDA error: a copy by the driver returns {(name.value or b'').decode()} ({error})")


@lru_cache(maxsize=256)
def _described(x: int, out: int, rows: int, width: int, stride_x: int, stride_out: int, on_host: bool) -> _Copy:
    """Return the description of a copy, which recurs: making it takes more time than queueing it."""
    x_pitch, out_pitch = max(1, stride_x) * width, max(1, stride_out) * width
    read = _Side(memory=_HOST, host=x, pitch=x_pitch) if on_host else _Side(memory=_DEVICE, device=x, pitch=x_pitch)
    return _Copy(read, _Side(memory=_DEVICE, device=out, pitch=out_pitch), width, rows)


@cache
def _driver() -> Any:
    """Return the driver's library."""
    return ctypes.CDLL("libcuda.so.1")


def _enter_context(driver: Any) -> None:
    """Make the context of torch's current device that of this thread."""
    import torch

    device, context = ctypes.c_int(), ctypes.c_void_p()
    driver.cuDeviceGet(ctypes.byref(device), torch.cuda.current_device())
    driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
    driver.cuCtxSetCurrent(context)
