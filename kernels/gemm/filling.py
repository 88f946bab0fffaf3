"""Feasible configs of gemm that have a given tile, best first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from tuner.kernels.gemm.space import DEFAULTS, WITH_ROLES, valid
from tuner.kernels.shared.tiling import rows_walked, stage_bytes
from tuner.kernels.spec import Limits, Problem, Value, cdiv

DEPTH_SLACK = 1.2
"""Most elements along K of all steps of one depth, relative to the depth that walks fewest."""


def filled(
    problem: Problem, config: Mapping[str, Any], limits: Limits, most_bytes: int
) -> Iterator[Mapping[str, Value]]:
    """Yield feasible configs with a tile, best first: the variant, the deepest steps and the most stages that fit.

    Args:
        config: the tile, and the knobs that are decided already.
        most_bytes: most bytes of a step.
    """
    group_m = rows_walked(problem, int(config["BLOCK_M"]))
    for variant in ("persistent", "specialized", "tiles") if config.get("SPLIT_K", 1) == 1 else ("persistent", "tiles"):
        for block_k in depths_of(problem["K"]):
            steps = cdiv(problem["K"], block_k * config.get("SPLIT_K", 1))
            for stages, stores in product((14, 6, 5, 4, 3, 2), (1, 2)):
                if variant == "tiles" and stages > max(2, steps):
                    continue  # shared memory without a step, which another program could use
                more = {"BLOCK_K": block_k, "VARIANT": variant, "STORES": stores, "num_stages": stages}
                full = {**DEFAULTS, **more, **config}
                full["GROUP_M"] = 1 if full["VARIANT"] in WITH_ROLES else group_m
                if stage_bytes(problem, full) <= most_bytes and valid(problem, full, limits):
                    yield full


def depths_of(K: int) -> tuple[int, ...]:
    """Return the depths of a step, the deepest first, of which the last one is not mostly beyond the end of K.

    With few steps, what it holds beyond the end is shared memory that bytes in flight could use.
    """
    depths = (256, 128, 64, 32)
    walked = {depth: cdiv(K, depth) * depth for depth in depths}
    return tuple(depth for depth in depths if walked[depth] <= DEPTH_SLACK * min(walked.values()))
