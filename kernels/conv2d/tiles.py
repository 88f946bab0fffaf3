"""Variant `tiles`: a program for each tile of output pixels and filters, through pointers. It runs on any card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

import triton
import triton.language as tl

from tuner.kernels.conv2d.arguments import compiled_in, sliced_count
from tuner.kernels.conv2d.layer import MOST_ROWS, Run, filters_at_once, has_runs, layer, run_of
from tuner.kernels.shared.products import corner_of, finished, joined
from tuner.kernels.shared.windows import power_of_2_in
from tuner.kernels.spec import Launch, Problem, itemsize


@triton.jit
def within(place, size):
    """Return which places are in the image, along one axis."""
    return (place >= 0) & (place < size)


@triton.jit(do_not_specialize=["group_m"])
def conv2d_tiles(
    x, weight, out, bias, partials, arrived, M, H, ROW_UNITS, STEP_UNITS, LEAD_UNITS, LENGTH_UNITS, FILTER_UNITS,
    P, Q, group_m,
    R: tl.constexpr, S: tl.constexpr, STRIDE_H: tl.constexpr, PADDING_H: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    RUN: tl.constexpr, BEFORE: tl.constexpr, UNIT: tl.constexpr, FILTER_UNIT: tl.constexpr,
    INSIDE: tl.constexpr, WHOLE: tl.constexpr, WIDE: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
    PRECISION: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute a tile, or a slice of it along K.

    No window is copied: a step along K reads BLOCK_K channels of one pixel of each window, at distances from the
    windows' first pixels that are the same for all of them. With RUN, it reads BLOCK_K elements of a row of each
    window, whose pixels are neighbours in memory, from BEFORE elements before the window on.

    Args:
        ROW_UNITS, STEP_UNITS, LEAD_UNITS, LENGTH_UNITS: elements of a row of an image, from window to window, from the
            first element that the first window reads to that of the image, and of a pixel or a row of a window; in
            units of UNIT.
        FILTER_UNITS: filters, in units of FILTER_UNIT: Triton then stores as many of them at once.
    """
    LENGTH, N = LENGTH_UNITS * UNIT, FILTER_UNITS * FILTER_UNIT
    ACROSS: tl.constexpr = 1 if RUN else S
    slot = tl.program_id(0)
    first_m, first_n = corner_of(slot // SPLIT_K, M, N, group_m, BLOCK_M, BLOCK_N)
    blocks = tl.cdiv(LENGTH, BLOCK_K)
    steps = R * ACROSS * blocks
    first = steps * (slot % SPLIT_K) // SPLIT_K
    end = steps * (slot % SPLIT_K + 1) // SPLIT_K

    # Rows past the end are the last one: their loads stay in bounds without a mask, and they are not stored.
    m = tl.minimum(first_m + tl.arange(0, BLOCK_M), M - 1).to(tl.uint32)  # divided in half of the time
    n = tl.minimum(first_n + tl.arange(0, BLOCK_N), N - 1).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    q = (m % tl.cast(Q, tl.uint32)).to(tl.int64 if WIDE else tl.int32)
    rows = m // tl.cast(Q, tl.uint32)
    h = (rows % tl.cast(P, tl.uint32)).to(tl.int32) * STRIDE_H - PADDING_H
    images = (rows // tl.cast(P, tl.uint32)).to(tl.int64)
    row = tl.cast(ROW_UNITS, tl.int64) * UNIT
    width = row if WIDE else ROW_UNITS * UNIT
    w = (q * STEP_UNITS - LEAD_UNITS) * UNIT
    windows = x + (images * H + h) * row + w
    filters = weight + n * (R * ACROSS * (LENGTH - BEFORE)) - BEFORE

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(first, end):
        tap = step // blocks
        c = step % blocks * BLOCK_K + k
        r = tap // ACROSS * DILATION_H
        s = tap % ACROSS * DILATION_W * LENGTH
        pixels = windows[:, None] + (r * row + s + c)[None, :]
        read = filters[None, :] + (tap * (LENGTH - BEFORE) + c)[:, None]
        if RUN:
            inside = within(h + r, H)[:, None] & within(w[:, None] + c[None, :], width)
        else:
            inside = (within(h + r, H) & within(w + s, width))[:, None]
        if WHOLE:
            x_tile = tl.load(pixels) if INSIDE else tl.load(pixels, mask=inside, other=0.0)
            w_tile = tl.load(read)
        else:
            within_run = (c < LENGTH)[None, :]
            x_tile = tl.load(pixels, mask=within_run if INSIDE else inside & within_run, other=0.0)
            w_tile = tl.load(read, mask=((c >= BEFORE) & (c < LENGTH))[:, None], other=0.0)
            if BEFORE > 0:  # NaN and infinities there are not of the window
                x_tile = tl.where((c >= BEFORE)[None, :], x_tile, 0.0)
        acc = tl.dot(x_tile, w_tile, acc, input_precision=PRECISION)

    done = True
    if SPLIT_K > 1:
        acc, done = joined(acc, partials, arrived, slot, SPLIT_K, BLOCK_M, BLOCK_N)
    if done:
        pixel = first_m + tl.arange(0, BLOCK_M)
        column = first_n + tl.arange(0, BLOCK_N)
        acc = finished(acc, bias, column, N, ACTIVATION, out.dtype.element_ty)
        place = out + pixel.to(tl.int64)[:, None] * N + column[None, :]
        tl.store(place, acc.to(out.dtype.element_ty), mask=(pixel < M)[:, None] & (column < N)[None, :])


def tiles(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    found, run = layer(problem), has_runs(problem, config["BLOCK_K"])
    rows, columns, C = found.rows, found.columns, found.channels
    unit, before, length = astuple(
        run_of(problem) if run else Run(power_of_2_in(16 // itemsize(problem.dtype), C), 0, C)
    )
    row, step, lead = columns.size * C, columns.stride * C, columns.padding * C + before
    pointers = [tensors.get(name) for name in ("x", "weight", "out", "bias", "partials", "arrived")]
    units = (row // unit, step // unit, lead // unit, length // unit)
    filter_unit = filters_at_once(problem)
    sizes = (found.filters // filter_unit, rows.count, columns.count)
    compiled = compiled_in(problem, config)
    del compiled["PADDING_W"]
    return Launch(
        conv2d_tiles,
        grid=(sliced_count(problem, config),),
        args=(*pointers, found.pixels, rows.size, *units, *sizes, config["GROUP_M"]),
        kwargs=compiled
        | {
            "STRIDE_H": rows.stride,
            "RUN": run,
            "BEFORE": before,
            "UNIT": unit,
            "FILTER_UNIT": filter_unit,
            "INSIDE": found.is_inside,
            "WHOLE": before == 0 and length % config["BLOCK_K"] == 0,
            "WIDE": row + 2 * lead + length + columns.reach * C > MOST_ROWS,
        },
    )
