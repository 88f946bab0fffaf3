"""Arguments that several variants of gemm are launched with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.kernels.spec import Problem


def compiled_in(problem: Problem, config: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Return the knobs that each variant is compiled with, and those of these names."""
    always = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    return {name: config[name] for name in (*always, *names)} | {"ACTIVATION": problem["activation"]}


def strides(tensors: Mapping[str, Any]) -> list[int]:
    return [tensors[name].stride(dim) for name in ("a", "b", "out") for dim in (0, 1)]


def described(matrix: Any, shape: tuple[int, int], block: tuple[int, int], *, is_t: bool = False) -> TensorDescriptor:
    """Return a descriptor of blocks of a matrix, over memory as it lies.

    Args:
        shape: rows and columns of the matrix, whose tensor may have padding beyond them.
        block: rows and columns of a block.
        is_t: whether its columns are contiguous, not its rows.
    """
    order = slice(None, None, -1 if is_t else 1)
    return TensorDescriptor(matrix, list(shape)[order], [matrix.stride(0), matrix.stride(1)][order], list(block)[order])
