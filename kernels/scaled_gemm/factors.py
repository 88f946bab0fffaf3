"""Factors of a scaled product as each variant takes them: rows along K, with their scales."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.kernels.scaled_gemm.space import BLOCK, swapped
from tuner.kernels.spec import Problem


@dataclass(frozen=True)
class Rows:
    """One factor of the product as rows of contiguous elements along K, and their scales.

    `share`: number of rows that share a scale; 0 if the matrix has one scale.
    """

    matrix: Any
    count: int
    stride: int
    block: int
    scales: Any
    scale_strides: tuple[int, int]
    share: int

    def lies(self, K: int, block_k: int) -> tuple[Any, list[int], list[int], list[int]]:
        """Return the arguments of its descriptor: matrix, sizes, strides, and the block of a step."""
        return self.matrix, [self.count, K], [self.stride, 1], [self.block, block_k]


def factors(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> tuple[Rows, Rows]:
    """Return a and b by its columns, left factor first; b is the left one if a has too few rows for wgmma.

    wgmma takes 64 rows of the left factor, and the transpose of out is b's transpose times a's.
    """
    M, N, _ = problem.sizes
    a, b, scale_a, scale_b = (tensors[name] for name in ("a", "b", "scale_a", "scale_b"))
    of_a, of_b, share_a, share_b = (0, 0), (0, 0), 0, 0
    if problem["scales"] == "block":
        of_a, share_a = (scale_a.stride(0), scale_a.stride(1)), 1
        of_b, share_b = (scale_b.stride(1), scale_b.stride(0)), BLOCK
    left = Rows(a, M, a.stride(0), config["BLOCK_M"], scale_a, of_a, share_a)
    right = Rows(b, N, b.stride(1), config["BLOCK_N"], scale_b, of_b, share_b)
    return (right, left) if swapped(config) else (left, right)


def compiled_in(problem: Problem, config: Mapping[str, Any], left: Rows, right: Rows) -> dict[str, Any]:
    """Return what both variants in Triton are compiled with."""
    leave = problem["scales"] == "tensor" and problem["accumulate"] == "fp32"
    return {
        **{name: config[name] for name in ("BLOCK_K", "SPLIT_K", "num_warps", "num_stages")},
        "BLOCK_M": left.block,
        "BLOCK_N": right.block,
        "SHARE_A": left.share,
        "SHARE_B": right.share,
        "IMPRECISE": min(BLOCK, config["BLOCK_K"]) if leave else None,
    }
