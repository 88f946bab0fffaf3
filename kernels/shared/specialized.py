"""Matrix product by specialized warps, for Hopper: one warp fetches, one to three groups of four warps multiply.

In other kernels each warp waits for the loads and issues the products. Here no copy waits for a product to be issued,
and no product waits for an address. Shared memory is a ring of stages, each a step along K of both factors. A stage is
written by the copy engine, read by the tensor cores, and never passes through registers.

A group takes 64 rows of the left factor, which one wgmma multiplies, or 128. Small tiles have small stages, of
which many fit: with few tiles, each multiprocessor alone must keep enough bytes in flight to hide the latency of device
memory, and that takes up to 14 stages. The columns of a tile are powers of two side by side, each with sums of its own,
so that tiles divide the work evenly over the multiprocessors: 80 columns are 64 and 16.

Groups share a tile, or two take tiles in turn (pingpong): one stores its tile while the other multiplies the next. With
short products of several waves, the tensor cores would be idle for a tenth of the time otherwise.

The left factor may be either one. If `SWAPPED`, it is b's transpose, and out's transpose is computed, since wgmma takes
at least 64 rows of the left factor and as few as 8 of the right one. Sums are then transposed on their way through
shared memory. With `WIDE` one wgmma computes all columns (`wide_wgmma`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier

from tuner.kernels.shared import tma
from tuner.kernels.shared.products import corner_of, inside
from tuner.kernels.shared.roles import MOST_PARTS, Roles
from tuner.kernels.shared.roles_parts import after, before, count, later, parts_of, workers_of
from tuner.kernels.shared.roles_stores import finish, is_last, join_all, leave_all
from tuner.kernels.shared.roles_sums import (
    summed_in_registers,
    summed_in_tensor_cores,
    summed_wide,
    summed_wide_in_registers,
    zeros_of,
)
from tuner.kernels.shared.stream_k import piece_of, pieces_of, tell, wait_for_other


@gluon.jit
def right_rows(
    b_tiles, stage, right, PART: gl.constexpr, PARTS: gl.constexpr, STAGES: gl.constexpr, BLOCK_M: gl.constexpr,
    WIDE: gl.constexpr,
):  # fmt: skip
    """Return a stage's rows of the right factor, those of one part.

    If WIDE, the parts of a stage lie one after the other, and all stages behind those of the left factor.
    """
    if WIDE:
        first = STAGES * BLOCK_M + stage * before(PARTS, count(PARTS)) + before(PARTS, PART)
        rows = tma.viewed(b_tiles[0].index(first // 8), right.dtype, right.block_shape, right.layout)
    else:
        rows = b_tiles[PART].index(stage)
    return rows


@gluon.jit
def slice_of(tiles, steps, SPLIT_K: gl.constexpr):
    """Return this program's slice: its tile, its first step along K, and the one after its last.

    Slices are outermost: programs of the same slice are neighbours, and read the same steps of what their tiles share.
    """
    nth = gl.program_id(0) // tiles
    return gl.program_id(0) % tiles, steps * nth // SPLIT_K, steps * (nth + 1) // SPLIT_K


@gluon.jit
def place_of_tile(
    tile, M, N, group_m, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, LEFT_EACH: gl.constexpr, RIGHT_EACH: gl.constexpr
):  # fmt: skip
    """Return the first row and column of a tile.

    The last of several tiles is moved back to a multiple of LEFT_EACH rows and RIGHT_EACH columns, so it crosses the
    edge by fewer than these; with 0 it is not moved.
    """
    m, n = corner_of(tile, M, N, group_m, BLOCK_M, BLOCK_N)
    if LEFT_EACH > 0:
        m = inside(m, M, BLOCK_M, LEFT_EACH)
    if RIGHT_EACH > 0:
        n = inside(n, N, BLOCK_N, RIGHT_EACH)
    return m, n


@gluon.jit
def fetch(
    left, rights, scaling, ring, order,
    GROUPS: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    SPLIT_K: gl.constexpr, STREAM_K: gl.constexpr, LEFT_EACH: gl.constexpr, RIGHT_EACH: gl.constexpr,
    LEFT_ACROSS_K: gl.constexpr, RIGHT_ACROSS_K: gl.constexpr, SCALES: gl.constexpr, PROMOTED: gl.constexpr,
    WIDE: gl.constexpr,
):  # fmt: skip
    """Keep STAGES steps in flight, across tiles; the barriers `full` count arrived bytes.

    With scales of blocks, those of the left factor's rows are part of a stage.
    """
    PARTS: gl.constexpr = parts_of(COLUMNS, PROMOTED)
    OF_BLOCKS: gl.constexpr = SCALES == "block"
    BLOCK_M: gl.constexpr = GROUPS * ROWS
    ELEMENT: gl.constexpr = left.dtype.primitive_bitwidth // 8
    BYTES: gl.constexpr = (BLOCK_M + COLUMNS) * BLOCK_K * ELEMENT + (4 * BLOCK_M if OF_BLOCKS else 0)
    scale_left, _, stride_sak, _, _ = scaling
    a_tiles, b_tiles, scales, free, full, _ = ring
    M, N, K, shared, group_m = order
    steps = gl.cdiv(K, BLOCK_K)
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, COLUMNS)
    stage, phase = 0, 1
    for nth_piece in range(pieces_of(tiles, shared, steps, STREAM_K) if SPLIT_K == 1 else 1):
        tile, first, end = (
            piece_of(nth_piece, shared, steps, STREAM_K) if SPLIT_K == 1 else slice_of(tiles, steps, SPLIT_K)
        )
        m, n = place_of_tile(tile, M, N, group_m, BLOCK_M, COLUMNS, LEFT_EACH, RIGHT_EACH)
        for step in range(first, end):
            arrived = full.index(stage)
            mbarrier.wait(free.index(stage), phase)
            mbarrier.expect(arrived, BYTES)
            k = step * BLOCK_K
            for group in gl.static_range(GROUPS):
                row = m + group * ROWS
                rows = a_tiles.index(stage * GROUPS + group)
                tma.async_copy_global_to_shared(left, [k, row] if LEFT_ACROSS_K else [row, k], arrived, rows)
                if OF_BLOCKS:
                    of_group = scales.index(stage * GROUPS + group)
                    tma.async_copy_global_to_shared(scale_left, [step * stride_sak + row], arrived, of_group)
            for part in gl.static_range(count(PARTS)):
                row = n + before(PARTS, part)
                there = [k, row] if RIGHT_ACROSS_K else [row, k]
                rows = right_rows(b_tiles, stage, rights[part], part, PARTS, STAGES, BLOCK_M, WIDE)
                tma.async_copy_global_to_shared(rights[part], there, arrived, rows)
            stage, phase = after(stage, phase, STAGES)


@gluon.jit
def multiply(
    outs, bias, scaling, workspace, staging, ring, order,
    ROLE: gl.constexpr, TURNS: gl.constexpr, SLOTS: gl.constexpr, SWAPPED: gl.constexpr, ACTIVATION: gl.constexpr,
    GROUPS: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    SPLIT_K: gl.constexpr, STREAM_K: gl.constexpr, LEFT_EACH: gl.constexpr, RIGHT_EACH: gl.constexpr,
    LEFT_ACROSS_K: gl.constexpr, RIGHT_ACROSS_K: gl.constexpr, SCALES: gl.constexpr, PROMOTED: gl.constexpr,
    WIDE: gl.constexpr,
):  # fmt: skip
    """Compute a group's rows of every tile, or of every second one if groups take turns."""
    GROUP: gl.constexpr = ROLE % GROUPS
    TURN: gl.constexpr = ROLE // GROUPS
    PARTS: gl.constexpr = parts_of(COLUMNS, PROMOTED)
    BLOCK_M: gl.constexpr = GROUPS * ROWS
    scale_left, scale_right, _, stride_sbn, stride_sbk = scaling
    partials, arrived = workspace
    a_tiles, b_tiles, scales, free, full, turns = ring
    M, N, K, shared, group_m = order
    DEPTH: gl.constexpr = 256 // a_tiles.dtype.primitive_bitwidth
    steps = gl.cdiv(K, BLOCK_K)
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, COLUMNS)
    stage, phase = 0, 0
    issued, turn = None, 1
    if TURNS > 1:
        issued = turns.index((TURN + 1) % TURNS)
    if TURN > 0:
        stage, phase = later(stage, phase, TURN * steps, STAGES)
        turn = 0
    by = None
    if SCALES == "tensor":
        by = gl.load(scale_left) * gl.load(scale_right)
    for nth_piece in range(TURN, pieces_of(tiles, shared, steps, STREAM_K) if SPLIT_K == 1 else 1, TURNS):
        tile, first, end = (
            piece_of(nth_piece, shared, steps, STREAM_K) if SPLIT_K == 1 else slice_of(tiles, steps, SPLIT_K)
        )
        m, n = place_of_tile(tile, M, N, group_m, BLOCK_M, COLUMNS, LEFT_EACH, RIGHT_EACH)
        m += GROUP * ROWS
        if TURNS > 1:
            # A parity distinguishes only consecutive passes over the ring, so the products before come first.
            mbarrier.wait(turns.index(TURN), turn)
            turn ^= 1
        if PROMOTED and WIDE:
            sums, stage, phase = summed_wide_in_registers(
                a_tiles, free, full, stage, phase, end - first, GROUP, GROUPS, ROWS, PARTS, STAGES, DEPTH
            )
        elif PROMOTED:
            sums, stage, phase = summed_in_registers(
                a_tiles, b_tiles, scales, scale_right + n // 128 * stride_sbn, stride_sbk, free, full,
                stage, phase, first, end, GROUP, GROUPS, ROWS, PARTS, STAGES, DEPTH, SCALES == "block")  # fmt: skip
        elif WIDE:
            sums, stage, phase = summed_wide(
                a_tiles, free, full, issued, stage, phase, end - first,
                GROUP, GROUPS, ROWS, PARTS, STAGES, DEPTH, LEFT_ACROSS_K)  # fmt: skip
        else:
            sums, stage, phase = summed_in_tensor_cores(
                a_tiles, b_tiles, free, full, issued, stage, phase, end - first,
                GROUP, GROUPS, ROWS, PARTS, STAGES, DEPTH, LEFT_ACROSS_K, RIGHT_ACROSS_K)  # fmt: skip

        if SPLIT_K > 1:
            leave_all(sums, partials, gl.program_id(0), GROUP, GROUPS, PARTS)
            if is_last(arrived, tile, GROUP, GROUPS, SPLIT_K):
                # In the order of the slices, not of their arrival, so that every run gives the same bits.
                total = join_all(zeros_of(PARTS, ROWS, DEPTH), partials, tile, GROUP, GROUPS, PARTS)
                for slot in gl.static_range(1, SPLIT_K):
                    total = join_all(total, partials, tile + slot * tiles, GROUP, GROUPS, PARTS)
                finish(total, by, outs, bias, staging, m, n, M, N,
                       ROLE, GROUPS * TURNS, PARTS, SLOTS, SWAPPED, ACTIVATION)  # fmt: skip
        else:
            if STREAM_K:
                if first > 0:  # the program before this one has the steps up to `first`
                    wait_for_other(arrived, GROUP, GROUPS)
                    sums = join_all(sums, partials, gl.program_id(0) - 1, GROUP, GROUPS, PARTS)
            if end == steps:
                finish(sums, by, outs, bias, staging, m, n, M, N,
                       ROLE, GROUPS * TURNS, PARTS, SLOTS, SWAPPED, ACTIVATION)  # fmt: skip
            elif STREAM_K:
                leave_all(sums, partials, gl.program_id(0), GROUP, GROUPS, PARTS)
                tell(arrived, GROUP, GROUPS)
            if TURNS > 1:
                stage, phase = later(stage, phase, (TURNS - 1) * steps, STAGES)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["shared", "group_m"])
def gemm_specialized(
    left, right, right_2, right_3, out, out_2, out_3, bias, scale_left, scale_right, partials, arrived, M, N, K,
    stride_sak, stride_sbn, stride_sbk, shared, group_m,
    GROUPS: gl.constexpr, TURNS: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr, BLOCK_K: gl.constexpr,
    STAGES: gl.constexpr, SLOTS: gl.constexpr, SPLIT_K: gl.constexpr, STREAM_K: gl.constexpr, LEFT_EACH: gl.constexpr,
    RIGHT_EACH: gl.constexpr, SWAPPED: gl.constexpr, LEFT_ACROSS_K: gl.constexpr, RIGHT_ACROSS_K: gl.constexpr,
    ACTIVATION: gl.constexpr, SCALES: gl.constexpr, PROMOTED: gl.constexpr, WIDE: gl.constexpr,
):  # fmt: skip
    """Start the roles of a program.

    Descriptors describe the left factor's rows of a group, and of the right factor and out each of the tile's parts.
    M and N are the rows of the left and of the right factor. The last of several tiles is moved back to a multiple
    of LEFT_EACH rows and RIGHT_EACH columns, so it crosses the edge by fewer than these; with 0 it is not moved.

    A program computes its tiles one after the other. GROUPS groups of warps share a tile, and there are TURNS times as
    many, which take tiles in turn: while some store a tile, others multiply the next (pingpong). Sums are staged for
    the copy engine in SLOTS pieces of shared memory. With 0 a program has one tile, or one slice of it, and its own
    rows of the ring are free by then.

    With STREAM_K the first `shared` tiles, more than there are programs, are cut along K into an even share for each
    program, so that no last wave keeps few multiprocessors busy (Osama et al., "Stream-K", 2023). A program may wait
    for the one before it. So all programs run at once, one for each multiprocessor; or, if others use the card, they
    start in the order of their numbers, as on each card so far, though CUDA does not guarantee it. With SPLIT_K all
    tiles are cut into as many slices, and no slice waits: the last to arrive adds them up.
    """
    PARTS: gl.constexpr = parts_of(COLUMNS, PROMOTED)
    rights, outs = (right, right_2, right_3), (out, out_2, out_3)
    if WIDE:
        rows: gl.constexpr = STAGES * (GROUPS * ROWS + COLUMNS)
        both = gl.allocate_shared_memory(left.dtype, [rows // 8, 8, BLOCK_K], left.layout)
        a_tiles = tma.viewed(both, left.dtype, [STAGES * GROUPS] + left.block_shape, left.layout)
        b_tiles = (both,)
    else:
        a_tiles = gl.allocate_shared_memory(left.dtype, [STAGES * GROUPS] + left.block_shape, left.layout)
        b_tiles = ()
    for part in gl.static_range(0 if WIDE else count(PARTS)):
        of_part = rights[part]
        b_tiles = b_tiles + (gl.allocate_shared_memory(of_part.dtype, [STAGES] + of_part.block_shape, of_part.layout),)
    scales = a_tiles
    if SCALES == "block":
        scales = gl.allocate_shared_memory(gl.float32, [STAGES * GROUPS] + scale_left.block_shape, scale_left.layout)
    staging = a_tiles
    if SLOTS > 0:
        staging = gl.allocate_shared_memory(out.dtype, [SLOTS * GROUPS * TURNS] + out.block_shape, out.layout)
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(free.index(stage), count=GROUPS)  # all groups have read it
        mbarrier.init(full.index(stage), count=1)
    turns = full
    if TURNS > 1:
        turns = gl.allocate_shared_memory(gl.int64, [TURNS, 1], mbarrier.MBarrierLayout())
        for turn in gl.static_range(TURNS):
            mbarrier.init(turns.index(turn), count=GROUPS)  # the groups before have issued all products of their tile
    fence_async_shared()
    ring = (a_tiles, b_tiles, scales, free, full, turns)
    scaling = (scale_left, scale_right, stride_sak, stride_sbn, stride_sbk)
    workspace = (partials, arrived)
    order = (M, N, K, shared, group_m)
    gl.warp_specialize([
        (multiply, (outs, bias, scaling, workspace, staging, ring, order, role, TURNS,
                    SLOTS if SLOTS > 0 else STAGES, SWAPPED, ACTIVATION, GROUPS, ROWS, COLUMNS, BLOCK_K, STAGES,
                    SPLIT_K, STREAM_K, LEFT_EACH, RIGHT_EACH, LEFT_ACROSS_K, RIGHT_ACROSS_K, SCALES, PROMOTED, WIDE))
        if role < GROUPS * TURNS else
        (fetch, (left, rights, scaling, ring, order, GROUPS, ROWS, COLUMNS, BLOCK_K, STAGES, SPLIT_K, STREAM_K,
                 LEFT_EACH, RIGHT_EACH, LEFT_ACROSS_K, RIGHT_ACROSS_K, SCALES, PROMOTED, WIDE))
        for role in (0, 1, 2, 3)[: GROUPS * TURNS + 1]
    ], workers_of(GROUPS * TURNS)[0], workers_of(GROUPS * TURNS)[1])  # fmt: skip


def of_parts(tile: Roles, one: Callable[[int], Any]) -> list[Any]:
    """Return an argument for each part of a tile's columns, and None for those that it does not have."""
    found = [one(part) for part in tile.parts]
    return found + [None] * (MOST_PARTS - len(found))
