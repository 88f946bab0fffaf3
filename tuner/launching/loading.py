"""Kernels that are loaded onto the card while a CUDA graph is captured."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

_RELAXED = 2
"""CU_STREAM_CAPTURE_MODE_RELAXED."""


@contextmanager
def loading_allowed() -> Iterator[None]:
    """Let this thread load kernels while its current stream captures a CUDA graph.

    By default a capture forbids all calls that may wait for the device, so that the captured code makes none by
    mistake. Loading a binary may be one. The launch itself is captured as before. torch does the same where it
    allocates memory.
    """
    exchange = _exchange() if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing() else None
    if exchange is None:
        yield
        return
    mode = ctypes.c_int(_RELAXED)
    exchange(ctypes.byref(mode))  # `mode` is now that of before
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


@cache
def _exchange() -> Callable[[Any], int] | None:
    """Return the driver's function that exchanges the mode of this thread's captures, or None without a driver."""
    try:
        return ctypes.CDLL("libcuda.so.1").cuThreadExchangeStreamCaptureMode
    except (OSError, AttributeError):
        return None
