"""Variant `vectors`: few rows or columns, computed by the threads. Its device code is in `shared.vectors`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.shared.tiling import by_threads, tile_count
from tuner.kernels.shared.vectors import gemm_vectors
from tuner.kernels.spec import Launch, Problem


def vectors(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    """Launch the kernel that gemm has too: both factors lie along K."""
    a, b, out, scale_a, scale_b = (tensors[name] for name in ("a", "b", "out", "scale_a", "scale_b"))
    strides = [tensor.stride(dim) for tensor in (a, b, out) for dim in (0, 1)]
    return Launch(
        gemm_vectors,
        grid=(tile_count(problem, config),),
        args=(a, b, out, None, scale_a, scale_b, *problem.sizes, *strides),
        kwargs={name: config[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")}
        | {"ACTIVATION": "none"}
        | by_threads(problem, config, a, b, a_is_t=False, b_is_t=True),
    )
