"""Elements that an op only moves: a kernel is given those of an unknown dtype as integers of the same width."""

from __future__ import annotations

from collections.abc import Callable

import torch

from tuner.kernels.calling import short_name
from tuner.kernels.spec import Kernel

INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Integer dtypes by their width in bytes."""


def moved_as(kernel: Kernel) -> Callable[[torch.dtype], torch.dtype]:
    """Return the function from a dtype to the one that the kernel is given: itself if the kernel knows it."""

    def passed_as(dtype: torch.dtype) -> torch.dtype:
        known = kernel.signature.dtypes
        return dtype if short_name(dtype) in known else INTEGERS.get(dtype.itemsize, dtype)

    return passed_as
