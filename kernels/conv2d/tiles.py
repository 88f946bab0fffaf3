"""Variant `tiles`: a program for each tile of output pixels and filters, through pointers. It runs on any card."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl

from tuner.kernels.conv2d.arguments import compiled_in, sliced_count
from tuner.kernels.conv2d.epilogue import activated
from tuner.kernels.conv2d.layer import has_runs, layer
from tuner.kernels.shared.products import corner_of, joined
from tuner.kernels.shared.windows import power_of_2_in
from tuner.kernels.spec import Launch, Problem, itemsize


@triton.jit
def within(place, size):
    """Return which places are in the image, along one axis."""
    return (place >= 0) & (place < size)


@triton.jit(do_not_specialize=["group_m"])
def conv2d_tiles(
    x, weight, out, bias, partials, arrived, M, H, W, C_UNITS, N, P, Q, group_m,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PADDING_H: tl.constexpr, PADDING_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    RUN: tl.constexpr, VECTOR: tl.constexpr, INSIDE: tl.constexpr, WHOLE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
    PRECISION: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute a tile, or a slice of it along K.

    No window is copied: a step along K reads BLOCK_K channels of one pixel of each window, at distances from the
    windows' first pixels that are the same for all of them. With RUN, it reads BLOCK_K elements of a row of each
    window, whose pixels are neighbours in memory.
    """
    C = C_UNITS * VECTOR
    LENGTH = S * C if RUN else C
    ACROSS: tl.constexpr = 1 if RUN else S
    slot = tl.program_id(0)
    first_m, first_n = corner_of(slot // SPLIT_K, M, N, group_m, BLOCK_M, BLOCK_N)
    blocks = tl.cdiv(LENGTH, BLOCK_K)
    steps = R * ACROSS * blocks
    first = steps * (slot % SPLIT_K) // SPLIT_K
    end = steps * (slot % SPLIT_K + 1) // SPLIT_K

    # Rows past the end wrap around: their loads stay in bounds without a mask, and they are not stored.
    m = (first_m + tl.arange(0, BLOCK_M)) % M
    n = ((first_n + tl.arange(0, BLOCK_N)) % N).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    h = m // Q % P * STRIDE_H - PADDING_H
    w = m % Q * STRIDE_W - PADDING_W
    row = tl.cast(W, tl.int64) * C
    windows = x + ((m // Q // P).to(tl.int64) * H + h) * row + w.to(tl.int64) * C
    filters = weight + n * (R * S * C)

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(first, end):
        tap = step // blocks
        c = step % blocks * BLOCK_K + k
        r = tap // ACROSS * DILATION_H
        s = tap % ACROSS * DILATION_W
        pixels = windows[:, None] + (r * row + s * C + c)[None, :]
        read = filters[None, :] + (tap * LENGTH + c)[:, None]
        if RUN:
            place = (w * C)[:, None] + c[None, :]
            inside = within(h + r, H)[:, None] & within(place, W * C)
        else:
            inside = (within(h + r, H) & within(w + s, W))[:, None]
        if WHOLE:
            x_tile = tl.load(pixels) if INSIDE else tl.load(pixels, mask=inside, other=0.0)
            w_tile = tl.load(read)
        else:
            there = c < LENGTH
            x_tile = tl.load(pixels, mask=inside & there[None, :], other=0.0)
            w_tile = tl.load(read, mask=there[:, None], other=0.0)
        acc = tl.dot(x_tile, w_tile, acc, input_precision=PRECISION)

    done = True
    if SPLIT_K > 1:
        acc, done = joined(acc, partials, arrived, slot, SPLIT_K, BLOCK_M, BLOCK_N)
    if done:
        pixel = first_m + tl.arange(0, BLOCK_M)
        column = first_n + tl.arange(0, BLOCK_N)
        acc = activated(acc, bias, column, N, ACTIVATION)
        place = out + pixel.to(tl.int64)[:, None] * N + column[None, :]
        tl.store(place, acc.to(out.dtype.element_ty), mask=(pixel < M)[:, None] & (column < N)[None, :])


def tiles(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    found = layer(problem)
    rows, columns, block_k = found.rows, found.columns, config["BLOCK_K"]
    run = has_runs(problem, block_k)
    length = found.channels * (columns.window if run else 1)
    vector = power_of_2_in(16 // itemsize(problem.dtype), found.channels)
    pointers = [tensors.get(name) for name in ("x", "weight", "out", "bias", "partials", "arrived")]
    sizes = (found.pixels, rows.size, columns.size, found.channels // vector, found.filters, rows.count, columns.count)
    return Launch(
        conv2d_tiles,
        grid=(sliced_count(problem, config),),
        args=(*pointers, *sizes, config["GROUP_M"]),
        kwargs=compiled_in(problem, config)
        | {
            "STRIDE_H": rows.stride,
            "STRIDE_W": columns.stride,
            "RUN": run,
            "VECTOR": vector,
            "INSIDE": found.is_inside,
            "WHOLE": length % block_k == 0,
        },
    )
