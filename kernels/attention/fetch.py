"""Loading role of the variant `specialized`, and the tiles that programs walk."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

from tuner.kernels.attention.tiles import place_of, seen
from tuner.kernels.shared import tma


@gluon.jit
def count_of(sizes, SPLITS: gl.constexpr):
    """Return the number of programs of the variant `tiles` whose work a persistent program does.

    They are dealt out in turn, forwards and backwards, so that each gets as many tiles that see many keys.
    """
    programs = sizes[0] * sizes[1] * SPLITS
    rounds = programs // gl.num_programs(0)
    return rounds + (nth_of(rounds) < programs).to(gl.int32)


@gluon.jit
def nth_of(nth):
    """Return the nth of these programs."""
    first, P = gl.program_id(0), gl.num_programs(0)
    return nth * P + first + nth % 2 * (P - 1 - 2 * first)


@gluon.jit
def work_of(
    program, sizes, cu_q, cu_k, lengths,
    ROWS: gl.constexpr, BLOCK_N: gl.constexpr, SPLITS: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Return the tile of a program among all, and its blocks of keys: none without rows or without keys.

    A tile has ROWS rows of each of its heads; `heads` and `sharing` count groups of these.

    Returns:
        share of the keys, sequence, group of heads, head of keys, first row of the tile, first row and rows of the
        sequence, its first key and keys, first and end of the blocks, and of those that each row sees whole.
    """
    tiles, pairs, together, heads, sharing, M, N, window = sizes
    split, pair, tile = place_of(program, tiles, pairs, together, SPLITS)
    sequence, m = pair // heads, tile * ROWS
    first_row, rows, first_key, keys = 0, M, 0, N
    if cu_q is not None:
        first_row = gl.load(cu_q + sequence)
        rows = gl.load(cu_q + sequence + 1) - first_row
    if cu_k is not None:
        first_key = gl.load(cu_k + sequence)
        keys = gl.load(cu_k + sequence + 1) - first_key
    if lengths is not None:
        keys = gl.load(lengths + sequence)
    first_position, last_position = m + keys - rows, min(m + ROWS, rows) - 1 + keys - rows
    first, last, whole_from, whole_to = seen(first_position, last_position, keys, window, BLOCK_N, CAUSAL, WINDOW)
    if SPLITS > 1:
        share = gl.cdiv(max(0, last - first), SPLITS)
        first += split * share
        last = min(last, first + share)
    if cu_q is not None:
        last = min(last, gl.where(m < rows, last, first))
    last = max(first, last)
    whole_from = min(max(whole_from, first), last)
    whole_to = min(max(whole_to, whole_from), last)
    head = pair % heads
    return (
        split, sequence, head, head // sharing, m, first_row, rows, first_key, keys, first, last, whole_from, whole_to,
    )  # fmt: skip


@gluon.jit
def fetch_rows(q, q_tiles, q_free, q_full, sequence, head, row, nth):
    """Load the rows of this program's nth tile, those of each group when it has left those before."""
    PACK: gl.constexpr = q.block_shape[1]
    HALF: gl.constexpr = q.block_shape[2]
    SIZE: gl.constexpr = PACK * HALF * q.block_shape[3]
    for group in gl.static_range(2):
        mbarrier.wait(q_free.index(group), nth % 2 ^ 1)
        mbarrier.expect(q_full.index(group), SIZE * (q.dtype.primitive_bitwidth // 8))
        at = [sequence, head * PACK, row + group * HALF, 0]
        tma.async_copy_global_to_shared(q, at, q_full.index(group), q_tiles.index(group))


@gluon.jit
def fetch_pages(x, tile, full, pages, head, BLOCK_N: gl.constexpr, BLOCK_D: gl.constexpr):
    """Load the keys or values of a block from several pages.

    A tile has panels of 64 columns, as wide as its rows are swizzled, and within a panel its rows in order.
    """
    PAGE: gl.constexpr = x.block_shape[2]
    COUNT: gl.constexpr = BLOCK_N // PAGE
    parts = tma.viewed(tile, x.dtype, [BLOCK_D // 64 * COUNT, 1, 1, PAGE, 64], x.layout)
    for nth in gl.static_range(COUNT):
        for panel in gl.static_range(BLOCK_D // 64):
            at = [pages[nth], head, 0, panel * 64]
            tma.async_copy_global_to_shared(x, at, full, parts.index(panel * COUNT + nth))


@gluon.jit
def pages_of(table, n, keys, BLOCK_N: gl.constexpr, PAGE: gl.constexpr):
    """Return the pages of a block of keys, or the one in which it lies; page 0 stands for those without a key."""
    pages = ()
    for nth in gl.static_range(max(1, BLOCK_N // PAGE)):
        first = n + nth * PAGE
        exists = (first >= 0) & (first < keys)
        pages = pages + (gl.load(table + first // PAGE, mask=exists, other=0),)  # type: ignore[assignment]
    return pages


@gluon.jit
def fetch(
    q, k, v, q_tiles, k_tiles, v_tiles, q_free, q_full, k_free, k_full, v_free, v_full,
    sizes, cu_q, cu_k, table, stride_t, lengths,
    ROWS: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_D: gl.constexpr, STAGES: gl.constexpr, SPLITS: gl.constexpr,
    PAGE: gl.constexpr, CAUSAL: gl.constexpr, WINDOW: gl.constexpr,
):  # fmt: skip
    """Load the rows of each tile, and keep STAGES blocks of keys and values in flight, the last keys first.

    The pages of a block are read from the table while the block before it waits for its place in shared memory.
    """
    ITEM: gl.constexpr = q.dtype.primitive_bitwidth // 8
    IS_PIECED: gl.constexpr = PAGE > 0 and PAGE < BLOCK_N
    step = 0
    for nth in range(count_of(sizes, SPLITS)):
        program = nth_of(nth)
        _, b, h, g, m, first_row, _, first_key, keys, first, last, _, _ = work_of(
            program, sizes, cu_q, cu_k, lengths, ROWS, BLOCK_N, SPLITS, CAUSAL, WINDOW
        )
        b_of_rows, b_of_keys = b, b
        if cu_q is not None:
            b_of_rows = b * 0
        if cu_k is not None:
            b_of_keys = b * 0
        next_pages = ()
        if PAGE > 0:
            own_table = table + b.to(gl.int64) * stride_t
            next_pages = pages_of(own_table, (last - 1) * BLOCK_N, keys, BLOCK_N, PAGE)
        for block in range(last - first):
            stage, parity = step % STAGES, step // STAGES % 2 ^ 1
            n = (last - 1 - block) * BLOCK_N
            pages = next_pages
            if PAGE > 0:
                next_pages = pages_of(own_table, n - BLOCK_N, keys, BLOCK_N, PAGE)
            if PAGE > 0 and not IS_PIECED:
                b_of_keys = pages[0]  # type: ignore[misc]
                n = n % PAGE
            at = [b_of_keys, g, first_key + n, 0]
            mbarrier.wait(k_free.index(stage), parity)
            mbarrier.expect(k_full.index(stage), BLOCK_N * BLOCK_D * ITEM)
            if IS_PIECED:
                fetch_pages(k, k_tiles.index(stage), k_full.index(stage), pages, g, BLOCK_N, BLOCK_D)
            else:
                tma.async_copy_global_to_shared(k, at, k_full.index(stage), k_tiles.index(stage))
            if block == 0:
                fetch_rows(q, q_tiles, q_free, q_full, b_of_rows, h, first_row + m, nth)
            mbarrier.wait(v_free.index(stage), parity)
            mbarrier.expect(v_full.index(stage), BLOCK_N * BLOCK_D * ITEM)
            if IS_PIECED:
                fetch_pages(v, v_tiles.index(stage), v_full.index(stage), pages, g, BLOCK_N, BLOCK_D)
            else:
                tma.async_copy_global_to_shared(v, at, v_full.index(stage), v_tiles.index(stage))
            step += 1
        if last == first:
            fetch_rows(q, q_tiles, q_free, q_full, b_of_rows, h, first_row + m, nth)
