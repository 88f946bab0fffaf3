"""Device code of silu_mul for rows that begin anywhere in 16 bytes: read and written 16 bytes at once.

If N is odd, gate, up and out begin at different places in 16 bytes, and the compiler moves them element by element.
Here a program reads whole groups of 16 bytes, from the one in which its part begins, and shifts them in shared memory
to where the groups of out are. The ends of a row, which fill no group of out, are computed one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl

from tuner.kernels.shared.elementwise import ACCESS_BYTES
from tuner.kernels.shared.elementwise_math import times_sigmoid
from tuner.kernels.spec import Launch, Problem, cdiv, itemsize


@triton.jit
def silu_mul_shifted(gate, out, N, stride_gate, stride_out, BLOCK: tl.constexpr, VEC: tl.constexpr):
    """Compute BLOCK - VEC columns of a row: a group less than is read, since what is read is shifted."""
    PART: tl.constexpr = BLOCK - VEC
    chunks = tl.cdiv(N, PART)
    row = (tl.program_id(0) // chunks).to(tl.int64)
    chunk = tl.program_id(0) % chunks
    gate_at, up_at, out_at = row * stride_gate, row * stride_gate + N, row * stride_out

    # Groups of out that are read and written at once: not the first if it is in part of the row before, and not the
    # last two, beside whose parts of up may be the end of the tensor.
    begin = (VEC - out_at % VEC) % VEC
    end = begin + tl.maximum(0, (N - VEC - begin) // VEC) * VEC
    first = begin + chunk * PART
    i = tl.arange(0, BLOCK)
    count = tl.minimum(PART, end - first)
    gate_groups = read_groups(gate, gate_at + first, count, i, VEC)
    up_groups = read_groups(gate, up_at + first, count, i, VEC)
    gates = shift_to_start(gate_groups, gate_at + first, i, VEC)
    ups = shift_to_start(up_groups, up_at + first, i, VEC)
    values = times_sigmoid(gates, gates, out.dtype.element_ty) * ups
    place = out + (out_at + first) // VEC * VEC + i
    tl.store(place, values.to(out.dtype.element_ty), mask=i // VEC * VEC < count)

    if chunk == 0:
        write_ends(gate, out, gate_at, up_at, out_at, begin, end, N, VEC)


@triton.jit
def write_ends(gate, out, gate_at, up_at, out_at, begin, end, N, VEC: tl.constexpr):
    """Compute the columns before `begin`, less than a group, and those from `end`, less than two."""
    e = tl.arange(0, 4 * VEC)
    n = tl.where(e < VEC, e, end + e - VEC)
    inside = (n < N) & ((e >= VEC) | (e < begin))
    gates = tl.load(gate + gate_at + n, mask=inside, other=0.0).to(tl.float32)
    ups = tl.load(gate + up_at + n, mask=inside, other=0.0).to(tl.float32)
    values = times_sigmoid(gates, gates, out.dtype.element_ty) * ups
    tl.store(out + out_at + n, values.to(out.dtype.element_ty), mask=inside)


@triton.jit
def read_groups(x, start, count, i, VEC: tl.constexpr):
    """Return the groups that hold `count` elements from `start`."""
    return tl.load(x + start // VEC * VEC + i, mask=i // VEC * VEC < start % VEC + count, other=0.0)


@triton.jit
def shift_to_start(groups, start, i, VEC: tl.constexpr):
    """Return the elements of groups from `start` on, as fp32."""
    LAST: tl.constexpr = groups.shape[0] - 1
    return tl.gather(groups, tl.minimum(i + (start % VEC).to(tl.int32), LAST), 0).to(tl.float32)


def shifted(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    """Return the launch for gate (M, 2 N) and out (M, N), with rows at any distance."""
    M, N = problem["M"], problem["N"]
    if M == 0 or N == 0:
        return ()
    gate, out = tensors["gate"], tensors["out"]
    vec = ACCESS_BYTES // itemsize(problem.dtype)
    args = (gate, out, N, gate.stride(0), out.stride(0))
    kwargs = {"BLOCK": config["BLOCK"], "VEC": vec, "num_warps": config["num_warps"], "num_stages": 1}
    return (Launch(silu_mul_shifted, (M * cdiv(N, config["BLOCK"] - vec),), args, kwargs),)
