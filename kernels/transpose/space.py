"""Feasible configs of transpose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.spec import Limits, Problem, itemsize, next_power_of_2


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a config is feasible."""
    M, N = problem.sizes
    tile_m, tile_n, pad, vec = (config[name] for name in ("TILE_M", "TILE_N", "PAD", "VEC"))
    threads = config["num_warps"] * limits.warp_size
    # Lanes of a warp across rows of out, times warps. If that is 1, the elements that a thread writes are neighbours in
    # shared memory, and the compiler reads them 16 bytes at a time.
    across = max(1, 32 // (tile_m // vec)) * config["num_warps"]
    aligned = vec if across > 1 else 16 // itemsize(problem.dtype)
    return (
        # A tile larger than the matrix moves no more elements.
        tile_m <= max(16, next_power_of_2(M))
        and tile_n <= max(16, next_power_of_2(N))
        # 16 bytes is the widest access there is.
        and vec * itemsize(problem.dtype) <= 16
        # An access to shared memory is aligned to its width in every row, so the pad is a multiple of it. (A pad of 1
        # with accesses of 4 elements is a misaligned address, which ends the process.)
        and pad % aligned == 0
        # Each thread has an element.
        and vec <= min(tile_m, tile_n)
        and threads * vec <= tile_m * tile_n
        and (tile_m * tile_n // threads) * max(1, itemsize(problem.dtype) // 4) <= limits.registers_per_thread // 2
        and (tile_n + pad) * tile_m * itemsize(problem.dtype) <= limits.shared_bytes
        and threads <= limits.threads_per_block
    )
