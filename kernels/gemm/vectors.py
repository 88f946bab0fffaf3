"""Variant `vectors`: few rows or columns, computed by the threads. Its device code is in `shared.vectors`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.gemm.arguments import compiled_in, strides
from tuner.kernels.shared.product_rows import transposed
from tuner.kernels.shared.tiling import by_threads, tile_count
from tuner.kernels.shared.vectors import gemm_vectors
from tuner.kernels.spec import Launch, Problem


def vectors(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    pointers = [tensors.get(name) for name in ("a", "b", "out", "bias")]
    scales = (None, None)
    compiled = by_threads(problem, config, tensors["a"], tensors["b"], *transposed(problem))
    return Launch(
        gemm_vectors,
        grid=(tile_count(problem, config),),
        args=(*pointers, *scales, *problem.sizes, *strides(tensors)),
        kwargs=compiled_in(problem, config) | compiled,
    )
