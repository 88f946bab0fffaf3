"""The copy of a column by the driver: `cuMemcpy2DAsync` of a matrix that is one element wide."""

from __future__ import annotations

import ctypes
from functools import cache
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
    copy = _Copy(
        _Side(memory=_HOST, host=x, pitch=max(1, stride_x) * width)
        if on_host
        else _Side(memory=_DEVICE, device=x, pitch=max(1, stride_x) * width),
        _Side(memory=_DEVICE, device=out, pitch=max(1, stride_out) * width),
        width,
        rows,
    )
    if stride_x == stride_out == 1:  # one row of a matrix, which is one copy
        copy.width_bytes, copy.height = width * rows, 1
        copy.source.pitch = copy.destination.pitch = width * rows
    driver = _driver()
    error = driver.cuMemcpy2DAsync_v2(ctypes.byref(copy), ctypes.c_void_p(stream))
    if error == _INVALID_CONTEXT:
        _enter_context(driver)
        error = driver.cuMemcpy2DAsync_v2(ctypes.byref(copy), ctypes.c_void_p(stream))
    if error:
        name = ctypes.c_char_p()
        driver.cuGetErrorName(error, ctypes.byref(name))
        raise RuntimeError(f"CUDA error: cuMemcpy2DAsync returns {(name.value or b'').decode()} ({error})")


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
