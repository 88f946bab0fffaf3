"""A config that the estimate of gemm finds much faster than the default's rules do.

The rules of `default` choose well for the sizes that they were made with, and badly for a few others. The estimate errs
by some per cent on each config and knows no sizes. So it overrules them if it expects much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import product

from tuner.kernels.gemm.estimate import estimate
from tuner.kernels.gemm.space import VARIANTS, descriptors_can, valid
from tuner.kernels.shared.roles import ROWS, WIDTHS, Roles, divides, is_narrowest
from tuner.kernels.shared.tiling import rows_walked, stage_bytes
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize, next_power_of_2


@dataclass(frozen=True)
class AlternativesSettings:
    """Which configs are estimated, and when one of them replaces the default."""

    margin: float = 1.12
    """Estimated latency of the default over the alternative's from which that is used."""
    least_rows: int = 17
    """Rows and columns of the product from which the estimate is used."""
    depths: tuple[int, ...] = (64, 128, 256)
    """Elements of a step along K."""
    slices: tuple[int, ...] = (1, 2, 4, 8)
    role_depths: tuple[int, ...] = (64, 128)
    """Elements of a step of warps with roles."""
    role_slices: tuple[int, ...] = (1, 2, 3, 4, 6, 8)


SETTINGS = AlternativesSettings()


def alternative(
    problem: Problem, default: Mapping[str, Value], limits: Limits, settings: AlternativesSettings = SETTINGS
) -> Mapping[str, Value]:
    """Return the config with the least estimate if it is much faster than the default, else the default.

    The estimate was fitted to products on Hopper with aligned rows; the default's rules are good for few rows.
    """
    few = min(problem["M"], problem["N"]) < settings.least_rows
    if few or itemsize(problem.dtype) != 2 or limits.capability[0] != 9 or not descriptors_can(problem, limits):
        return default
    most = estimate(problem, default, limits).us / settings.margin
    costs = [(estimate(problem, config, limits).us, config) for config in _plausible(problem, limits, settings)]
    faster = sorted((cost for cost in costs if cost[0] < most), key=lambda cost: cost[0])
    return next((config for _, config in faster if valid(problem, config, limits)), default)


def _plausible(problem: Problem, limits: Limits, settings: AlternativesSettings) -> Iterator[Mapping[str, Value]]:
    """Yield a config of each variant, tile, number of slices and depth, with the most stages that fit.

    Some are not feasible. To estimate a config takes no longer than to find out.
    """
    M, N, _ = problem.sizes
    yield from _with_roles(problem, limits, settings)
    for variant in ("persistent", "stream_k", "tiles"):
        part = VARIANTS[variant]
        for block_m, block_n in product(part["BLOCK_M"], part["BLOCK_N"]):
            m, n = int(str(block_m)), int(str(block_n))
            if m > max(16, next_power_of_2(M)) or n > max(16, next_power_of_2(N)) or min(m, n) < min(32, M, N):
                continue
            tiles = cdiv(M, m) * cdiv(N, n)
            last = tiles % limits.sm_count if variant == "persistent" else tiles
            cut = [each for each in settings.slices if each == 1 or last * each <= limits.sm_count]
            for slices, depth in product(cut if variant in ("persistent", "tiles") else (1,), settings.depths):
                tile: dict[str, Value] = {
                    "BLOCK_M": m,
                    "BLOCK_N": n,
                    "BLOCK_K": depth,
                    "GROUP_M": rows_walked(problem, m),
                    "VARIANT": variant,
                    "SPLIT_K": slices,
                    "GROUPS": 2,
                    "WIDE": False,
                    "num_warps": 4 if variant == "stream_k" else _warps(m * n),
                }
                if variant == "stream_k":
                    yield from ({**tile, "num_stages": 14, "STORES": stores} for stores in (1, 2, 4))
                else:
                    yield from _filled(problem, tile, limits)


def _with_roles(problem: Problem, limits: Limits, settings: AlternativesSettings) -> Iterator[Mapping[str, Value]]:
    """Yield configs of warps with roles: tiles that no narrower one replaces, whole or in slices that fill one wave."""
    M, N, _ = problem.sizes
    for swapped, rows, groups, slices in product((False, True), ROWS, (1, 2, 3), settings.role_slices):
        left, right = (N, M) if swapped else (M, N)
        if not divides(rows, groups):
            continue
        for width, depth, wide in product(WIDTHS, settings.role_depths, (True, False)):
            tiles = cdiv(left, rows) * cdiv(right, width)
            fills = slices == 1 or limits.sm_count < 2 * tiles * slices <= 2 * limits.sm_count
            tile = Roles(groups, rows // groups, width, depth, itemsize(problem.dtype), 14, wide=wide)
            if not fills or (wide and not tile.can_be_wide) or width > max(16, next_power_of_2(right)):
                continue
            if not is_narrowest(left, right, tile, slices, limits.sm_count):
                continue
            high = cdiv(left, rows)
            walked = 2 if high == 2 else max(each for each in (1, 4, 8) if each <= next_power_of_2(high))
            for group, stores in product({1, walked}, (1, 2, 4) if tiles * slices > limits.sm_count else (1,)):
                yield {
                    "BLOCK_M": width if swapped else rows,
                    "BLOCK_N": rows if swapped else width,
                    "BLOCK_K": depth,
                    "GROUP_M": group,
                    "VARIANT": "swapped" if swapped else "specialized",
                    "SPLIT_K": slices,
                    "STORES": stores,
                    "GROUPS": groups,
                    "WIDE": wide,
                    "num_warps": 4,
                    "num_stages": 14,
                }


def _warps(tile: int) -> int:
    return 8 if tile > 128 * 128 else 4 if tile > 32 * 32 else 2


def _filled(problem: Problem, tile: Mapping[str, Value], limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield the configs of a tile with the most stages that fit, and with one less, which leaves room to store."""
    most = min(6, limits.shared_bytes // stage_bytes(problem, tile))
    for stages, stores in product((most, most - 1), (1, 2)):
        if stages >= 3:
            yield {**tile, "num_stages": stages, "STORES": stores}
