"""Device code of pooling with channels contiguous: a thread computes TILE_P x TILE_Q outputs of its channels."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.windows_values import combined_along, divided, empty, values_of_windows


@triton.jit
def row_of_pixels(
    row, there, image,
    S: tl.constexpr, STRIDE_W: tl.constexpr, PADDING_W: tl.constexpr, DILATION_W: tl.constexpr,
    TILE_Q: tl.constexpr, VECTOR: tl.constexpr, MAX: tl.constexpr,
):  # fmt: skip
    """Return the values of TILE_Q windows in one row of an image, for each group of them (groups, channels).

    Args:
        row: pointer to the row.
        there: whether the row is in the image.
        image: first column of each group (groups, 1), without padding; numbers of columns and channels; channels of the
            program (1, channels).
    """
    first, W, C, channel = image
    LAST: tl.constexpr = (TILE_Q - 1) * STRIDE_W + (S - 1) * DILATION_W
    columns = ()
    for i in tl.static_range(LAST + 1):
        column = first + (i - PADDING_W)
        # Triton 3.9's interpreter takes no mask that is `scalar & tensor`.
        mask = tl.where(there, (column >= 0) & (column < W) & (channel < C), False)
        pixel = row + column.to(tl.int64) * C + channel
        columns = columns + (tl.load(pixel, mask=mask, other=empty(MAX)).to(tl.float32),)  # type: ignore[assignment]
    return combined_along(columns, 0, S, STRIDE_W, DILATION_W, TILE_Q, MAX)


@triton.jit
def windows_nhwc(
    x, out, H, W, C_UNITS, P, Q, divisor,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PADDING_H: tl.constexpr, PADDING_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    MAX: tl.constexpr, COUNTED: tl.constexpr, COUNT_PADDING: tl.constexpr,
    VECTOR: tl.constexpr, WIDE: tl.constexpr, UNROLLED: tl.constexpr,
    TILE_P: tl.constexpr, TILE_Q: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_Q: tl.constexpr,
):  # fmt: skip
    """Compute TILE_P rows of outputs of one image, BLOCK_Q columns and BLOCK_N channels of each.

    Neighbours in memory are channels, which a thread reads 16 bytes at a time; pixels that several of its outputs need
    are read once.
    """
    GROUPS: tl.constexpr = BLOCK_Q // TILE_Q
    C = C_UNITS * VECTOR
    blocks_c = tl.cdiv(C, BLOCK_N)
    blocks_q = tl.cdiv(Q, BLOCK_Q)
    groups = tl.cdiv(P, TILE_P)
    program = tl.program_id(0)
    if WIDE:
        program = program.to(tl.int64)
    channel = ((program % blocks_c) * BLOCK_N).to(tl.int32) + tl.arange(0, BLOCK_N)[None, :]
    q = ((program // blocks_c % blocks_q) * BLOCK_Q).to(tl.int32) + tl.arange(0, GROUPS)[:, None] * TILE_Q
    image = program // blocks_c // blocks_q // groups
    p = (((program // blocks_c // blocks_q) - image * groups) * TILE_P).to(tl.int32)

    h = p * STRIDE_H - PADDING_H
    row = x + (image.to(tl.int64) * H + h) * W * C
    values = values_of_windows(
        row_of_pixels, row, tl.cast(W, tl.int64) * C, (q * STRIDE_W, W, C, channel), h, H, R, S, STRIDE_H, STRIDE_W,
        PADDING_W, DILATION_H, DILATION_W, TILE_P, TILE_Q, VECTOR, UNROLLED, GROUPS, BLOCK_N, MAX,
    )  # fmt: skip

    for i in tl.static_range(TILE_P):
        for j in tl.static_range(TILE_Q):
            value = values[i * TILE_Q + j]
            column = q + j
            if not MAX:
                value = divided(
                    value, p + i, column, H, W, R, S, divisor,
                    STRIDE_H, STRIDE_W, PADDING_H, PADDING_W, COUNTED, COUNT_PADDING,
                )  # fmt: skip
            mask = tl.where(p + i < P, (column < Q) & (channel < C), False)
            place = out + ((image.to(tl.int64) * P + p + i) * Q + column) * C + channel
            tl.store(place, value.to(out.dtype.element_ty), mask=mask)
