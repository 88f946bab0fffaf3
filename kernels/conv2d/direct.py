"""Variant `direct`: few channels, loaded from the caches straight into the registers that multiply, for Hopper.

Windows of few channels are small: 7 x 7 pixels of 3 channels are 147 elements, and neighbours share most of them. A
tile of 128 windows has 38 KB of elements, but reads about 10 KB of x, so its loads find most in the first cache. Shared
memory holds the filters only, once for all tiles of a program. The tensor cores (wgmma) take windows from registers,
where what was read beside a window is replaced by zeros. Gluon leaves the assignment of elements to threads to the
kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, warpgroup_mma, warpgroup_mma_wait

from tuner.kernels.conv2d.arguments import compiled_in
from tuner.kernels.conv2d.layer import direct_steps, filters_at_once, layer, run_of
from tuner.kernels.conv2d.space import tile_count
from tuner.kernels.shared.products import finished
from tuner.kernels.shared.stream_k import sums_layout
from tuner.kernels.spec import Launch, Problem, cdiv


@gluon.constexpr_function
def stored_layout(columns):
    """Return the layout in which four warps store rows of a tile, 16 bytes a thread."""
    across = min(32, columns // 8)
    return gl.BlockedLayout([1, 8], [32 // across, across], [4, 1], [1, 0])


@gluon.jit
def below(place, size):
    """Return which places are in the image, along one axis. Negative ones are large without their sign."""
    return place.to(gl.uint32, bitcast=True) < tl.cast(size, tl.uint32)


@gluon.jit
def filters_of(
    weight, step, first_n, N, LAYOUT: gl.constexpr, R: gl.constexpr, LENGTH: gl.constexpr, BEFORE: gl.constexpr,
    BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr,
):  # fmt: skip
    """Return a step of the filters (BLOCK_N, BLOCK_K), with zeros where windows have none of their elements."""
    OWN: gl.constexpr = LENGTH - BEFORE
    n = first_n + gl.arange(0, BLOCK_N, gl.SliceLayout(1, LAYOUT))[:, None]
    k = step * BLOCK_K + gl.arange(0, BLOCK_K, gl.SliceLayout(0, LAYOUT))[None, :]
    c = k % LENGTH - BEFORE
    there = (n < N) & (k < R * LENGTH) & (c >= 0)
    return gl.load(weight + n.to(gl.int64) * (R * OWN) + (k // LENGTH * OWN + c), mask=there, other=0.0)


@gluon.jit
def windows_of(
    x, tile, M, H, P, Q, row_units, step_units, lead_units, step,
    LAYOUT: gl.constexpr, R: gl.constexpr, STRIDE_H: gl.constexpr, PADDING_H: gl.constexpr, DILATION_H: gl.constexpr,
    LENGTH: gl.constexpr, BEFORE: gl.constexpr, UNIT: gl.constexpr, INSIDE: gl.constexpr,
    BLOCK_M: gl.constexpr, BLOCK_K: gl.constexpr,
):  # fmt: skip
    """Return a step of the windows of a tile (BLOCK_M, BLOCK_K), with zeros outside of the image.

    Windows past the end are the last one: their loads stay in bounds, and they are not stored.
    """
    m = gl.minimum(tile * BLOCK_M + gl.arange(0, BLOCK_M, gl.SliceLayout(1, LAYOUT)), M - 1)
    rows = m // Q
    w = (m % Q * step_units - lead_units) * UNIT
    h = rows % P * STRIDE_H - PADDING_H
    row = row_units * UNIT
    first = x + ((rows // P).to(gl.int64) * H + h) * row + w
    k = step * BLOCK_K + gl.arange(0, BLOCK_K, gl.SliceLayout(0, LAYOUT))
    r = k // LENGTH * DILATION_H
    c = k % LENGTH
    there = (k < R * LENGTH)[None, :]
    if not INSIDE:
        there = there & below(h[:, None] + r[None, :], H) & below(w[:, None] + c[None, :], row)
    values = gl.load(first[:, None] + (r * row + c)[None, :], mask=there, other=0.0)
    if BEFORE > 0:
        values = gl.where((c >= BEFORE)[None, :], values, gl.zeros_like(values))
    return values


@gluon.jit(do_not_specialize=["group_m"])
def conv2d_direct(
    x, weight, out, bias, M, H, row_units, step_units, lead_units, filter_units, P, Q, group_m,
    R: gl.constexpr, STRIDE_H: gl.constexpr, PADDING_H: gl.constexpr, DILATION_H: gl.constexpr,
    LENGTH: gl.constexpr, BEFORE: gl.constexpr, UNIT: gl.constexpr, FILTER_UNIT: gl.constexpr, INSIDE: gl.constexpr,
    STEPS: gl.constexpr, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, BLOCK_K: gl.constexpr, ACTIVATION: gl.constexpr,
):  # fmt: skip
    """Compute `group_m` tiles of output pixels, one after the other, with the same filters.

    Args:
        row_units, step_units, lead_units: elements of a row of an image, from window to window, and from the first
            element that the first window reads to that of the image; in units of UNIT.
        filter_units: filters, in units of FILTER_UNIT: Triton then stores as many of them at once.
    """
    N = filter_units * FILTER_UNIT
    SUMS: gl.constexpr = sums_layout(BLOCK_N, 16)
    LEFT: gl.constexpr = gl.DotOperandLayout(0, SUMS, 2)
    STORED: gl.constexpr = stored_layout(BLOCK_N)
    READ: gl.constexpr = gl.BlockedLayout([1, 1], [32 // BLOCK_K, BLOCK_K] if BLOCK_K < 32 else [1, 32], [4, 1], [1, 0])
    dtype: gl.constexpr = out.dtype.element_ty
    across = gl.cdiv(N, BLOCK_N)
    first_n = gl.program_id(0) % across * BLOCK_N
    first = gl.program_id(0) // across * group_m
    shared: gl.constexpr = gl.NVMMASharedLayout.get_default_for([BLOCK_N, BLOCK_K], dtype)
    filters = gl.allocate_shared_memory(dtype, [STEPS, BLOCK_N, BLOCK_K], shared)
    for step in gl.static_range(STEPS):
        filters.index(step).store(filters_of(weight, step, first_n, N, READ, R, LENGTH, BEFORE, BLOCK_N, BLOCK_K))
    fence_async_shared()
    tl.debug_barrier()  # all threads have written before one multiplies

    for tile in range(first, min(first + group_m, gl.cdiv(M, BLOCK_M))):
        # All loads are issued before the first product.
        windows = ()
        for step in gl.static_range(STEPS):
            loaded = windows_of(
                x, tile, M, H, P, Q, row_units, step_units, lead_units, step, LEFT, R, STRIDE_H, PADDING_H, DILATION_H,
                LENGTH, BEFORE, UNIT, INSIDE, BLOCK_M, BLOCK_K,
            )  # fmt: skip
            windows = windows + (loaded,)  # type: ignore[assignment]
        acc = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, SUMS)
        for step in gl.static_range(STEPS):
            acc = warpgroup_mma(windows[step], filters.index(step).permute((1, 0)), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=(acc,) + windows)[0]
        column = first_n + gl.arange(0, BLOCK_N, gl.SliceLayout(0, SUMS))
        stored = gl.convert_layout(finished(acc, bias, column, N, ACTIVATION, dtype).to(dtype), STORED)
        pixel = tile * BLOCK_M + gl.arange(0, BLOCK_M, gl.SliceLayout(1, STORED))
        column = first_n + gl.arange(0, BLOCK_N, gl.SliceLayout(0, STORED))
        place = out + pixel.to(gl.int64)[:, None] * N + column[None, :]
        gl.store(place, stored, mask=(pixel < M)[:, None] & (column < N)[None, :])


def direct(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    found, run = layer(problem), run_of(problem)
    rows, columns, C = found.rows, found.columns, found.channels
    units = [n // run.unit for n in (columns.size * C, columns.stride * C, columns.padding * C + run.before)]
    pointers = [tensors.get(name) for name in ("x", "weight", "out", "bias")]
    compiled = compiled_in(problem, config)
    unused = ("S", "PADDING_W", "DILATION_W", "PRECISION", "SPLIT_K", "num_stages")
    across = cdiv(found.filters, config["BLOCK_N"])
    filter_unit = filters_at_once(problem)
    sizes = (found.filters // filter_unit, rows.count, columns.count)
    return Launch(
        conv2d_direct,
        grid=(cdiv(tile_count(problem, config) // across, config["GROUP_M"]) * across,),
        args=(*pointers, found.pixels, rows.size, *units, *sizes, config["GROUP_M"]),
        kwargs={name: value for name, value in compiled.items() if name not in unused}
        | {
            "STRIDE_H": rows.stride,
            "LENGTH": run.length,
            "BEFORE": run.before,
            "UNIT": run.unit,
            "FILTER_UNIT": filter_unit,
            "INSIDE": found.is_inside,
            "STEPS": direct_steps(problem, config["BLOCK_K"]),
        },
    )
