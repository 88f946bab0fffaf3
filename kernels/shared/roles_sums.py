"""Sums of a group of warps with roles, over the steps that the fetcher brings: four ways to compute them."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, warpgroup_mma, warpgroup_mma_wait

from tuner.kernels.shared import wide_wgmma
from tuner.kernels.shared.roles_parts import after, before, count, width
from tuner.kernels.shared.stream_k import sums_layout


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
    a_tiles, b_tiles, free, full, issued, stage, phase, steps,
    GROUP: gl.constexpr, GROUPS: gl.constexpr, ROWS: gl.constexpr, PARTS: gl.constexpr, STAGES: gl.constexpr,
    DEPTH: gl.constexpr, LEFT_ACROSS_K: gl.constexpr, RIGHT_ACROSS_K: gl.constexpr,
):  # fmt: skip
    """Return the sums over some steps, and the stage and parity after them.

    The products of one step run while those of the next are issued, so a stage is released one step late. Arrive
    at the barrier `issued`, if there is one, once all products are issued.
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
    if issued is not None:
        mbarrier.arrive(issued)
    sums = completed(sums, 0)
    mbarrier.arrive(free.index(last))
    return sums, stage, phase


@gluon.jit
def summed_wide(
    a_tiles, free, full, issued, stage, phase, steps,
    GROUP: gl.constexpr, GROUPS: gl.constexpr, ROWS: gl.constexpr, PARTS: gl.constexpr, STAGES: gl.constexpr,
    DEPTH: gl.constexpr, LEFT_ACROSS_K: gl.constexpr,
):  # fmt: skip
    """Return the sums over some steps, and the stage and parity after them, by one wgmma for all columns."""
    BLOCKS: gl.constexpr = ROWS // 64
    COLUMNS: gl.constexpr = before(PARTS, count(PARTS))
    WIDTH: gl.constexpr = width(PARTS, count(PARTS) - 1)
    sums = wide_wgmma.zeros_of(BLOCKS * (COLUMNS // WIDTH), WIDTH, DEPTH)
    left = wide_wgmma.first_byte() + GROUP * ROWS * 128
    right = wide_wgmma.first_byte() + STAGES * GROUPS * ROWS * 128
    last = 0
    for nth in range(steps):
        mbarrier.wait(full.index(stage), phase)
        sums = wide_wgmma.added(
            sums, left + stage * (GROUPS * ROWS * 128), right + stage * (COLUMNS * 128), BLOCKS, a_tiles.dtype,
            LEFT_ACROSS_K)  # fmt: skip
        mbarrier.arrive(free.index(last), pred=nth > 0)
        last = stage
        stage, phase = after(stage, phase, STAGES)
    if issued is not None:
        mbarrier.arrive(issued)
    sums = wide_wgmma.completed(sums)
    mbarrier.arrive(free.index(last))
    return in_parts(sums, PARTS, BLOCKS, DEPTH), stage, phase


@gluon.jit
def in_parts(sums, PARTS: gl.constexpr, BLOCKS: gl.constexpr, DEPTH: gl.constexpr):
    """Return the sums of each part, of all columns side by side."""
    WIDTH: gl.constexpr = width(PARTS, count(PARTS) - 1)
    found = ()
    for part in gl.static_range(count(PARTS)):
        of_part = wide_wgmma.stacked(sums, before(PARTS, part) // WIDTH, width(PARTS, part) // WIDTH, BLOCKS, DEPTH)
        found = found + (of_part,)
    return found


@gluon.jit
def summed_wide_in_registers(
    a_tiles, free, full, stage, phase, steps,
    GROUP: gl.constexpr, GROUPS: gl.constexpr, ROWS: gl.constexpr, PARTS: gl.constexpr, STAGES: gl.constexpr,
    DEPTH: gl.constexpr,
):  # fmt: skip
    """Return the sums of 8-bit floats over some steps, which threads add up, and the stage and parity after them.

    As `summed_in_registers`, but one wgmma multiplies all columns, so a group waits once in a step. In steps of 256
    bytes along K it waits once for both halves, whose products it adds one after the other.
    """
    COLUMNS: gl.constexpr = before(PARTS, count(PARTS))
    WIDTH: gl.constexpr = width(PARTS, count(PARTS) - 1)
    TENSORS: gl.constexpr = COLUMNS // WIDTH
    HALVES: gl.constexpr = a_tiles.shape[2] * a_tiles.dtype.primitive_bitwidth // 1024
    sums = wide_wgmma.zeros_of(TENSORS, WIDTH, DEPTH)
    left = wide_wgmma.first_byte() + GROUP * HALVES * ROWS * 128
    right = wide_wgmma.first_byte() + STAGES * GROUPS * HALVES * ROWS * 128
    mbarrier.wait(full.index(stage), phase)
    for nth in range(steps):
        read = stage
        products = ()
        for half in gl.static_range(HALVES):
            products = products + wide_wgmma.products(
                left + (read * GROUPS * HALVES + half) * (ROWS * 128), right + (read * HALVES + half) * (COLUMNS * 128),
                TENSORS, WIDTH, DEPTH, a_tiles.dtype)  # fmt: skip
        stage, phase = after(stage, phase, STAGES)
        mbarrier.wait(full.index(stage), phase, pred=nth + 1 < steps)
        products = wide_wgmma.completed(products)
        for half in gl.static_range(HALVES):
            added = ()
            for nth_tensor in gl.static_range(len(sums)):
                added = added + (sums[nth_tensor] + products[half * len(sums) + nth_tensor],)
            sums = added
        sums = wide_wgmma.completed(sums)  # before more products are issued, so that registers hold those of one step
        mbarrier.arrive(free.index(read))
    return in_parts(sums, PARTS, 1, DEPTH), stage, phase


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
