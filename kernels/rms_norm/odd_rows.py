"""Rows of an odd number of elements in a program's registers, read and written 16 bytes at once."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.rows_odd import ends, first_group, is_whole, read_groups, read_shifted


@triton.jit
def normalise_odd(
    x, weight, residual, out, residual_out, weights, end_weights, row, shift, N,
    stride_x, stride_r, stride_out, stride_ro, eps,
    BLOCK_N: tl.constexpr, CHUNKS: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Normalise a row of which `shift` elements of the first 16 bytes belong to the row before."""
    end, at_end = ends(shift, N, VEC)
    start = first_group(x, row, stride_x, VEC)
    values = read_groups(start, shift, N, BLOCK_N, CHUNKS, VEC)
    end_values = tl.load(start + end, mask=at_end, other=0.0)
    if residual is not None:
        start = first_group(residual, row, stride_r, VEC)
        added = read_groups(start, shift, N, BLOCK_N, CHUNKS, VEC)
        end_added = tl.load(start + end, mask=at_end, other=0.0)
        start = first_group(residual_out, row, stride_ro, VEC)
        sums = ()
        for chunk in tl.static_range(CHUNKS):
            both = values[chunk].to(tl.float32) + added[chunk].to(tl.float32)
            sums += (both.to(x.dtype.element_ty),)  # type: ignore[assignment]
            n = chunk * BLOCK_N + tl.arange(0, BLOCK_N)
            tl.store(start + n, sums[chunk], mask=is_whole(n, shift, N, VEC))
        values = sums
        end_values = (end_values.to(tl.float32) + end_added.to(tl.float32)).to(x.dtype.element_ty)
        tl.store(start + end, end_values, mask=at_end)
    squares = tl.zeros((BLOCK_N,), tl.float32)
    for chunk in tl.static_range(CHUNKS):
        squares += values[chunk].to(tl.float32) * values[chunk].to(tl.float32)
    end_numbers = end_values.to(tl.float32)
    total = tl.sum(squares, axis=0) + tl.sum(end_numbers * end_numbers, axis=0)
    scale = tl.rsqrt(total / N + eps)
    start = first_group(out, row, stride_out, VEC)
    for chunk in tl.static_range(CHUNKS):
        scaled = values[chunk].to(tl.float32) * scale
        if weight is not None:
            scaled = scaled * weights[chunk].to(tl.float32)
        n = chunk * BLOCK_N + tl.arange(0, BLOCK_N)
        tl.store(start + n, scaled.to(out.dtype.element_ty), mask=is_whole(n, shift, N, VEC))
    scaled = end_numbers * scale
    if weight is not None:
        scaled = scaled * end_weights.to(tl.float32)
    tl.store(start + end, scaled.to(out.dtype.element_ty), mask=at_end)


@triton.jit
def rms_norm_odd(
    x, weight, residual, out, residual_out, M, N, stride_x, stride_r, stride_out, stride_ro, eps,
    BLOCK_N: tl.constexpr, CHUNKS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Normalise a row, STEPS times. The rows of a program are a multiple of VEC apart, so all have the same shift.

    The weight is shifted too, which costs as much as an odd row. It stays in the registers.
    """
    first = tl.program_id(0)
    shift = (first % VEC) * (stride_x % VEC) % VEC
    end, at_end = ends(shift, N, VEC)
    weights = read_shifted(weight, shift, N, BLOCK_N, CHUNKS, VEC)
    end_weights = None
    if weight is not None:
        end_weights = tl.load(weight + end - shift, mask=at_end, other=0.0)
    if STEPS == 1:
        normalise_odd(
            x, weight, residual, out, residual_out, weights, end_weights, first, shift, N,
            stride_x, stride_r, stride_out, stride_ro, eps, BLOCK_N, CHUNKS, VEC,
        )  # fmt: skip
    else:
        for after in tl.range(0, M - first, tl.num_programs(0), num_stages=STAGES):
            normalise_odd(
                x, weight, residual, out, residual_out, weights, end_weights, first + after, shift, N,
                stride_x, stride_r, stride_out, stride_ro, eps, BLOCK_N, CHUNKS, VEC,
            )  # fmt: skip
