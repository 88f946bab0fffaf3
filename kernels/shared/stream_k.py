"""Sums of tiles that two programs share (stream-K), held by Hopper's warp groups: for warps with roles of their own.

The steps along K of the shared tiles are cut evenly among the programs, so that no last wave keeps few multiprocessors
busy (Osama et al., "Stream-K", 2023). Where a cut falls inside a tile, one program leaves its sum in the workspace and
the next one adds it to its own.
"""

from __future__ import annotations

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.constexpr_function
def sums_layout(columns, depth):
    """Return the layout in which wgmma leaves a sum of `columns` columns in the four warps of a group.

    Args:
        depth: elements along K of one wgmma: 16 of 16 bits, or 32 of 8.
    """
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, 1], instr_shape=[16, columns, depth])


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
def place_of(like, slot, column, COLUMNS: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr):
    """Return the offsets in the workspace of sums like these: a group's, from `column` of a tile on.

    Sums lie in the order in which threads hold them, so that a warp writes and reads 256 contiguous bytes: of each
    eight columns, lane 4 r + c holds 2 c and 2 c + 1 in rows r and r + 8 of its warp's sixteen.

    Args:
        COLUMNS: columns of the tile.
    """
    ROWS: gl.constexpr = like.shape[0]
    WIDTH: gl.constexpr = like.shape[1]
    row = gl.arange(0, ROWS, gl.SliceLayout(1, like.type.layout))[:, None]
    n = gl.arange(0, WIDTH, gl.SliceLayout(0, like.type.layout))[None, :]
    lanes = row // 64 * (64 * WIDTH) + row // 16 % 4 * 64 + row % 8 * 8 + n % 8
    first = (GROUPS * slot + GROUP) * (ROWS * COLUMNS) + column * ROWS
    return first + lanes + row % 16 // 8 * 256 + n // 8 * 512


@gluon.jit
def leave(sums, partials, slot, column, COLUMNS: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr):
    """Write sums, from `column` of a tile on, to a slot of the workspace."""
    gl.store(partials + place_of(sums, slot, column, COLUMNS, GROUP, GROUPS), sums)


@gluon.jit
def joined(sums, partials, slot, column, COLUMNS: gl.constexpr, GROUP: gl.constexpr, GROUPS: gl.constexpr):
    """Return sums plus those in a slot of the workspace."""
    place = place_of(sums, slot, column, COLUMNS, GROUP, GROUPS)
    return sums + gl.load(partials + place, cache_modifier=".cg")


@gluon.jit
def tell(arrived, GROUP: gl.constexpr, GROUPS: gl.constexpr):
    """Signal that all sums of this group are written."""
    tl.debug_barrier()
    gl.atomic_xchg(arrived + GROUPS * gl.program_id(0) + GROUP, 1, sem="release")


@gluon.jit
def wait_for_other(arrived, GROUP: gl.constexpr, GROUPS: gl.constexpr):
    """Wait for the signal of the program before this one, which waits for no other before it signals."""
    while gl.atomic_cas(arrived + GROUPS * (gl.program_id(0) - 1) + GROUP, 1, 0, sem="acquire") == 0:
        pass
    tl.debug_barrier()
