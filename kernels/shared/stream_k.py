"""Sums of tiles that two programs share (stream-K), held by Hopper's warp groups: for warps with roles of their own.

The steps along K of the shared tiles are cut evenly among the programs, so that no last wave keeps few multiprocessors
busy (Osama et al., "Stream-K", 2023). Where a cut falls inside a tile, one program leaves its sum in the workspace and
the next one adds it to its own.
"""

from __future__ import annotations

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from tuner.kernels.shared import tma


@gluon.constexpr_function
def sums_layout(columns):
    """Return the layout in which wgmma leaves a sum of `columns` columns in the four warps of a group."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, 16])


@gluon.jit
def share_of(shared, steps):
    """Return the first step of this program, and the one after its last, among the steps of all shared tiles."""
    program = gl.program_id(0)
    each = shared * steps // gl.num_programs(0)
    more = shared * steps % gl.num_programs(0)
    return program * each + min(program, more), (program + 1) * each + min(program + 1, more)


@gluon.jit
def pieces_of(tiles, shared, steps, STREAM_K: gl.constexpr):
    """Return the number of this program's pieces: of shared tiles first, then whole tiles."""
    count = gl.cdiv(tiles - shared - gl.program_id(0), gl.num_programs(0))
    if STREAM_K:
        first, end = share_of(shared, steps)
        count += (end - 1) // steps - first // steps + 1
    return count


@gluon.jit
def piece_of(nth, shared, steps, STREAM_K: gl.constexpr):
    """Return the nth piece of this program: its tile, its first step along K, and the one after its last.

    A share is walked from its end: the piece that the next program waits for comes first, and the piece for which this
    program waits comes last.
    """
    programs = gl.num_programs(0)
    tile, first, end = shared + gl.program_id(0) + nth * programs, 0, steps
    if STREAM_K:
        share_first, share_end = share_of(shared, steps)
        cut = (share_end - 1) // steps - share_first // steps + 1
        if nth < cut:
            tile = (share_end - 1) // steps - nth
            first, end = max(share_first - tile * steps, 0), min(share_end - tile * steps, steps)
        else:
            tile -= cut * programs
    return tile, first, end


@gluon.jit
def put(sums, out, staging, m, n, STORES: gl.constexpr):
    """Store a sum through `staging`, at once or in halves; the copy engine may still be writing on return."""
    if STORES == 1:
        tma.store_wait(0)
        staging.store(sums.to(out.dtype))
        fence_async_shared()
        tma.async_copy_shared_to_global(out, [m, n], staging)
    else:
        WIDTH: gl.constexpr = sums.shape[1] // 2
        left, right = gl.split(gl.permute(gl.reshape(sums, (sums.shape[0], 2, WIDTH)), (0, 2, 1)))
        put(left, out, staging, m, n, 1)
        put(right, out, staging, m, n + WIDTH, 1)


@gluon.jit
def place_of(program, column, GROUP: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, WIDTH: gl.constexpr):
    """Return the offsets in the workspace of a group's sums of WIDTH columns from `column` on.

    Sums lie in the order in which threads hold them, so that a warp writes and reads 256 contiguous bytes: of each
    eight columns, lane 4 r + c holds 2 c and 2 c + 1 in rows r and r + 8 of its warp's sixteen.
    """
    row = gl.arange(0, BLOCK_M // 2, gl.SliceLayout(1, sums_layout(WIDTH)))[:, None]
    n = gl.arange(0, WIDTH, gl.SliceLayout(0, sums_layout(WIDTH)))[None, :]
    lanes = row // 64 * (64 * WIDTH) + row // 16 % 4 * 64 + row % 8 * 8 + n % 8
    first = (2 * program + GROUP) * (BLOCK_M // 2 * BLOCK_N) + column * (BLOCK_M // 2)
    return first + lanes + row % 16 // 8 * 256 + n // 8 * 512


@gluon.jit
def leave(sums, partials, column, GROUP: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
    """Write sums, from `column` of a tile on, for the next program, which has the tile's last step."""
    place = place_of(gl.program_id(0), column, GROUP, BLOCK_M, BLOCK_N, sums.shape[1])
    gl.store(partials + place, sums)


@gluon.jit
def joined(sums, partials, column, GROUP: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr):
    """Return sums plus those that the program before this one wrote."""
    place = place_of(gl.program_id(0) - 1, column, GROUP, BLOCK_M, BLOCK_N, sums.shape[1])
    return sums + gl.load(partials + place, cache_modifier=".cg")


@gluon.jit
def tell(arrived, GROUP: gl.constexpr):
    """Signal that all sums of this group are written."""
    tl.debug_barrier()
    gl.atomic_xchg(arrived + 2 * gl.program_id(0) + GROUP, 1, sem="release")


@gluon.jit
def wait_for_other(arrived, GROUP: gl.constexpr):
    """Wait for the signal of the program before this one, which waits for no other before it signals."""
    while gl.atomic_cas(arrived + 2 * (gl.program_id(0) - 1) + GROUP, 1, 0, sem="acquire") == 0:
        pass
    tl.debug_barrier()
