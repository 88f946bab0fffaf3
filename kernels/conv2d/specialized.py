"""Variant `specialized`: warps with roles, for Hopper. One warp loads boxes, two groups of four multiply.

Each group has half of a patch. No copy waits for a product to be issued, and no product waits for an address. Gluon
leaves layouts, barriers and the order of instructions to the kernel. The tensor cores read boxes of any shape, and
tiles may have 160, 192 or 320 filters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from tuner.kernels.conv2d.arguments import compiled_in, sliced_count
from tuner.kernels.conv2d.layer import layer, taps_steps
from tuner.kernels.conv2d.patches import View, outputs
from tuner.kernels.conv2d.space import in_powers_of_2, patch_of, store_count
from tuner.kernels.shared import tma
from tuner.kernels.shared.products import corner_of, finished
from tuner.kernels.shared.roles_launch import described
from tuner.kernels.shared.roles_stores import is_last
from tuner.kernels.shared.stream_k import joined, leave, place_of, sums_layout
from tuner.kernels.spec import Launch, Problem


@gluon.jit
def slice_of(nth, sizes, group_m, PATCH: gl.constexpr, BLOCK_N: gl.constexpr, SPLIT_K: gl.constexpr):
    """Return the nth slice of this program: its number, the corner b, p, q, n of its tile, its first and last steps.

    Args:
        sizes: images, rows and columns of outputs, filters, and steps along K.
        PATCH: images, rows and columns of a tile.
    """
    images, P, Q, N, steps = sizes
    PIXELS: gl.constexpr = PATCH[0] * PATCH[1] * PATCH[2]
    patches_p = gl.cdiv(P, PATCH[1])
    patches_q = gl.cdiv(Q, PATCH[2])
    patches = gl.cdiv(images, PATCH[0]) * patches_p * patches_q
    slot = gl.program_id(0) + nth * gl.num_programs(0)
    m, n = corner_of(slot // SPLIT_K, patches * PIXELS, N, group_m, PIXELS, BLOCK_N)
    patch = m // PIXELS
    q = patch % patches_q * PATCH[2]
    p = patch // patches_q % patches_p * PATCH[1]
    b = patch // patches_q // patches_p * PATCH[0]
    first = steps * (slot % SPLIT_K) // SPLIT_K
    return slot, b, p, q, n, first, steps * (slot % SPLIT_K + 1) // SPLIT_K


@gluon.jit
def slice_count(sizes, PATCH: gl.constexpr, BLOCK_N: gl.constexpr, SPLIT_K: gl.constexpr):
    """Return the number of slices of this program."""
    images, P, Q, N, _ = sizes
    patches = gl.cdiv(images, PATCH[0]) * gl.cdiv(P, PATCH[1]) * gl.cdiv(Q, PATCH[2])
    return gl.cdiv(patches * gl.cdiv(N, BLOCK_N) * SPLIT_K - gl.program_id(0), gl.num_programs(0))


@gluon.jit
def fetch_phase(x, x_longer, is_longer, corner, arrived, tile):
    """Load a box of the phases that are longer along columns, or of the others; None if there are no longer ones."""
    if x_longer is None:
        tma.async_copy_global_to_shared(x, corner, arrived, tile)
    else:
        if is_longer:
            tma.async_copy_global_to_shared(x_longer, corner, arrived, tile)
        else:
            tma.async_copy_global_to_shared(x, corner, arrived, tile)


@gluon.jit
def fetch(
    x, x_longer, weight, weight_rest, x_tiles, w_tiles, w_rest_tiles, free, full, sizes, C, group_m,
    S: gl.constexpr, PADDING: gl.constexpr, DILATION: gl.constexpr, PHASES: gl.constexpr, LONGER: gl.constexpr,
    PATCH: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, SPLIT_K: gl.constexpr, STAGES: gl.constexpr,
):  # fmt: skip
    """Keep STAGES steps of boxes and filters in flight, across tiles; the barriers `full` count arrived bytes.

    The box of a step is the patch, shifted by the place of a pixel in its window. Coordinates may be negative: the copy
    engine writes zeros for what is outside of the image.

    Args:
        x_longer: x for the phases that are longer along rows, columns and both; each None if there are none.
    """
    WIDE: gl.constexpr = w_tiles.shape[1]
    PIXELS: gl.constexpr = PATCH[0] * PATCH[1] * PATCH[2]
    blocks = gl.cdiv(C, BLOCK_K)
    step = 0
    for nth in range(slice_count(sizes, PATCH, BLOCK_N, SPLIT_K)):
        _, b, p, q, n, first, end = slice_of(nth, sizes, group_m, PATCH, BLOCK_N, SPLIT_K)
        for k in range(first, end):
            tap = k // blocks
            c = k % blocks * BLOCK_K
            h = tap // S * DILATION[0] - PADDING[0]
            w = tap % S * DILATION[1] - PADDING[1]
            stage = step % STAGES
            arrived = full.index(stage)
            mbarrier.wait(free.index(stage), step // STAGES % 2 ^ 1)
            mbarrier.expect(arrived, (PIXELS + BLOCK_N) * BLOCK_K * (x.dtype.primitive_bitwidth // 8))
            if PHASES[0] * PHASES[1] == 1:
                tma.async_copy_global_to_shared(x, [b, p + h, q + w, c], arrived, x_tiles.index(stage))
            else:  # rounded down, for negative numbers too
                high = (h + PADDING[0] * PHASES[0]) // PHASES[0] - PADDING[0]
                wide = (w + PADDING[1] * PHASES[1]) // PHASES[1] - PADDING[1]
                row = h - high * PHASES[0]
                column = w - wide * PHASES[1]
                corner = [b, p + high, row, q + wide, column * C + c]
                in_longer = column < LONGER[1]
                if LONGER[0] > 0:
                    if row < LONGER[0]:
                        fetch_phase(x_longer[0], x_longer[2], in_longer, corner, arrived, x_tiles.index(stage))
                    else:
                        fetch_phase(x, x_longer[1], in_longer, corner, arrived, x_tiles.index(stage))
                else:
                    fetch_phase(x, x_longer[1], in_longer, corner, arrived, x_tiles.index(stage))
            tma.async_copy_global_to_shared(weight, [n, tap, c], arrived, w_tiles.index(stage))
            if WIDE < BLOCK_N:
                tma.async_copy_global_to_shared(weight_rest, [n + WIDE, tap, c], arrived, w_rest_tiles.index(stage))
            step += 1


@gluon.jit
def put(sums, out, staging, b, p, q, n, STORES: gl.constexpr):
    """Store sums through `staging`, at once or in halves; the copy engine may still be writing on return."""
    if STORES == 1:
        tma.store_wait(0)
        staging.reshape(sums.shape).store(sums.to(out.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(out, [b, p, q, n], staging)
    else:
        WIDTH: gl.constexpr = sums.shape[1] // 2
        left, right = gl.split(gl.permute(gl.reshape(sums, (sums.shape[0], 2, WIDTH)), (0, 2, 1)))
        put(left, out, staging, b, p, q, n, 1)
        put(right, out, staging, b, p, q, n + WIDTH, 1)


@gluon.jit
def all_slices(like, partials, slot, column, GROUP: gl.constexpr, BLOCK_N: gl.constexpr, SPLIT_K: gl.constexpr):
    """Return the sums of all slices of a tile, added in their order, so that every run gives the same bits."""
    first = slot // SPLIT_K * SPLIT_K
    sums = gl.load(partials + place_of(like, first, column, BLOCK_N, GROUP, 2), cache_modifier=".cg")
    for nth in range(1, SPLIT_K):
        sums = joined(sums, partials, first + nth, column, BLOCK_N, GROUP, 2)
    return sums


@gluon.jit
def multiply(
    x_tiles, w_tiles, w_rest_tiles, staging, staging_rest, out, out_rest, bias, partials, arrived, free, full,
    sizes, group_m,
    GROUP: gl.constexpr, PATCH: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, SPLIT_K: gl.constexpr,
    STAGES: gl.constexpr, STORES: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Compute the first or second half of each patch; one product runs while the next one is issued.

    The group that arrives last with a slice of its half adds up the slices.
    """
    PIXELS: gl.constexpr = PATCH[0] * PATCH[1] * PATCH[2]
    ROWS: gl.constexpr = PIXELS // 2
    WIDE: gl.constexpr = w_tiles.shape[1]
    REST: gl.constexpr = BLOCK_N - WIDE
    N = sizes[3]
    step = 0
    for nth in range(slice_count(sizes, PATCH, BLOCK_N, SPLIT_K)):
        slot, b, p, q, n, first, end = slice_of(nth, sizes, group_m, PATCH, BLOCK_N, SPLIT_K)
        if PATCH[0] > 1:
            b += GROUP * (PATCH[0] // 2)
        elif PATCH[1] > 1:
            p += GROUP * (PATCH[1] // 2)
        else:
            q += GROUP * (PATCH[2] // 2)
        acc = gl.zeros((ROWS, WIDE), gl.float32, sums_layout(WIDE, 16))
        if REST > 0:
            acc_rest = gl.zeros((ROWS, REST), gl.float32, sums_layout(REST, 16))
        for k in range(first, end):
            stage = step % STAGES
            mbarrier.wait(full.index(stage), step // STAGES % 2)
            pixels = x_tiles.index(stage).reshape((PIXELS, BLOCK_K)).slice(GROUP * ROWS, ROWS, 0)
            filters = w_tiles.index(stage).reshape((WIDE, BLOCK_K)).permute((1, 0))
            acc = warpgroup_mma(pixels, filters, acc, use_acc=k > first, is_async=True)
            if REST > 0:
                filters = w_rest_tiles.index(stage).reshape((REST, BLOCK_K)).permute((1, 0))
                acc_rest = warpgroup_mma(pixels, filters, acc_rest, use_acc=k > first, is_async=True)
                acc, acc_rest = warpgroup_mma_wait(2, deps=[acc, acc_rest])
            else:
                acc = warpgroup_mma_wait(1, deps=[acc])
            # All products but the newest are complete, so the step before is no longer read.
            mbarrier.arrive(free.index((step + STAGES - 1) % STAGES), pred=k > first)
            step += 1
        if REST > 0:
            acc, acc_rest = warpgroup_mma_wait(0, deps=[acc, acc_rest])
        else:
            acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(free.index((step + STAGES - 1) % STAGES))

        done = True
        if SPLIT_K > 1:
            leave(acc, partials, slot, 0, BLOCK_N, GROUP, 2)
            if REST > 0:
                leave(acc_rest, partials, slot, WIDE, BLOCK_N, GROUP, 2)
            done = is_last(arrived, slot // SPLIT_K, GROUP, 2, SPLIT_K)
            if done:
                acc = all_slices(acc, partials, slot, 0, GROUP, BLOCK_N, SPLIT_K)
                if REST > 0:
                    acc_rest = all_slices(acc_rest, partials, slot, WIDE, GROUP, BLOCK_N, SPLIT_K)
        if done:
            column = n + gl.arange(0, WIDE, gl.SliceLayout(0, acc.type.layout))
            put(finished(acc, bias, column, N, ACTIVATION, out.dtype), out, staging, b, p, q, n, STORES)
            if REST > 0:
                column = n + WIDE + gl.arange(0, REST, gl.SliceLayout(0, acc_rest.type.layout))
                rest = finished(acc_rest, bias, column, N, ACTIVATION, out.dtype)
                put(rest, out_rest, staging_rest, b, p, q, n + WIDE, 1)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["group_m"])
def conv2d_specialized(
    x, x_rows, x_columns, x_both, weight, weight_rest, out, out_rest, bias, partials, arrived,
    images, P, Q, N, steps, C, group_m,
    R: gl.constexpr, S: gl.constexpr, PADDING_H: gl.constexpr, PADDING_W: gl.constexpr,
    DILATION_H: gl.constexpr, DILATION_W: gl.constexpr, PHASES_H: gl.constexpr, PHASES_W: gl.constexpr,
    LONGER_H: gl.constexpr, LONGER_W: gl.constexpr,
    PATCH_P: gl.constexpr, PATCH_Q: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, SPLIT_K: gl.constexpr,
    STAGES: gl.constexpr, STORES: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Start the roles of a program. 320 filters are 256 and a rest of 64, each with its own descriptors."""
    PATCH: gl.constexpr = (BLOCK_M // (PATCH_P * PATCH_Q), PATCH_P, PATCH_Q)
    x_tiles = gl.allocate_shared_memory(x.dtype, [STAGES] + x.block_shape, x.layout)
    w_tiles = gl.allocate_shared_memory(x.dtype, [STAGES] + weight.block_shape, weight.layout)
    first = gl.allocate_shared_memory(out.dtype, out.block_shape, out.layout)
    second = gl.allocate_shared_memory(out.dtype, out.block_shape, out.layout)
    w_rest_tiles, first_rest, second_rest = w_tiles, first, second
    if weight_rest is not None:
        w_rest_tiles = gl.allocate_shared_memory(x.dtype, [STAGES] + weight_rest.block_shape, weight_rest.layout)
        first_rest = gl.allocate_shared_memory(out.dtype, out_rest.block_shape, out_rest.layout)
        second_rest = gl.allocate_shared_memory(out.dtype, out_rest.block_shape, out_rest.layout)
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(free.index(stage), count=2)  # both groups have read it
        mbarrier.init(full.index(stage), count=1)
    fence_async_shared()
    sizes = (images, P, Q, N, steps)
    gl.warp_specialize(
        [
            (multiply, (x_tiles, w_tiles, w_rest_tiles, first, first_rest, out, out_rest, bias, partials, arrived,
                        free, full, sizes, group_m, 0, PATCH, BLOCK_N, BLOCK_K, SPLIT_K, STAGES, STORES, ACTIVATION)),
            (multiply, (x_tiles, w_tiles, w_rest_tiles, second, second_rest, out, out_rest, bias, partials, arrived,
                        free, full, sizes, group_m, 1, PATCH, BLOCK_N, BLOCK_K, SPLIT_K, STAGES, STORES, ACTIVATION)),
            (fetch, (x, (x_rows, x_columns, x_both), weight, weight_rest, x_tiles, w_tiles, w_rest_tiles, free, full,
                     sizes, C, group_m, S, (PADDING_H, PADDING_W), (DILATION_H, DILATION_W), (PHASES_H, PHASES_W),
                     (LONGER_H, LONGER_W), PATCH, BLOCK_N, BLOCK_K, SPLIT_K, STAGES)),
        ],
        [4, 1],
        [224, 24],  # registers of a thread; the first group gets the rest of 65,536, 256 for each thread
    )  # fmt: skip


def specialized(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any], seen: View) -> Launch:
    found, patch, grid = layer(problem), patch_of(problem, config), outputs(problem)
    block_k, N, C = config["BLOCK_K"], found.filters, found.channels
    wide, rest = in_powers_of_2(config["BLOCK_N"])
    stores = store_count(config)
    box = (*patch, block_k) if seen.phases == (1, 1) else (*patch[:2], 1, patch.columns, block_k)
    half = patch.halved()

    def pixels(shape: tuple[int, ...] | None) -> Any:
        return described(tensors["x"], shape, seen.strides, box, problem.dtype) if shape else None

    def filters(count: int) -> Any:
        strides = (found.depth, C, 1)
        return described(tensors["weight"], (N, found.taps, C), strides, (count, 1, block_k), problem.dtype)

    def written(count: int) -> Any:
        strides = (grid.rows * grid.columns * N, grid.columns * N, N, 1)
        return described(tensors["out"], (*grid, N), strides, (*half, count), problem.dtype)

    slices, compiled = sliced_count(problem, config), compiled_in(problem, config)
    programs = slices if config["SPLIT_K"] > 1 else min(slices, tensors["arrived"].shape[0])
    del compiled["PRECISION"]
    return Launch(
        conv2d_specialized,
        grid=(programs,),
        args=(
            pixels(seen.shape),
            *(pixels(seen.longer_shape(*along)) for along in ((True, False), (False, True), (True, True))),
            filters(wide),
            filters(rest) if rest else None,
            written(wide // stores),
            written(rest) if rest else None,
            *(tensors.get(name) for name in ("bias", "partials", "arrived")),
            *grid,
            N,
            taps_steps(problem, block_k),
            C,
            config["GROUP_M"],
        ),
        kwargs=compiled
        | {"PHASES_H": seen.phases[0], "PHASES_W": seen.phases[1], "PATCH_P": patch.rows, "PATCH_Q": patch.columns}
        | {"LONGER_H": seen.longer[0], "LONGER_W": seen.longer[1]}
        | {"STAGES": config["num_stages"], "STORES": stores},
    )
