"""Default config of softmax: a rule over sizes and the limits of the card."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.kernels.softmax.space import MOST_COLUMNS, valid
from tuner.kernels.spec import Limits, Problem, Value, next_power_of_2


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """The whole row at once while 32 warps can hold it; longer rows shared, and the longest a few thousand columns at a
    time."""
    M, N = problem.sizes
    row = next_power_of_2(N)
    for part, warps in ((8192, 4), (16384, 16)):  # 602 us and 622 at 4096 x 65536 fp32 (H200, 2026-11-28)
        config: dict[str, Value] = {"BLOCK_N": part, "ROWS": 1, "SHARED": True, "num_warps": warps, "num_stages": 1}
        if row > MOST_COLUMNS and valid(problem, config, limits):
            return config
    block_n = row if row <= MOST_COLUMNS else 4096
    rows = max(1, min(next_power_of_2(M), 1024 // block_n, 32))
    return {
        "BLOCK_N": block_n,
        "ROWS": rows,
        "SHARED": False,
        "num_warps": min(limits.threads_per_block // limits.warp_size, max(1, rows * block_n // 512)),
        "num_stages": 1 if block_n == row else 2,
    }
