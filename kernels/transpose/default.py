"""Default config of transpose: a rule over sizes and the width of an element."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.kernels.spec import Limits, Problem, Value, itemsize, next_power_of_2


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return a pad of one access, and a tile with rows of 128 bytes or more, larger for smaller elements."""
    M, N = problem.sizes
    tile_m, tile_n, vec, warps = {1: (64, 128, 4, 4), 2: (128, 128, 2, 8)}.get(
        itemsize(problem.dtype), (64, 64, 8 // itemsize(problem.dtype), 4)
    )
    return {
        "TILE_M": min(tile_m, max(16, next_power_of_2(M))),
        "TILE_N": min(tile_n, max(16, next_power_of_2(N))),
        "PAD": vec,
        "VEC": vec,
        "num_warps": 2 if min(M, N) <= 32 else warps,
        "num_stages": 1,
    }
