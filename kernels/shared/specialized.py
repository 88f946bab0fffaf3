"""Matrix product by warps with roles, for Hopper: one warp fetches, one to three groups of four warps multiply.

In other kernels each warp waits for the loads and issues the products. Here no copy waits for a product to be issued,
and no product waits for an address. Shared memory is a ring of stages, each a step along K of both factors. A stage is
written by the copy engine, read by the tensor cores, and never passes through registers.

Groups take 64 rows of the left factor (or 128), which is what one wgmma multiplies. Small tiles have small stages, of
which many fit: with few tiles, each multiprocessor alone must keep enough bytes in flight to hide the latency of device
memory, and that takes up to 14 stages. The columns of a tile are powers of two side by side, each with sums of its own,
so that tiles divide the work evenly over the multiprocessors: 80 columns are 64 and 16.

The left factor may be either one. If `SWAPPED`, it is b's transpose, and out's transpose is computed, since wgmma takes
at least 64 rows of the left factor and as few as 8 of the right one. Sums are then transposed on their way through
shared memory, which costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from tuner.kernels.shared import roles, tma, wide_wgmma
from tuner.kernels.shared.products import corner_of, finished, inside
from tuner.kernels.shared.stream_k import (
    joined,
    leave,
    piece_of,
    pieces_of,
    sums_layout,
    tell,
    wait_for_other,
)

parts_of = gluon.constexpr_function(roles.parts)
workers_of = gluon.constexpr_function(roles.workers)


@gluon.constexpr_function
def before(parts, nth):
    """Return the columns before a part."""
    return sum(parts[:nth])


@gluon.constexpr_function
def count(parts):
    return len(parts)


@gluon.constexpr_function
def width(parts, nth):
    return parts[nth]


@gluon.constexpr_function
def chunks_before(parts, nth, most):
    """Return the number of pieces, of up to `most` columns, in which the parts before one are stored."""
    return sum(-(-part // most) for part in parts[:nth])


@gluon.jit
def after(stage, phase, STAGES: gl.constexpr):
    """Return the stage after this one, and the parity of its barriers, which changes with each round of the ring."""
    stage += 1
    return gl.where(stage == STAGES, 0, stage), gl.where(stage == STAGES, phase ^ 1, phase)


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
def place_of_tile(tile, M, N, group_m, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, INSIDE: gl.constexpr):
    """Return the first row and column of a tile; if INSIDE, no tile crosses the edge."""
    m, n = corner_of(tile, M, N, group_m, BLOCK_M, BLOCK_N)
    if INSIDE:
        m, n = inside(m, M, BLOCK_M), inside(n, N, BLOCK_N)
    return m, n


@gluon.jit
def fetch(
    left, rights, scaling, ring, order,
    GROUPS: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    SPLIT_K: gl.constexpr, STREAM_K: gl.constexpr, INSIDE: gl.constexpr, LEFT_ACROSS_K: gl.constexpr,
    RIGHT_ACROSS_K: gl.constexpr, SCALES: gl.constexpr, PROMOTED: gl.constexpr,
    WIDE: gl.constexpr,
):  # fmt: skip
    """Keep STAGES steps in flight, across tiles; the barriers `full` count arrived bytes.

    With scales of blocks, those of the left factor's rows are part of a stage.
    """
    PARTS: gl.constexpr = parts_of(COLUMNS, 128 if PROMOTED else 256)
    OF_BLOCKS: gl.constexpr = SCALES == "block"
    BLOCK_M: gl.constexpr = GROUPS * ROWS
    ELEMENT: gl.constexpr = left.dtype.primitive_bitwidth // 8
    BYTES: gl.constexpr = (BLOCK_M + COLUMNS) * BLOCK_K * ELEMENT + (4 * BLOCK_M if OF_BLOCKS else 0)
    scale_left, _, stride_sak, _, _ = scaling
    a_tiles, b_tiles, scales, free, full = ring
    M, N, K, shared, group_m = order
    steps = gl.cdiv(K, BLOCK_K)
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, COLUMNS)
    stage, phase = 0, 1
    for nth_piece in range(pieces_of(tiles, shared, steps, STREAM_K) if SPLIT_K == 1 else 1):
        tile, first, end = (
            piece_of(nth_piece, shared, steps, STREAM_K) if SPLIT_K == 1 else slice_of(tiles, steps, SPLIT_K)
        )
        m, n = place_of_tile(tile, M, N, group_m, BLOCK_M, COLUMNS, INSIDE)
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
def zeros_of(PARTS: gl.constexpr, ROWS: gl.constexpr, DEPTH: gl.constexpr):
    """Return the sums of each part, zero."""
    sums = ()
    for part in gl.static_range(count(PARTS)):
        sums = sums + (gl.zeros((ROWS, width(PARTS, part)), gl.float32, sums_layout(width(PARTS, part), DEPTH)),)
    return sums


@gluon.jit
def completed(sums, PENDING: gl.constexpr):
    """Wait until all products but the newest PENDING are complete; return the sums."""
    if len(sums) == 1:
        found = (warpgroup_mma_wait(PENDING, deps=[sums[0]]),)
    elif len(sums) == 2:
        found = warpgroup_mma_wait(PENDING, deps=[sums[0], sums[1]])
    else:
        found = warpgroup_mma_wait(PENDING, deps=[sums[0], sums[1], sums[2]])
    return found


@gluon.jit
def summed_in_tensor_cores(
    a_tiles, b_tiles, free, full, stage, phase, steps,
    GROUP: gl.constexpr, GROUPS: gl.constexpr, ROWS: gl.constexpr, PARTS: gl.constexpr, STAGES: gl.constexpr,
    DEPTH: gl.constexpr, LEFT_ACROSS_K: gl.constexpr, RIGHT_ACROSS_K: gl.constexpr,
):  # fmt: skip
    """Return the sums over some steps, and the stage and parity after them.

    The products of one step run while those of the next are issued, so a stage is released one step late.
    """
    sums = zeros_of(PARTS, ROWS, DEPTH)
    last = 0
    for nth in range(steps):
        mbarrier.wait(full.index(stage), phase)
        a = a_tiles.index(stage * GROUPS + GROUP)
        if LEFT_ACROSS_K:
            a = a.permute((1, 0))
        added = ()
        for part in gl.static_range(count(PARTS)):
            b = b_tiles[part].index(stage)
            if not RIGHT_ACROSS_K:
                b = b.permute((1, 0))
            added = added + (warpgroup_mma(a, b, sums[part], use_acc=nth > 0, is_async=True),)
        sums = completed(added, count(PARTS))
        mbarrier.arrive(free.index(last), pred=nth > 0)
        last = stage
        stage, phase = after(stage, phase, STAGES)
    sums = completed(sums, 0)
    mbarrier.arrive(free.index(last))
    return sums, stage, phase


@gluon.jit
def summed_wide(
    a_tiles, free, full, stage, phase, steps,
    GROUP: gl.constexpr, GROUPS: gl.constexpr, PARTS: gl.constexpr, STAGES: gl.constexpr, DEPTH: gl.constexpr,
):  # fmt: skip
    """Return the sums over some steps, and the stage and parity after them, by one wgmma for all columns."""
    ROWS: gl.constexpr = 64
    COLUMNS: gl.constexpr = before(PARTS, count(PARTS))
    WIDTH: gl.constexpr = width(PARTS, count(PARTS) - 1)
    sums = wide_wgmma.zeros_of(COLUMNS // WIDTH, WIDTH, DEPTH)
    left = wide_wgmma.first_byte() + GROUP * ROWS * 128
    right = wide_wgmma.first_byte() + STAGES * GROUPS * ROWS * 128
    last = 0
    for nth in range(steps):
        mbarrier.wait(full.index(stage), phase)
        sums = wide_wgmma.added(
            sums, left + stage * (GROUPS * ROWS * 128), right + stage * (COLUMNS * 128), a_tiles.dtype
        )
        mbarrier.arrive(free.index(last), pred=nth > 0)
        last = stage
        stage, phase = after(stage, phase, STAGES)
    sums = wide_wgmma.completed(sums)
    mbarrier.arrive(free.index(last))
    found = ()
    for part in gl.static_range(count(PARTS)):
        found = found + (wide_wgmma.beside(sums, before(PARTS, part) // WIDTH, width(PARTS, part) // WIDTH, DEPTH),)
    return found, stage, phase


@gluon.jit
def promoted(sums, products, by_a, by_b):
    """Return the sums with one step's products, which leave the tensor cores here, times their scales if they have any.

    The last wait completes the sums before more products are issued; otherwise registers would hold the products of two
    steps beside them.
    """
    products = warpgroup_mma_wait(0, deps=[products])
    sums += products * gl.expand_dims(by_a * by_b, 1) if by_a is not None else products
    return warpgroup_mma_wait(0, deps=[sums])


@gluon.jit
def products_of(a, b, like):
    """Issue one step's products. Return them before they are complete."""
    return warpgroup_mma(a, b.permute((1, 0)), gl.zeros_like(like), use_acc=False, is_async=True)


@gluon.jit
def summed_in_registers(
    a_tiles, b_tiles, scales, at_b, stride_sbk, free, full, stage, phase, first, end,
    GROUP: gl.constexpr, GROUPS: gl.constexpr, ROWS: gl.constexpr, PARTS: gl.constexpr, STAGES: gl.constexpr,
    DEPTH: gl.constexpr, OF_BLOCKS: gl.constexpr,
):  # fmt: skip
    """Return the sums of 8-bit floats over some steps, and the stage and parity after them.

    Threads add up the products of each step, and issue none meanwhile: adding and multiplying take turns in a group.
    Groups that wait only for their operands fall out of step by themselves, and one adds while another multiplies. The
    tensor cores are idle while a group is between its sums and its next products, so all waiting and counting is done
    while products run.
    """
    sums = zeros_of(PARTS, ROWS, DEPTH)
    mbarrier.wait(full.index(stage), phase)
    if OF_BLOCKS:
        next_b = gl.load(at_b + first * stride_sbk)
    for step in range(first, end):
        a = a_tiles.index(stage * GROUPS + GROUP)
        read, done = stage, free.index(stage)
        by_a, by_b = None, None
        if OF_BLOCKS:
            layout: gl.constexpr = gl.SliceLayout(1, sums_layout(width(PARTS, 0), DEPTH))
            by_a = scales.index(stage * GROUPS + GROUP).load(layout)
            by_b, next_b = next_b, gl.load(at_b + min(step + 1, end - 1) * stride_sbk)
        products = products_of(a, b_tiles[0].index(stage), sums[0])
        stage, phase = after(stage, phase, STAGES)
        mbarrier.wait(full.index(stage), phase, pred=step + 1 < end)
        added = (promoted(sums[0], products, by_a, by_b),)
        for part in gl.static_range(1, count(PARTS)):
            products = products_of(a, b_tiles[part].index(read), sums[part])
            added = added + (promoted(sums[part], products, by_a, by_b),)
        sums = added
        mbarrier.arrive(done)
    return sums, stage, phase


@gluon.jit
def store(
    sums, out, staging, m, n,
    CHUNK: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr, SLOTS: gl.constexpr, SWAPPED: gl.constexpr,
):  # fmt: skip
    """Store sums in pieces of 128 bytes of a row, each through a slot; the copy engine may be writing on return."""
    WIDTH: gl.constexpr = sums.shape[1]
    BOX: gl.constexpr = out.block_shape[0 if SWAPPED else 1]
    if WIDTH > BOX:
        left, right = gl.split(gl.permute(gl.reshape(sums, (sums.shape[0], 2, WIDTH // 2)), (0, 2, 1)))
        store(left, out, staging, m, n, CHUNK, GROUP, GROUPS, SLOTS, SWAPPED)
        store(right, out, staging, m, n + WIDTH // 2, CHUNK + WIDTH // BOX // 2, GROUP, GROUPS, SLOTS, SWAPPED)
    else:
        if CHUNK == 0:
            tma.store_wait(0)  # the tile before has left all slots
        elif CHUNK >= SLOTS:
            tma.store_wait(SLOTS - 1)  # and so has the last piece of this tile that was in the slot
        slot = tma.viewed(staging.index(CHUNK % SLOTS * GROUPS + GROUP), out.dtype, out.block_shape, out.layout)
        if SWAPPED:
            slot.permute((1, 0)).store(sums.to(out.dtype))
        else:
            slot.store(sums.to(out.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(out, [n, m] if SWAPPED else [m, n], slot)


@gluon.jit
def finish(
    sums, by, outs, bias, staging, m, n, M, N,
    GROUP: gl.constexpr, GROUPS: gl.constexpr, ROWS: gl.constexpr, PARTS: gl.constexpr, SLOTS: gl.constexpr,
    SWAPPED: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Scale the sums of each part, add the bias, apply the activation, round and store."""
    for part in gl.static_range(count(PARTS)):
        acc = sums[part]
        column = n + before(PARTS, part)
        if by is not None:
            acc *= by
        if SWAPPED:
            index = m + gl.arange(0, ROWS, gl.SliceLayout(1, acc.type.layout))
            acc = finished(acc, bias, index, M, ACTIVATION, 1)
        else:
            index = column + gl.arange(0, acc.shape[1], gl.SliceLayout(0, acc.type.layout))
            acc = finished(acc, bias, index, N, ACTIVATION)
        store(
            acc,
            outs[part],
            staging,
            m,
            column,
            chunks_before(PARTS, part, outs[0].block_shape[0 if SWAPPED else 1]),
            GROUP,
            GROUPS,
            SLOTS,
            SWAPPED,
        )


@gluon.jit
def leave_all(sums, partials, slot, GROUP: gl.constexpr, GROUPS: gl.constexpr, PARTS: gl.constexpr):
    """Write the sums of a group to a slot of the workspace."""
    for part in gl.static_range(count(PARTS)):
        leave(sums[part], partials, slot, before(PARTS, part), before(PARTS, count(PARTS)), GROUP, GROUPS)


@gluon.jit
def join_all(sums, partials, slot, GROUP: gl.constexpr, GROUPS: gl.constexpr, PARTS: gl.constexpr):
    """Return sums plus those in a slot of the workspace."""
    found = ()
    for part in gl.static_range(count(PARTS)):
        of_part = joined(sums[part], partials, slot, before(PARTS, part), before(PARTS, count(PARTS)), GROUP, GROUPS)
        found = found + (of_part,)
    return found


@gluon.jit
def is_last(arrived, tile, GROUP: gl.constexpr, GROUPS: gl.constexpr, SPLIT_K: gl.constexpr):
    """Count this group's slice of a tile, and return whether the others have arrived; the last one resets the count."""
    tl.debug_barrier()  # all threads have written before one counts the slice
    counter = arrived + GROUPS * tile + GROUP
    last = gl.atomic_add(counter, 1, sem="acq_rel") == SPLIT_K - 1
    if last:
        gl.store(counter, 0)
        tl.debug_barrier()
    return last


@gluon.jit
def multiply(
    outs, bias, scaling, workspace, staging, ring, order,
    GROUP: gl.constexpr, SLOTS: gl.constexpr, SWAPPED: gl.constexpr, ACTIVATION: gl.constexpr,
    GROUPS: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    SPLIT_K: gl.constexpr, STREAM_K: gl.constexpr, INSIDE: gl.constexpr, LEFT_ACROSS_K: gl.constexpr,
    RIGHT_ACROSS_K: gl.constexpr, SCALES: gl.constexpr, PROMOTED: gl.constexpr,
    WIDE: gl.constexpr,
):  # fmt: skip
    """Compute a group's rows of each tile."""
    PARTS: gl.constexpr = parts_of(COLUMNS, 128 if PROMOTED else 256)
    BLOCK_M: gl.constexpr = GROUPS * ROWS
    scale_left, scale_right, _, stride_sbn, stride_sbk = scaling
    partials, arrived = workspace
    a_tiles, b_tiles, scales, free, full = ring
    M, N, K, shared, group_m = order
    DEPTH: gl.constexpr = 256 // a_tiles.dtype.primitive_bitwidth
    steps = gl.cdiv(K, BLOCK_K)
    tiles = gl.cdiv(M, BLOCK_M) * gl.cdiv(N, COLUMNS)
    stage, phase = 0, 0
    by = None
    if SCALES == "tensor":
        by = gl.load(scale_left) * gl.load(scale_right)
    for nth_piece in range(pieces_of(tiles, shared, steps, STREAM_K) if SPLIT_K == 1 else 1):
        tile, first, end = (
            piece_of(nth_piece, shared, steps, STREAM_K) if SPLIT_K == 1 else slice_of(tiles, steps, SPLIT_K)
        )
        m, n = place_of_tile(tile, M, N, group_m, BLOCK_M, COLUMNS, INSIDE)
        m += GROUP * ROWS
        if PROMOTED:
            sums, stage, phase = summed_in_registers(
                a_tiles, b_tiles, scales, scale_right + n // 128 * stride_sbn, stride_sbk, free, full,
                stage, phase, first, end, GROUP, GROUPS, ROWS, PARTS, STAGES, DEPTH, SCALES == "block")  # fmt: skip
        elif WIDE:
            sums, stage, phase = summed_wide(
                a_tiles, free, full, stage, phase, end - first, GROUP, GROUPS, PARTS, STAGES, DEPTH)  # fmt: skip
        else:
            sums, stage, phase = summed_in_tensor_cores(
                a_tiles, b_tiles, free, full, stage, phase, end - first,
                GROUP, GROUPS, ROWS, PARTS, STAGES, DEPTH, LEFT_ACROSS_K, RIGHT_ACROSS_K)  # fmt: skip

        if SPLIT_K > 1:
            leave_all(sums, partials, gl.program_id(0), GROUP, GROUPS, PARTS)
            if is_last(arrived, tile, GROUP, GROUPS, SPLIT_K):
                # In the order of the slices, not of their arrival, so that every run gives the same bits.
                total = join_all(zeros_of(PARTS, ROWS, DEPTH), partials, tile, GROUP, GROUPS, PARTS)
                for slot in gl.static_range(1, SPLIT_K):
                    total = join_all(total, partials, tile + slot * tiles, GROUP, GROUPS, PARTS)
                finish(total, by, outs, bias, staging, m, n, M, N,
                       GROUP, GROUPS, ROWS, PARTS, SLOTS, SWAPPED, ACTIVATION)  # fmt: skip
        else:
            if STREAM_K:
                if first > 0:  # the program before this one has the steps up to `first`
                    wait_for_other(arrived, GROUP, GROUPS)
                    sums = join_all(sums, partials, gl.program_id(0) - 1, GROUP, GROUPS, PARTS)
            if end == steps:
                finish(sums, by, outs, bias, staging, m, n, M, N,
                       GROUP, GROUPS, ROWS, PARTS, SLOTS, SWAPPED, ACTIVATION)  # fmt: skip
            elif STREAM_K:
                leave_all(sums, partials, gl.program_id(0), GROUP, GROUPS, PARTS)
                tell(arrived, GROUP, GROUPS)
    tma.store_wait(0)


@gluon.jit(do_not_specialize=["shared", "group_m"])
def gemm_specialized(
    left, right, right_2, right_3, out, out_2, out_3, bias, scale_left, scale_right, partials, arrived, M, N, K,
    stride_sak, stride_sbn, stride_sbk, shared, group_m,
    GROUPS: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr, BLOCK_K: gl.constexpr, STAGES: gl.constexpr,
    SLOTS: gl.constexpr, SPLIT_K: gl.constexpr, STREAM_K: gl.constexpr, INSIDE: gl.constexpr, SWAPPED: gl.constexpr,
    LEFT_ACROSS_K: gl.constexpr, RIGHT_ACROSS_K: gl.constexpr, ACTIVATION: gl.constexpr, SCALES: gl.constexpr,
    PROMOTED: gl.constexpr,
    WIDE: gl.constexpr,
):  # fmt: skip
    """Start the roles of a program.

    Descriptors describe the left factor's rows of a group, and of the right factor and out each of the tile's parts.
    M and N are the rows of the left and of the right factor.

    A program computes its tiles one after the other. Their sums are staged for the copy engine in SLOTS pieces of
    shared memory. With 0 it has one tile, or one slice of it, and its own rows of the ring are free by then.

    With STREAM_K the first `shared` tiles, more than there are programs, are cut along K into an even share for each
    program, so that no last wave keeps few multiprocessors busy (Osama et al., "Stream-K", 2023). A program may wait
    for the one before it. So all programs run at once, one for each multiprocessor; or, if others use the card, they
    start in the order of their numbers, as on each card so far, though CUDA does not guarantee it. With SPLIT_K all
    tiles are cut into as many slices, and no slice waits: the last to arrive adds them up.
    """
    PARTS: gl.constexpr = parts_of(COLUMNS, 128 if PROMOTED else 256)
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
        staging = gl.allocate_shared_memory(out.dtype, [SLOTS * GROUPS] + out.block_shape, out.layout)
    free = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(free.index(stage), count=GROUPS)  # all groups have read it
        mbarrier.init(full.index(stage), count=1)
    fence_async_shared()
    ring = (a_tiles, b_tiles, scales, free, full)
    scaling = (scale_left, scale_right, stride_sak, stride_sbn, stride_sbk)
    workspace = (partials, arrived)
    order = (M, N, K, shared, group_m)
    if GROUPS == 1:
        gl.warp_specialize([
            (multiply, (outs, bias, scaling, workspace, staging, ring, order, 0, SLOTS if SLOTS > 0 else STAGES,
                        SWAPPED, ACTIVATION, GROUPS, ROWS, COLUMNS, BLOCK_K, STAGES, SPLIT_K, STREAM_K, INSIDE,
                        LEFT_ACROSS_K, RIGHT_ACROSS_K, SCALES, PROMOTED, WIDE)),
            (fetch, (left, rights, scaling, ring, order, GROUPS, ROWS, COLUMNS, BLOCK_K, STAGES, SPLIT_K, STREAM_K,
                     INSIDE, LEFT_ACROSS_K, RIGHT_ACROSS_K, SCALES, PROMOTED, WIDE)),
        ], workers_of(1)[0], workers_of(1)[1])  # fmt: skip
    elif GROUPS == 2:
        gl.warp_specialize([
            (multiply, (outs, bias, scaling, workspace, staging, ring, order, 0, SLOTS if SLOTS > 0 else STAGES,
                        SWAPPED, ACTIVATION, GROUPS, ROWS, COLUMNS, BLOCK_K, STAGES, SPLIT_K, STREAM_K, INSIDE,
                        LEFT_ACROSS_K, RIGHT_ACROSS_K, SCALES, PROMOTED, WIDE)),
            (multiply, (outs, bias, scaling, workspace, staging, ring, order, 1, SLOTS if SLOTS > 0 else STAGES,
                        SWAPPED, ACTIVATION, GROUPS, ROWS, COLUMNS, BLOCK_K, STAGES, SPLIT_K, STREAM_K, INSIDE,
                        LEFT_ACROSS_K, RIGHT_ACROSS_K, SCALES, PROMOTED, WIDE)),
            (fetch, (left, rights, scaling, ring, order, GROUPS, ROWS, COLUMNS, BLOCK_K, STAGES, SPLIT_K, STREAM_K,
                     INSIDE, LEFT_ACROSS_K, RIGHT_ACROSS_K, SCALES, PROMOTED, WIDE)),
        ], workers_of(2)[0], workers_of(2)[1])  # fmt: skip
    else:
        gl.warp_specialize([
            (multiply, (outs, bias, scaling, workspace, staging, ring, order, 0, SLOTS if SLOTS > 0 else STAGES,
                        SWAPPED, ACTIVATION, GROUPS, ROWS, COLUMNS, BLOCK_K, STAGES, SPLIT_K, STREAM_K, INSIDE,
                        LEFT_ACROSS_K, RIGHT_ACROSS_K, SCALES, PROMOTED, WIDE)),
            (multiply, (outs, bias, scaling, workspace, staging, ring, order, 1, SLOTS if SLOTS > 0 else STAGES,
                        SWAPPED, ACTIVATION, GROUPS, ROWS, COLUMNS, BLOCK_K, STAGES, SPLIT_K, STREAM_K, INSIDE,
                        LEFT_ACROSS_K, RIGHT_ACROSS_K, SCALES, PROMOTED, WIDE)),
            (multiply, (outs, bias, scaling, workspace, staging, ring, order, 2, SLOTS if SLOTS > 0 else STAGES,
                        SWAPPED, ACTIVATION, GROUPS, ROWS, COLUMNS, BLOCK_K, STAGES, SPLIT_K, STREAM_K, INSIDE,
                        LEFT_ACROSS_K, RIGHT_ACROSS_K, SCALES, PROMOTED, WIDE)),
            (fetch, (left, rights, scaling, ring, order, GROUPS, ROWS, COLUMNS, BLOCK_K, STAGES, SPLIT_K, STREAM_K,
                     INSIDE, LEFT_ACROSS_K, RIGHT_ACROSS_K, SCALES, PROMOTED, WIDE)),
        ], workers_of(3)[0], workers_of(3)[1])  # fmt: skip


def of_parts(tile: roles.Roles, one: Callable[[int], Any]) -> list[Any]:
    """Return an argument for each part of a tile's columns, and None for those that it does not have."""
    found = [one(part) for part in tile.parts]
    return found + [None] * (roles.MOST_PARTS - len(found))
