"""Variants `specialized`, `swapped` and `stream_k`: warps with roles. Their device code is in `shared.specialized`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tuner.kernels.gemm.arguments import described
from tuner.kernels.gemm.space import shared_tiles, staging_slots, tile_of_roles
from tuner.kernels.shared.product_rows import transposed
from tuner.kernels.shared.roles import walked_together
from tuner.kernels.shared.specialized import gemm_specialized, of_parts
from tuner.kernels.shared.tiling import ALIGNED_BYTES, tile_count
from tuner.kernels.shared.wide_wgmma import is_kept
from tuner.kernels.spec import Launch, Problem, itemsize


def specialized(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    M, N, K = problem.sizes
    a_is_t, b_is_t = transposed(problem)
    swapped, stream_k, slices = config["VARIANT"] == "swapped", config["VARIANT"] == "stream_k", config["SPLIT_K"]
    tile, tiles = tile_of_roles(problem, config), tile_count(problem, config)
    programs = tensors["arrived"].shape[0] // (tile.groups if stream_k else 1) if slices == 1 else tiles * slices
    slots = staging_slots(problem, config, programs)

    def of_a(rows: int) -> Any:
        return described(tensors["a"], (M, K), (rows, tile.block_k), is_t=a_is_t, gluon=problem.dtype)

    def of_b(columns: int) -> Any:
        return described(tensors["b"], (K, N), (tile.block_k, columns), is_t=b_is_t, gluon=problem.dtype)

    factors: list[tuple[Callable[[int], Any], bool, int]] = [(of_a, a_is_t, M), (of_b, not b_is_t, N)]
    (left, left_across_k, left_rows), (right, right_across_k, right_rows) = factors[::-1] if swapped else factors

    def piece(part: int) -> Any:
        block = (tile.chunk(part), tile.rows) if swapped else (tile.rows, tile.chunk(part))
        return described(tensors["out"], (M, N), block, gluon=problem.dtype)

    args = (
        left(tile.rows),
        *of_parts(tile, right),
        *of_parts(tile, piece),
        tensors.get("bias"),
        *(None, None),  # scales
        *(tensors.get(name) for name in ("partials", "arrived")),
        *(left_rows, right_rows, K),
        *(0, 0, 0),  # strides of scales
        shared_tiles(problem, config, programs),
        walked_together(left_rows, right_rows, tile),
    )
    return Launch(
        gemm_specialized,
        grid=(programs if stream_k else min(programs, tiles * slices),),
        args=args,
        kwargs={
            **tile.compiled_in(slots),
            "WIDE": tile.wide and is_kept(),
            "SPLIT_K": slices,
            "STREAM_K": stream_k,
            **moved_back(problem, config["VARIANT"], left_across_k, right_across_k),
            "SWAPPED": swapped,
            "LEFT_ACROSS_K": left_across_k,
            "RIGHT_ACROSS_K": right_across_k,
            "ACTIVATION": problem["activation"],
            "SCALES": "none",
            "PROMOTED": False,
            "num_warps": config["num_warps"],
        },
    )


def moved_back(problem: Problem, variant: str, left_across_k: bool, right_across_k: bool) -> dict[str, int]:
    """Return LEFT_EACH and RIGHT_EACH: multiples of rows and columns to which the last tile is moved back.

    A box of the copy engine must begin at a multiple of 16 bytes of a contiguous row (otherwise: illegal instruction;
    docs/studies/gemm.md): columns of out, and of factors that lie across K. With stream-K a program's share decides how
    a row's sum is cut, so neighbours' sums differ, and no tile is moved.
    """
    if variant == "stream_k":
        return {"LEFT_EACH": 0, "RIGHT_EACH": 0}
    each, swapped = ALIGNED_BYTES // itemsize(problem.dtype), variant == "swapped"
    return {
        "LEFT_EACH": each if swapped or left_across_k else 1,
        "RIGHT_EACH": each if right_across_k or not swapped else 1,
    }
