"""Rows of an odd number of elements in a program's registers, read and written 16 bytes at once."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.shared.rows_odd import ends, first_group, is_whole, read_groups, read_shifted


@triton.jit
def normalise_odd(
    x, weight, bias, out, mean, rstd, weights, biases, end_weights, end_biases, row, shift, N,
    stride_x, stride_out, eps, BLOCK_N: tl.constexpr, CHUNKS: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Normalise a row of which `shift` elements of the first 16 bytes belong to the row before."""
    end, at_end = ends(shift, N, VEC)
    start = first_group(x, row, stride_x, VEC)
    values = read_groups(start, shift, N, BLOCK_N, CHUNKS, VEC)
    end_values = tl.load(start + end, mask=at_end, other=0.0)
    total = tl.zeros((BLOCK_N,), tl.float32)
    for chunk in tl.static_range(CHUNKS):
        total += values[chunk].to(tl.float32)
    end_numbers = end_values.to(tl.float32)
    row_mean = (tl.sum(total, axis=0) + tl.sum(end_numbers, axis=0)) / N
    squares = tl.zeros((BLOCK_N,), tl.float32)
    for chunk in tl.static_range(CHUNKS):
        whole = is_whole(chunk * BLOCK_N + tl.arange(0, BLOCK_N), shift, N, VEC)
        deviation = tl.where(whole, values[chunk].to(tl.float32) - row_mean, 0.0)
        squares += deviation * deviation
    deviation = tl.where(at_end, end_numbers - row_mean, 0.0)
    row_rstd = tl.rsqrt((tl.sum(squares, axis=0) + tl.sum(deviation * deviation, axis=0)) / N + eps)
    if mean is not None:
        tl.store(mean + row, row_mean)
        tl.store(rstd + row, row_rstd)
    start = first_group(out, row, stride_out, VEC)
    for chunk in tl.static_range(CHUNKS):
        scaled = (values[chunk].to(tl.float32) - row_mean) * row_rstd
        if weight is not None:
            scaled = scaled * weights[chunk].to(tl.float32)
        if bias is not None:
            scaled = scaled + biases[chunk].to(tl.float32)
        n = chunk * BLOCK_N + tl.arange(0, BLOCK_N)
        tl.store(start + n, scaled.to(out.dtype.element_ty), mask=is_whole(n, shift, N, VEC))
    scaled = (end_numbers - row_mean) * row_rstd
    if weight is not None:
        scaled = scaled * end_weights.to(tl.float32)
    if bias is not None:
        scaled = scaled + end_biases.to(tl.float32)
    tl.store(start + end, scaled.to(out.dtype.element_ty), mask=at_end)


@triton.jit
def layer_norm_odd(
    x, weight, bias, out, mean, rstd, M, N, stride_x, stride_out, eps,
    BLOCK_N: tl.constexpr, CHUNKS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr, VEC: tl.constexpr,
):  # fmt: skip
    """Normalise a row, STEPS times. The rows of a program are a multiple of VEC apart, so all have the same shift.

    Weight and bias are shifted too, which costs as much as an odd row. They stay in the registers.
    """
    first = tl.program_id(0)
    shift = (first % VEC) * (stride_x % VEC) % VEC
    end, at_end = ends(shift, N, VEC)
    weights = read_shifted(weight, shift, N, BLOCK_N, CHUNKS, VEC)
    biases = read_shifted(bias, shift, N, BLOCK_N, CHUNKS, VEC)
    end_weights = None
    end_biases = None
    if weight is not None:
        end_weights = tl.load(weight + end - shift, mask=at_end, other=0.0)
    if bias is not None:
        end_biases = tl.load(bias + end - shift, mask=at_end, other=0.0)
    if STEPS == 1:
        normalise_odd(
            x, weight, bias, out, mean, rstd, weights, biases, end_weights, end_biases, first, shift, N,
            stride_x, stride_out, eps, BLOCK_N, CHUNKS, VEC,
        )  # fmt: skip
    else:
        for after in tl.range(0, M - first, tl.num_programs(0), num_stages=STAGES):
            normalise_odd(
                x, weight, bias, out, mean, rstd, weights, biases, end_weights, end_biases, first + after, shift, N,
                stride_x, stride_out, eps, BLOCK_N, CHUNKS, VEC,
            )  # fmt: skip
