"""The copy of a column that the host gathers first, into page-locked memory that one copy sends."""

from __future__ import annotations

import ctypes
from functools import lru_cache
from typing import Any

from tuner.kernels.copy_column.driver import copy_column_by_driver


def copy_column_packed(
    stream: int, x: int, out: int, rows: int, width: int, stride_x: int, stride_out: int, buffer: int
) -> None:
    """Gather a column with torch's threads, then queue its copy.

    Args:
        x, out: addresses of the first elements.
        width: bytes of an element.
        stride_x, stride_out: elements from a row to the next.
        buffer: address of contiguous page-locked memory that nothing reads at present.

    Raises:
        RuntimeError: the driver refuses the copy.
    """
    _elements(buffer, rows, width, 1).copy_(_elements(x, rows, width, stride_x))
    copy_column_by_driver(stream, buffer, out, rows, width, 1, stride_out, True)


@lru_cache(maxsize=256)
def _elements(address: int, rows: int, width: int, stride: int) -> Any:
    """Return a tensor of the elements at an address of the host. It owns no memory."""
    import torch

    from tuner.kernels.shared.moved import INTEGERS

    reach = ((rows - 1) * stride + 1) * width
    with torch.inference_mode(False):  # it is kept, and a tensor of that mode cannot be written outside of it
        whole = torch.frombuffer((ctypes.c_byte * reach).from_address(address), dtype=INTEGERS[width])
        return whole.as_strided((rows,), (stride,))
