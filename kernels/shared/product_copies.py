"""Default config of products with operands that are not aligned to 16 bytes: copied first, if the estimate favours it.

With its operands copied, a product is computed as one of aligned rows. The variant `tiles` needs no copy of the output.
It is faster if the output is large and K is short.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from typing import Any

from tuner.kernels.shared.product_rows import unaligned
from tuner.kernels.shared.tiling import rows_walked
from tuner.kernels.spec import Cost, Limits, Problem, Value


@dataclass(frozen=True)
class CopiesSettings:
    """Settings of the choice between copies and none, from 33 problems on an H200 (2026-11-30)."""

    short_us: float = 15.0
    """Estimated time in us without copies, below which products are short. Most take less than is estimated."""
    short: float = 0.82
    """Most estimated time with copies, relative to that without, for which a short product is copied: each launch
    costs host time."""
    pointers: float = 1.05
    """Factor by which `tiles` must be estimated faster than the aligned default to replace it."""
    tiles: tuple[tuple[int, int, int], ...] = (
        (128, 256, 8), (256, 128, 8), (128, 128, 8), (128, 128, 4), (64, 128, 4), (128, 64, 4), (64, 64, 4),
        (64, 32, 4), (32, 64, 4), (32, 32, 4),
    )  # fmt: skip
    """Rows, columns and warps of a tile of `tiles`."""


SETTINGS = CopiesSettings()


@dataclass(frozen=True)
class Copying:
    """Parts of an op that the choice needs."""

    estimate: Callable[[Problem, Mapping[str, Any], Limits], Cost]
    valid: Callable[[Problem, Mapping[str, Any], Limits], bool]
    others: Mapping[str, Value]
    """Knobs of `tiles` beside its tile, steps and warps."""
    steps: tuple[tuple[int, int], ...]
    """Elements along K of a step, and stages, of `tiles`."""


def of_copies(
    op: Copying,
    problem: Problem,
    as_it_lies: Mapping[str, Value],
    aligned: Callable[[], Mapping[str, Value]],
    limits: Limits,
) -> Mapping[str, Value]:
    """Return the config with copies of the least estimated time, or `as_it_lies`.

    The latter if it is faster, is short and not much slower, or runs without tensor cores, which lose little to
    unaligned rows.

    Args:
        as_it_lies: the default without copies.
        aligned: returns the default of the problem with aligned rows.
    """
    if as_it_lies["VARIANT"] == "vectors":
        return as_it_lies
    us = op.estimate(problem, as_it_lies, limits).us
    choices = [(us * (SETTINGS.short if us < SETTINGS.short_us else 1.0), as_it_lies)]
    for config in all_copied(op, problem, aligned(), limits):
        choices.append((op.estimate(problem, config, limits).us, config))
    for config in factors_copied(op, problem, limits):
        choices.append((SETTINGS.pointers * op.estimate(problem, config, limits).us, config))
    return min(choices, key=itemgetter(0))[1]


def all_copied(
    op: Copying, problem: Problem, aligned: Mapping[str, Value], limits: Limits
) -> Iterator[Mapping[str, Value]]:
    """Yield the default of aligned rows, on copies of all operands that are not aligned, if it is feasible."""
    copied = {**aligned, "ALIGN": True}
    if op.valid(problem, copied, limits):
        yield copied


def factors_copied(op: Copying, problem: Problem, limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield feasible configs of `tiles` on copies of the factors, if the output is not aligned."""
    if "out" not in unaligned(problem):
        return
    for (block_m, block_n, warps), (block_k, stages) in product(SETTINGS.tiles, op.steps):
        config: dict[str, Value] = {
            **op.others,
            "ALIGN": True,
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "BLOCK_K": block_k,
            "GROUP_M": rows_walked(problem, block_m),
            "VARIANT": "tiles",
            "SPLIT_K": 1,
            "num_warps": warps,
            "num_stages": stages,
        }
        if op.valid(problem, config, limits):
            yield config
