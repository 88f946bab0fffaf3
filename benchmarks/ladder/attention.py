"""Attention, from torch operations to warps with roles.

4 x 16 heads of 4096 rows and keys are 550 GFLOP on 256 MB. As separate operations, the scores of all heads, 2 GB, are
written and read twice. In one kernel no score leaves the chip, and the tensor cores are the limit.
"""

from __future__ import annotations

from functools import partial
from math import e, log2, sqrt
from typing import Any

import triton
import triton.language as tl

from ladder.step import Ladder, Run, Step, Tensors, configured
from tuner.kernels.attention import KERNEL
from tuner.kernels.spec import Launch, Problem, Value, cdiv, next_power_of_2


def three_operations(q: Any, k: Any, v: Any, out: Any) -> None:
    """Compute attention by torch operations, which write the scores and the weights of all heads to device memory."""
    import torch

    scores = q @ k.mT * (1 / sqrt(q.shape[-1]))
    torch.matmul(scores.softmax(-1), v, out=out)


@triton.jit
def scores_of(q_tile, k, n, N, d, D: tl.constexpr, factor):
    """Return the scores of a block of keys, in powers of 2; -inf past the last key."""
    at = k + n[None, :] * D + d[:, None]
    keys = tl.load(at, mask=(n < N)[None, :] & (d < D)[:, None], other=0.0)
    return tl.where((n < N)[None, :], tl.dot(q_tile, keys) * factor, -float("inf"))


@triton.jit
def attend_twice(
    q, k, v, out, M, N, factor,
    D: tl.constexpr, BLOCK_D: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Compute a tile of rows of a head: largest scores and sums first, then the weighted values."""
    head = tl.program_id(1).to(tl.int64)
    q, out, k, v = q + head * M * D, out + head * M * D, k + head * N * D, v + head * N * D
    m, d = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M), tl.arange(0, BLOCK_D)
    exists = (m < M)[:, None] & (d < D)[None, :]
    q_tile = tl.load(q + m[:, None] * D + d[None, :], mask=exists, other=0.0)
    top = tl.full((BLOCK_M,), -float("inf"), tl.float32)
    for first in range(0, N, BLOCK_N):
        top = tl.maximum(top, tl.max(scores_of(q_tile, k, first + tl.arange(0, BLOCK_N), N, d, D, factor), axis=1))
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc = tl.zeros((BLOCK_M, BLOCK_D), tl.float32)
    for first in range(0, N, BLOCK_N):
        n = first + tl.arange(0, BLOCK_N)
        weights = tl.exp2(scores_of(q_tile, k, n, N, d, D, factor) - top[:, None])
        total += tl.sum(weights, axis=1)
        values = tl.load(v + n[:, None] * D + d[None, :], mask=(n < N)[:, None] & (d < D)[None, :], other=0.0)
        acc = tl.dot(weights.to(values.dtype), values, acc)
    tl.store(out + m[:, None] * D + d[None, :], (acc / total[:, None]).to(out.dtype.element_ty), mask=exists)


def operations(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Return `three_operations` on the operands."""
    return (partial(three_operations, *(tensors[name] for name in ("q", "k", "v", "out"))),)


def two_passes(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Launch `attend_twice` with 64 rows for each program, for as many heads of keys as of q."""
    B, H, _, M, N, D = problem.sizes
    args = (*(tensors[name] for name in ("q", "k", "v", "out")), M, N, log2(e) / sqrt(D))
    blocks = {"D": D, "BLOCK_D": max(16, next_power_of_2(D)), "BLOCK_M": 64, "BLOCK_N": 64}
    return (Launch(attend_twice, (cdiv(M, 64), B * H), args, {**blocks, "num_warps": 4, "num_stages": 1}),)


TILES: dict[str, Value] = {"VARIANT": "tiles", "BLOCK_M": 64, "BLOCK_N": 64, "num_warps": 4}
ROLES: dict[str, Value] = {"VARIANT": "specialized", "BLOCK_M": 128, "num_warps": 4}

LADDER = Ladder(
    kernel=KERNEL,
    problems=(KERNEL.signature.problem({"B": 4, "H": 16, "M": 4096}),),
    steps=(
        Step("operations", "torch operations: all scores are written and read", operations),
        Step("two passes", "one kernel: scores are computed twice and stay on the chip", two_passes),
        configured("one pass", "sums are rescaled when a larger score is found", KERNEL, {**TILES, "num_stages": 1}),
        configured("in flight", "two blocks of keys are on their way", KERNEL, {**TILES, "num_stages": 3}),
        configured(
            "roles",
            "a warp that loads, and two groups of warps that compute 64 rows each",
            KERNEL,
            {**ROLES, "BLOCK_N": 64, "num_stages": 3},
            since=(9, 0),
        ),
        configured(
            "wide blocks",
            "128 keys at once",
            KERNEL,
            {**ROLES, "BLOCK_N": 128, "num_stages": 2},
            since=(9, 0),
        ),
    ),
    unit="TFLOP/s",
)
