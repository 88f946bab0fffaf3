"""Device code of pooling with large windows: the threads of a program share a window and combine what they read."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.arrivals import is_last
from tuner.kernels.shared.windows_values import combined, divided, empty, reduced


@triton.jit
def own(values, s, shift, end, GROUP: tl.constexpr, MAX: tl.constexpr):
    """Return values in fp32, without those of other rows in the first and the last group."""
    values = values.to(tl.float32)
    return values if GROUP == 1 else tl.where((s >= shift) & (s < end), values, empty(MAX))


@triton.jit
def rest_of(window, there, whole, shift, end, GROUP: tl.constexpr, MAX: tl.constexpr):
    """Return the value of the fewer than GROUP elements of each window from `whole` on."""
    s = whole + tl.arange(0, GROUP)[None, :]
    values = tl.load(window + s, mask=there[:, None] & (s >= shift) & (s < end), other=empty(MAX))
    return reduced(values.to(tl.float32), 1, MAX)


@triton.jit
def joined_parts(found, arrived, value, place, there, outputs, tile, part, SPLIT: tl.constexpr, MAX: tl.constexpr):
    """Return the value of whole windows and whether to write it: the last program of a tile has it.

    Parts are combined in the same order each time, so that results repeat.

    Args:
        found: values of parts (SPLIT, outputs).
        arrived: number of programs of each tile that have written theirs.
    """
    tl.store(found + part.to(tl.int64) * outputs + place, value, mask=there)
    there = tl.where(is_last(arrived + tile, SPLIT), there, False)
    parts = tl.arange(0, SPLIT).to(tl.int64)[:, None] * outputs + place[None, :]
    values = tl.load(found + parts, mask=there[None, :], other=empty(MAX), cache_modifier=".cg")
    return reduced(values, 0, MAX), there


@triton.jit
def reduced_nchw(
    x, out, found, arrived, outputs, H, W, Q, per_plane, R, S_UNITS, divisor,
    plane_units, p_units, q_units, r_units, before_units,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, PADDING_H: tl.constexpr, PADDING_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    MAX: tl.constexpr, COUNTED: tl.constexpr, COUNT_PADDING: tl.constexpr, INSIDE: tl.constexpr, WIDE: tl.constexpr,
    VECTOR: tl.constexpr, GROUP: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr,
    STAGES: tl.constexpr, UNROLLED: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_N outputs, or one of SPLIT parts of them, from rows of S elements, BLOCK_K at once.

    Windows of whole rows of an image are contiguous: one row of all their elements. A short one is read at once, in
    UNROLLED blocks of few threads: the fewer share a row, the fewer steps combine what they have read. If rows begin
    within 16 bytes, a program reads groups of GROUP elements, 16 bytes, and ignores those of other rows. The elements
    after the last whole group of x are read one by one, since what follows may be no memory.

    Args:
        per_plane: outputs of a plane.
        plane_units, p_units, q_units, r_units: elements between planes, rows and columns of outputs, and rows of a
            window, in units of VECTOR elements.
        before_units: elements of padding before the first window, in the same units.
    """
    S = S_UNITS * VECTOR
    part = tl.program_id(0) % SPLIT
    tile = tl.program_id(0) // SPLIT
    first = tile.to(tl.int64) if WIDE else tile
    n = first * BLOCK_N + tl.arange(0, BLOCK_N)
    there = n < outputs
    plane = n // per_plane
    row = (n - plane * per_plane) // Q
    p, q = row.to(tl.int32), (n - plane * per_plane - row * Q).to(tl.int32)
    start = plane.to(tl.int64) * plane_units + p.to(tl.int64) * p_units + q.to(tl.int64) * q_units - before_units
    start *= VECTOR
    shift = (start % GROUP).to(tl.int32)[:, None]
    end = shift + S
    group = (start // GROUP * GROUP)[:, None]
    window = x + group
    whole = end
    if GROUP > 1:  # to the last whole group of x
        size = tl.cast(outputs // per_plane, tl.int64) * plane_units
        whole = tl.minimum(end.to(tl.int64), size // GROUP * GROUP - group).to(end.dtype)
    k = tl.arange(0, BLOCK_K)[None, :]

    values = tl.full((BLOCK_N, BLOCK_K), empty(MAX), tl.float32)
    if UNROLLED > 0:
        for step in tl.static_range(UNROLLED):
            s = step * BLOCK_K + k
            mask = there[:, None] & (s // GROUP * GROUP < whole)
            more = own(tl.load(window + s, mask=mask, other=empty(MAX)), s, shift, end, GROUP, MAX)
            values = combined(values, more, MAX)
    else:
        blocks = tl.cdiv(S + GROUP - 1, BLOCK_K)
        steps = R * blocks
        each = tl.cdiv(steps, SPLIT)
        for step in tl.range(part * each, tl.minimum(steps, (part + 1) * each), num_stages=STAGES):
            r = step // blocks
            block = (step - r * blocks).to(tl.int64) if WIDE else step - r * blocks
            s = block * BLOCK_K + k
            mask = there[:, None] & (s // GROUP * GROUP < whole)
            if not INSIDE:
                h = (p * STRIDE_H - PADDING_H + r * DILATION_H)[:, None]
                w = (q * STRIDE_W - PADDING_W)[:, None] + s * DILATION_W
                mask = mask & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            line = window + r.to(tl.int64) * r_units * VECTOR
            more = own(tl.load(line + s * DILATION_W, mask=mask, other=empty(MAX)), s, shift, end, GROUP, MAX)
            values = combined(values, more, MAX)
    value = reduced(values, 1, MAX)
    if GROUP > 1:
        if (part == SPLIT - 1) & ((first + 1) * BLOCK_N > outputs - per_plane):  # windows of the last plane
            value = combined(value, rest_of(window, there, whole, shift, end, GROUP, MAX), MAX)

    if SPLIT > 1:
        value, there = joined_parts(found, arrived, value, n, there, outputs, tile, part, SPLIT, MAX)
    if not MAX:
        value = divided(
            value, p, q, H, W, R, S, divisor, STRIDE_H, STRIDE_W, PADDING_H, PADDING_W, COUNTED, COUNT_PADDING
        )
    tl.store(out + n, value.to(out.dtype.element_ty), mask=there)


@triton.jit
def reduced_nhwc(
    x, out, found, arrived, outputs, H, W, C_UNITS, P, Q, R, S, divisor,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, PADDING_H: tl.constexpr, PADDING_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    MAX: tl.constexpr, COUNTED: tl.constexpr, COUNT_PADDING: tl.constexpr, INSIDE: tl.constexpr, WIDE: tl.constexpr,
    VECTOR: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT: tl.constexpr, STAGES: tl.constexpr,
    UNROLLED: tl.constexpr,
):  # fmt: skip
    """Compute BLOCK_N channels of one output pixel, or one of SPLIT parts of them, from BLOCK_K pixels at once."""
    C = C_UNITS * VECTOR
    blocks_c = tl.cdiv(C, BLOCK_N)
    part = tl.program_id(0) % SPLIT
    tile = tl.program_id(0) // SPLIT
    pixel = tile // blocks_c
    channel = (tile - pixel * blocks_c) * BLOCK_N + tl.arange(0, BLOCK_N)
    there = channel < C
    q = pixel % Q
    p = pixel // Q % P
    image = pixel // Q // P
    first_h = p * STRIDE_H - PADDING_H
    first_w = q * STRIDE_W - PADDING_W
    window = x + ((image.to(tl.int64) * H + first_h) * W + first_w) * C + channel[None, :]
    k = tl.arange(0, BLOCK_K)[:, None]

    values = tl.full((BLOCK_K, BLOCK_N), empty(MAX), tl.float32)
    if UNROLLED > 0:
        for step in tl.static_range(UNROLLED):
            s = step * BLOCK_K + k
            mask = there[None, :] & (s < S)
            more = tl.load(window + s.to(tl.int64) * C, mask=mask, other=empty(MAX)).to(tl.float32)
            values = combined(values, more, MAX)
    else:
        blocks = tl.cdiv(S, BLOCK_K)
        steps = R * blocks
        each = tl.cdiv(steps, SPLIT)
        for step in tl.range(part * each, tl.minimum(steps, (part + 1) * each), num_stages=STAGES):
            r = step // blocks
            block = (step - r * blocks).to(tl.int64) if WIDE else step - r * blocks
            s = block * BLOCK_K + k
            mask = there[None, :] & (s < S)
            if not INSIDE:
                h = first_h + r * DILATION_H
                w = first_w + s * DILATION_W
                mask = mask & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            pixels = window + (r.to(tl.int64) * DILATION_H * W + s.to(tl.int64) * DILATION_W) * C
            more = tl.load(pixels, mask=mask, other=empty(MAX)).to(tl.float32)
            values = combined(values, more, MAX)
    value = reduced(values, 0, MAX)

    place = pixel.to(tl.int64) * C + channel
    if SPLIT > 1:
        value, there = joined_parts(found, arrived, value, place, there, outputs, tile, part, SPLIT, MAX)
    if not MAX:
        value = divided(
            value, p, q, H, W, R, S, divisor, STRIDE_H, STRIDE_W, PADDING_H, PADDING_W, COUNTED, COUNT_PADDING
        )
    tl.store(out + place, value.to(out.dtype.element_ty), mask=there)
