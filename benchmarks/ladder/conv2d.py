"""Convolution, from a thread for each output to patches that the copy engine reads.

Windows of 3 x 3 with a stride of 1: each pixel is part of nine windows. The products are those of a matrix with nine
times the elements of x, which the fast kernels never write.
"""

from __future__ import annotations

from functools import partial
from math import prod
from typing import Any

import triton
import triton.language as tl

from ladder.step import Ladder, Run, Step, Tensors, configured
from tuner.kernels.conv2d import KERNEL
from tuner.kernels.spec import Launch, Problem, Value, cdiv


@triton.jit
def conv_by_outputs(
    x, weight, out, outputs, C, H, W, N, P, Q, R, S, stride_h, stride_w, padding_h, padding_w, BLOCK: tl.constexpr
):  # fmt: skip
    """Compute an output in each thread: neighbours are filters of one pixel."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    n, q, p, b = at % N, at // N % Q, at // N // Q % P, at // N // Q // P
    total = tl.zeros((BLOCK,), tl.float32)
    for tap in range(R * S):
        h, w = p * stride_h - padding_h + tap // S, q * stride_w - padding_w + tap % S
        mask = (at < outputs) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        pixel = x + ((b * H + h) * W + w) * C
        filters = weight + (n * R * S + tap) * C
        for c in range(C):
            value = tl.load(pixel + c, mask=mask, other=0.0).to(tl.float32)
            total += value * tl.load(filters + c, mask=mask, other=0.0).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=at < outputs)


def outputs(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Launch `conv_by_outputs` with 256 threads for each program."""
    x, weight, out = (tensors[name] for name in ("x", "weight", "out"))
    _, C, H, W = x.shape
    _, N, P, Q = out.shape
    numbers = [problem[name] for name in ("R", "S", "stride_h", "stride_w", "padding_h", "padding_w")]
    args = (x, weight, out, prod(out.shape), C, H, W, N, P, Q, *numbers)
    grid = (cdiv(prod(out.shape), 256),)
    return (Launch(conv_by_outputs, grid, args, {"BLOCK": 256, "num_warps": 8, "num_stages": 1}),)


def through_memory(problem: Problem, x: Any, weight: Any, out: Any) -> None:
    """Write a matrix with a row for each window, and multiply it by the filters."""
    import torch

    padded = torch.nn.functional.pad(x, (problem["padding_w"],) * 2 + (problem["padding_h"],) * 2)
    windows = padded.unfold(2, problem["R"], problem["stride_h"]).unfold(3, problem["S"], problem["stride_w"])
    matrix = windows.permute(0, 2, 3, 4, 5, 1).reshape(-1, weight[0].numel())  # reads x, writes nine times as much
    filters = weight.permute(0, 2, 3, 1).reshape(len(weight), -1)
    torch.mm(matrix, filters.t(), out=out.permute(0, 2, 3, 1).view(len(matrix), len(filters)))


def im2col(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Return `through_memory` on the operands."""
    return (partial(through_memory, problem, tensors["x"], tensors["weight"], tensors["out"]),)


TILE: dict[str, Value] = {
    "VARIANT": "tiles", "PATCH": 0, "BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64, "GROUP_M": 8, "SPLIT_K": 1,
    "num_warps": 4,
}  # fmt: skip
LAYER = {"B": 32, "C": 128, "H": 28, "dtype": "fp16", "padding_h": 1, "padding_w": 1}

LADDER = Ladder(
    kernel=KERNEL,
    problems=(KERNEL.signature.problem(LAYER),),
    steps=(
        Step("an output a thread", "products on the CUDA cores, reads of one element", outputs),
        Step("im2col", "windows written to memory, then a product of matrices", im2col),
        configured("in place", "tiles of windows, read from x", KERNEL, {**TILE, "num_stages": 1}),
        configured("pipelined", "the next 2 steps in flight", KERNEL, {**TILE, "num_stages": 3}),
        configured(
            "boxes", "patches, by the copy engine", KERNEL, {**TILE, "VARIANT": "boxes", "num_stages": 4}, since=(9, 0)
        ),
    ),
    unit="TFLOP/s",
)
