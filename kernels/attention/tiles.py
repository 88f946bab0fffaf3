"""Variant `tiles`: a program for each tile of rows of a head, or of grouped heads, and each share of the keys."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.products import multiple

LN_2 = tl.constexpr(0.6931471805599453)


@triton.jit
def strides_of(outer, middle, inner, ALIGN: tl.constexpr):
    """Return strides, which must be multiples of ALIGN, in a form from which the compiler derives that."""
    return multiple(outer, ALIGN), multiple(middle, ALIGN), multiple(inner, ALIGN)


@triton.jit
def place_of(program, tiles, pairs, together, SPLITS: tl.constexpr):
    """Return the share of the keys, the pair of a sequence and a head, and the tile that a program has.

    Programs run roughly in order. Tiles of `together` pairs run together, so that those of a pair read the same keys
    from L2. With a causal mask, tiles of later rows see more keys. The last section ends with the first rows, so that
    no program starts a long tile while others end, and sections alternate, so that neighbours take equally long.
    """
    split = program % SPLITS
    nth = program // SPLITS
    section = nth // (together * tiles)
    width = min(together, pairs - section * together)
    within = nth - section * together * tiles
    tile, is_rising = within // width, (tl.cdiv(pairs, together) - section) % 2 == 0
    return split, section * together + within % width, tl.where(is_rising, tile, tiles - 1 - tile)


@triton.jit
def seen(
    first_position, last_position, keys, window, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr
):
    """Return the blocks of keys that some row of a tile sees, first and end, and those that each row sees whole."""
    begin, end, all_from, all_to = 0, keys, 0, keys
    if CAUSAL:
        end = max(0, min(keys, last_position + 1))
        all_to = max(0, min(keys, first_position + 1))
    if WINDOW:
        begin = max(0, first_position - window + 1)
        all_from = max(0, last_position - window + 1)
        if not CAUSAL:
            end = max(0, min(keys, last_position + window))
            all_to = max(0, min(keys, first_position + window))
    return begin // BLOCK_N, tl.cdiv(end, BLOCK_N), tl.cdiv(all_from, BLOCK_N), all_to // BLOCK_N


@triton.jit
def bounded_tanh(x):
    """Return tanh to 3 units of the last place, by exponentials that do not overflow.

    Near 0, where 1 - exp(-2 x) cancels, it is the polynomial of Cephes' tanhf.
    """
    square = x * x
    inner = (-5.70498872745e-3 * square + 2.06390887954e-2) * square - 5.37397155531e-2
    inner = ((inner * square + 1.33314422036e-1) * square - 3.33332819422e-1) * square
    below = tl.exp2(-2.8853900817779268 * tl.abs(x))  # exp(-2 |x|)
    outer = (1.0 - below) / (1.0 + below)
    return tl.where(tl.abs(x) < 0.625, inner * x + x, tl.where(x < 0.0, -outer, outer))


@triton.jit
def keys_at(base, block, keys, table, stride_page, stride_n, PAGE: tl.constexpr, BLOCK_N: tl.constexpr):
    """Return the addresses of a block of keys: at a stride, or in the pages that a table names."""
    first, within = block * BLOCK_N, tl.arange(0, BLOCK_N)
    if PAGE == 0:
        at = base + tl.full((), first, tl.int64) * stride_n + within * stride_n
    elif BLOCK_N <= PAGE:  # all of them in one page
        page = tl.load(table + first // PAGE).to(tl.int64)
        at = base + page * stride_page + (first % PAGE + within) * stride_n
    else:
        n = first + within
        page = tl.load(table + n // PAGE, mask=n < keys, other=0).to(tl.int64)
        at = base + page * stride_page + n % PAGE * stride_n
    return at


@triton.jit
def over(
    q_tile, acc, top, total, k, v, table, position, begin_block, end_block, keys, window, score, cap,
    stride_kp, stride_kn, stride_vp, stride_vn,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_N: tl.constexpr, PAGE: tl.constexpr, CAUSAL: tl.constexpr,
    WINDOW: tl.constexpr, CAPPED: tl.constexpr, MASKED: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """Add blocks of keys to a tile's sums: the softmax is online, in powers of 2.

    Args:
        score: factor of a product of q and k, in powers of 2.
        MASKED: some rows do not see some keys of these blocks.
    """
    d = tl.arange(0, BLOCK_D)
    in_head = d < D
    for block in tl.range(begin_block, end_block, num_stages=STAGES):
        n = block * BLOCK_N + tl.arange(0, BLOCK_N)
        at_k = keys_at(k, block, keys, table, stride_kp, stride_kn, PAGE, BLOCK_N)[None, :] + d[:, None]
        at_v = keys_at(v, block, keys, table, stride_vp, stride_vn, PAGE, BLOCK_N)[:, None] + d[None, :]
        if MASKED:
            keys_t = tl.load(at_k, mask=(n < keys)[None, :] & in_head[:, None], other=0.0)
            values = tl.load(at_v, mask=(n < keys)[:, None] & in_head[None, :], other=0.0)
        elif D == BLOCK_D:
            keys_t = tl.load(at_k)
            values = tl.load(at_v)
        else:
            keys_t = tl.load(at_k, mask=in_head[:, None], other=0.0)
            values = tl.load(at_v, mask=in_head[None, :], other=0.0)
        scores = tl.dot(q_tile, keys_t)
        factor = score
        if CAPPED:  # `cap` is in powers of 2 then, and `score` is not
            scores, factor = cap * bounded_tanh(scores * score), 1.0
        if MASKED:
            seen = (n < keys)[None, :]
            if CAUSAL:
                seen = seen & (n[None, :] <= position[:, None])
            if WINDOW:
                seen = seen & (n[None, :] > position[:, None] - window)
                if not CAUSAL:
                    seen = seen & (n[None, :] < position[:, None] + window)
            scores = tl.where(seen, scores, -float("inf"))
        new_top = tl.maximum(top, tl.max(scores, axis=1) * factor)
        # A row that has seen no key keeps a shift of 0, so that exp2(-inf - shift) is 0 and not NaN.
        shift = tl.where(new_top == -float("inf"), 0.0, new_top)
        weights = tl.exp2(scores * factor - shift[:, None])
        fading = tl.exp2(top - shift)
        total = total * fading + tl.sum(weights, axis=1)
        acc = tl.dot(weights.to(values.dtype), values, acc * fading[:, None])
        top = new_top
    return acc, top, total


@triton.jit(do_not_specialize=["heads", "tiles", "pairs", "together", "M", "N", "window", "all_rows"])
def attention_tiles(
    q, k, v, out, lse, partial, partial_lse, cu_q, cu_k, table, lengths,
    heads, tiles, pairs, together, M, N, window, score, cap, all_rows,
    stride_qb, stride_qh, stride_qm, stride_kb, stride_kh, stride_kn, stride_vb, stride_vh, stride_vn,
    stride_ob, stride_oh, stride_om, stride_lb, stride_lh, stride_lm, stride_t,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, SPLITS: tl.constexpr,
    PACK: tl.constexpr, SHARING: tl.constexpr, PAGE: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    CAPPED: tl.constexpr, STAGES: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Compute a tile of rows of one head, or of PACK heads that share keys.

    Rows of packed heads alternate: row r of the tile is row r // PACK of head r % PACK. The last row of a sequence sees
    its last key, so that row m is at position m + keys - rows.

    Args:
        heads: groups of PACK heads of a sequence. SHARING heads share keys.
        stride_kb, stride_vb: from one sequence, or from one page, to the next.
        partial, partial_lse: sums and logarithms of each share of the keys, if there are several.
        ALIGN: strides of q, k, v and out are multiples of it.
    """
    stride_qb, stride_qh, stride_qm = strides_of(stride_qb, stride_qh, stride_qm, ALIGN)
    stride_kb, stride_kh, stride_kn = strides_of(stride_kb, stride_kh, stride_kn, ALIGN)
    stride_vb, stride_vh, stride_vn = strides_of(stride_vb, stride_vh, stride_vn, ALIGN)
    stride_ob, stride_oh, stride_om = strides_of(stride_ob, stride_oh, stride_om, ALIGN)
    split, pair, tile = place_of(tl.program_id(0), tiles, pairs, together, SPLITS)
    sequence, head = pair // heads, pair % heads * PACK
    first_row, rows, keys = 0, M, N
    if cu_q is not None:
        first_row = tl.load(cu_q + sequence)
        rows = tl.load(cu_q + sequence + 1) - first_row
    if cu_k is not None:
        first_key = tl.load(cu_k + sequence)
        keys = tl.load(cu_k + sequence + 1) - first_key
        k += first_key.to(tl.int64) * stride_kn
        v += first_key.to(tl.int64) * stride_vn
    if lengths is not None:
        keys = tl.load(lengths + sequence)
    if tile * BLOCK_M >= rows * PACK:
        return

    b = sequence.to(tl.int64)
    r = tile * BLOCK_M + tl.arange(0, BLOCK_M)
    m, h = r // PACK, head + r % PACK
    exists = m < rows
    at_row = (first_row + m).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    stored = exists[:, None] & (d < D)[None, :]
    q_at = q + b * stride_qb + h.to(tl.int64) * stride_qh + at_row * stride_qm
    q_tile = tl.load(q_at[:, None] + d[None, :], mask=stored, other=0.0)

    shared_head = (head // SHARING).to(tl.int64)
    k += shared_head * stride_kh
    v += shared_head * stride_vh
    if PAGE > 0:
        table += b * stride_t
    else:
        k += b * stride_kb
        v += b * stride_vb

    position = m + keys - rows
    first_position = tile * BLOCK_M // PACK + keys - rows
    last_position = min((tile * BLOCK_M + BLOCK_M - 1) // PACK, rows - 1) + keys - rows
    first, last, whole_from, whole_to = seen(first_position, last_position, keys, window, BLOCK_N, CAUSAL, WINDOW)
    if SPLITS > 1:
        share = tl.cdiv(max(0, last - first), SPLITS)
        first += split * share
        last = min(last, first + share)
    last = max(first, last)
    whole_from = min(max(whole_from, first), last)
    whole_to = min(max(whole_to, whole_from), last)

    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    if WINDOW:
        acc, top, total = over(
            q_tile, acc, top, total, k, v, table, position, first, whole_from, keys, window, score, cap,
            stride_kb, stride_kn, stride_vb, stride_vn,
            D, BLOCK_D, BLOCK_N, PAGE, CAUSAL, WINDOW, CAPPED, True, STAGES,
        )  # fmt: skip
    acc, top, total = over(
        q_tile, acc, top, total, k, v, table, position, whole_from, whole_to, keys, window, score, cap,
        stride_kb, stride_kn, stride_vb, stride_vn,
        D, BLOCK_D, BLOCK_N, PAGE, CAUSAL, WINDOW, CAPPED, False, STAGES,
    )  # fmt: skip
    acc, top, total = over(
        q_tile, acc, top, total, k, v, table, position, whole_to, last, keys, window, score, cap,
        stride_kb, stride_kn, stride_vb, stride_vn,
        D, BLOCK_D, BLOCK_N, PAGE, CAUSAL, WINDOW, CAPPED, True, STAGES,
    )  # fmt: skip

    total = tl.where(total == 0.0, 1.0, total)  # a row that sees no key: its sums are 0 and its top is -inf
    acc = acc / total[:, None]
    logs = top + tl.log2(total)
    at_lse = b * stride_lb + h.to(tl.int64) * stride_lh + at_row * stride_lm
    if SPLITS > 1:
        at_lse += split.to(tl.int64) * all_rows
        tl.store(partial_lse + at_lse, logs, mask=exists)
        tl.store(partial + at_lse[:, None] * D + d[None, :], acc, mask=stored)
    else:
        if lse is not None:
            tl.store(lse + at_lse, logs * LN_2, mask=exists)
        at_out = out + b * stride_ob + h.to(tl.int64) * stride_oh + at_row * stride_om
        tl.store(at_out[:, None] + d[None, :], acc.to(out.dtype.element_ty), mask=stored)
