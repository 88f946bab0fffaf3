"""Device code of pooling: how the values of windows are combined, and vectors that a thread takes apart."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def empty(MAX: tl.constexpr):
    """Return the value of a window without elements."""
    return -float("inf") if MAX else 0.0


@triton.jit
def larger(a, b):
    """Return the larger of two values, NaN if one is NaN."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def added(a, b):
    """Return the sum of two values."""
    return a + b


@triton.jit
def combined(a, b, MAX: tl.constexpr):
    """Return the value of two parts of a window."""
    return larger(a, b) if MAX else a + b


@triton.jit
def reduced(values, axis: tl.constexpr, MAX: tl.constexpr):
    """Return the value of all elements along an axis."""
    return tl.reduce(values, axis, larger if MAX else added)


@triton.jit
def taken_apart(values, COUNT: tl.constexpr):
    """Return the COUNT elements of the last dim of (rows, groups, COUNT), each a tensor (rows, groups).

    A thread holds whole vectors, so nothing moves between threads.
    """
    if COUNT == 1:
        parts = (tl.reshape(values, (values.shape[0], values.shape[1])),)
    else:
        pairs = tl.reshape(values, (values.shape[0], values.shape[1], COUNT // 2, 2))
        even, odd = tl.split(pairs)
        evens = taken_apart(even, COUNT // 2)
        odds = taken_apart(odd, COUNT // 2)
        parts = ()  # type: ignore[assignment]
        for i in tl.static_range(COUNT // 2):
            parts = parts + (evens[i], odds[i])  # type: ignore[assignment]
    return parts


@triton.jit
def put_together(parts, FIRST: tl.constexpr, STEP: tl.constexpr, COUNT: tl.constexpr):
    """Return the tensors FIRST, FIRST + STEP ... of `parts`, COUNT in all, as the last dim of one tensor."""
    if COUNT == 1:
        together = parts[FIRST][:, :, None]
    else:
        evens = put_together(parts, FIRST, STEP * 2, COUNT // 2)
        odds = put_together(parts, FIRST + STEP, STEP * 2, COUNT // 2)
        both = tl.join(evens, odds)
        together = tl.reshape(both, (both.shape[0], both.shape[1], COUNT))
    return together


@triton.jit
def combined_along(
    columns, FIRST: tl.constexpr, S: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr, COUNT: tl.constexpr,
    MAX: tl.constexpr,
):  # fmt: skip
    """Return the values of COUNT windows along one row of an image, of which `columns` has each column in fp32.

    The first window begins at column FIRST.
    """
    values = ()
    for q in tl.static_range(COUNT):
        value = columns[FIRST + q * STRIDE]
        for s in tl.static_range(1, S):
            value = combined(value, columns[FIRST + q * STRIDE + s * DILATION], MAX)
        values = values + (value,)  # type: ignore[assignment]
    return values


@triton.jit
def combined_down(
    rows, R: tl.constexpr, STRIDE: tl.constexpr, DILATION: tl.constexpr, P: tl.constexpr, COUNT: tl.constexpr,
    MAX: tl.constexpr,
):  # fmt: skip
    """Return the values of P x COUNT windows, of which `rows` has the values of each row of the image."""
    values = ()
    for p in tl.static_range(P):
        for q in tl.static_range(COUNT):
            value = rows[p * STRIDE * COUNT + q]
            for r in tl.static_range(1, R):
                value = combined(value, rows[(p * STRIDE + r * DILATION) * COUNT + q], MAX)
            values = values + (value,)  # type: ignore[assignment]
    return values


@triton.jit
def values_of_windows(
    READ: tl.constexpr, row, pitch, image, h, H,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, PADDING_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, TILE_P: tl.constexpr, TILE_Q: tl.constexpr,
    VECTOR: tl.constexpr, UNROLLED: tl.constexpr, HIGH: tl.constexpr, WIDE: tl.constexpr, MAX: tl.constexpr,
):  # fmt: skip
    """Return the values of TILE_P x TILE_Q windows of each group, as tiles (HIGH, WIDE).

    A row of an image that several rows of outputs need is read once. If rows are looped over and are dilated, TILE_P
    is 1.

    Args:
        READ: returns the values of TILE_Q windows in one row, given a pointer to it and whether it is in the image.
        row, h: pointer to the first row and its number, which may be above the image.
        pitch: elements from row to row.
        image: what else READ takes of the image.
    """
    if UNROLLED:
        ROWS: tl.constexpr = (TILE_P - 1) * STRIDE_H + (R - 1) * DILATION_H + 1
        rows = ()
        for r in tl.static_range(ROWS):
            there = (h + r >= 0) & (h + r < H)
            rows = rows + READ(row + r * pitch, there, image, S, STRIDE_W, PADDING_W, DILATION_W, TILE_Q, VECTOR, MAX)
        values = combined_down(rows, R, STRIDE_H, DILATION_H, TILE_P, TILE_Q, MAX)
    else:
        LAST: tl.constexpr = (TILE_P - 1) * STRIDE_H + (R - 1) * DILATION_H
        values = (tl.full((HIGH, WIDE), empty(MAX), tl.float32),) * (TILE_P * TILE_Q)
        for r in range(0, LAST + 1, DILATION_H):
            there = (h + r >= 0) & (h + r < H)
            more = READ(row + r * pitch, there, image, S, STRIDE_W, PADDING_W, DILATION_W, TILE_Q, VECTOR, MAX)
            both = ()
            for p in tl.static_range(TILE_P):
                is_own = (r >= p * STRIDE_H) & (r < p * STRIDE_H + R)
                for q in tl.static_range(TILE_Q):
                    value = combined(values[p * TILE_Q + q], more[q], MAX)
                    if TILE_P > 1:  # all rows are of a single window
                        value = tl.where(is_own, value, values[p * TILE_Q + q])
                    both = both + (value,)  # type: ignore[assignment]
            values = both
    return values


@triton.jit
def counted(first, size, WINDOW: tl.constexpr, PADDING: tl.constexpr, COUNT_PADDING: tl.constexpr):
    """Return the number of elements, along one axis, by which the sum of a window that begins at `first` is divided."""
    end = first + WINDOW
    if not COUNT_PADDING:
        first = tl.maximum(first, 0)
        size -= PADDING
    return tl.minimum(end, size + PADDING) - first


@triton.jit
def divided(
    value, p, q, H, W, R, S, divisor,
    STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr, PADDING_H: tl.constexpr, PADDING_W: tl.constexpr,
    COUNTED: tl.constexpr, COUNT_PADDING: tl.constexpr,
):  # fmt: skip
    """Return sums divided by a number, or by the elements that are counted of each window."""
    if COUNTED:
        high = counted(p * STRIDE_H - PADDING_H, H, R, PADDING_H, COUNT_PADDING)
        wide = counted(q * STRIDE_W - PADDING_W, W, S, PADDING_W, COUNT_PADDING)
        divisor = high.to(tl.float32) * wide.to(tl.float32)
    return value / divisor
