"""Ends of a tile of warps with roles: a group stores its sums, or leaves them for others to add."""

from __future__ import annotations

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from tuner.kernels.shared import tma
from tuner.kernels.shared.products import finished
from tuner.kernels.shared.roles_parts import before, chunks_before, count
from tuner.kernels.shared.stream_k import joined, leave


@gluon.jit
def store(
    sums, by, bias, out, staging, m, n, M, N,
    CHUNK: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr, SLOTS: gl.constexpr, SWAPPED: gl.constexpr,
    ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Scale sums, add the bias, apply the activation, round and store, in pieces of 128 bytes of a row.

    Each piece goes through a slot; the copy engine may be writing on return. Of a whole tile, an activation would need
    more registers beside the sums than there are.
    """
    WIDTH: gl.constexpr = sums.shape[1]
    BOX: gl.constexpr = out.block_shape[0 if SWAPPED else 1]
    if WIDTH > BOX:
        left, right = gl.split(gl.permute(gl.reshape(sums, (sums.shape[0], 2, WIDTH // 2)), (0, 2, 1)))
        store(left, by, bias, out, staging, m, n, M, N, CHUNK, GROUP, GROUPS, SLOTS, SWAPPED, ACTIVATION)
        store(right, by, bias, out, staging, m, n + WIDTH // 2, M, N,
              CHUNK + WIDTH // BOX // 2, GROUP, GROUPS, SLOTS, SWAPPED, ACTIVATION)  # fmt: skip
    else:
        if by is not None:
            sums *= by
        if SWAPPED:
            index = m + gl.arange(0, sums.shape[0], gl.SliceLayout(1, sums.type.layout))
            sums = finished(sums, bias, index, M, ACTIVATION, out.dtype, 1)
        else:
            index = n + gl.arange(0, WIDTH, gl.SliceLayout(0, sums.type.layout))
            sums = finished(sums, bias, index, N, ACTIVATION, out.dtype)
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
    GROUP: gl.constexpr, GROUPS: gl.constexpr, PARTS: gl.constexpr, SLOTS: gl.constexpr, SWAPPED: gl.constexpr,
    ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Finish and store the sums of each part."""
    for part in gl.static_range(count(PARTS)):
        first = chunks_before(PARTS, part, outs[0].block_shape[0 if SWAPPED else 1])
        store(sums[part], by, bias, outs[part], staging, m, n + before(PARTS, part), M, N,
              first, GROUP, GROUPS, SLOTS, SWAPPED, ACTIVATION)  # fmt: skip


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
