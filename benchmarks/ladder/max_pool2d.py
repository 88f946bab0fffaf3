"""Maximum pooling, from a thread for each output to tiles of outputs in registers.

Windows of 3 x 3 with a stride of 2 overlap: 51 MB of bf16 are read as 115 MB, element by element, from the caches. The
instructions that do it, not the memory, decide the time of a naive kernel.
"""

from __future__ import annotations

from math import prod

import triton
import triton.language as tl

from ladder.step import Ladder, Run, Step, Tensors, configured
from tuner.kernels.max_pool2d import KERNEL
from tuner.kernels.spec import Launch, Problem, Value, cdiv, next_power_of_2


@triton.jit
def pool_by_outputs(
    x, out, outputs, H, W, P, Q, R, S, stride_h, stride_w, padding_h, padding_w, BLOCK: tl.constexpr
):  # fmt: skip
    """Compute an output in each thread, of windows that are looped over."""
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q, p, plane = n % Q, n // Q % P, n // Q // P
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    for r in range(R):
        for s in range(S):
            h, w = p * stride_h - padding_h + r, q * stride_w - padding_w + s
            mask = (n < outputs) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            values = tl.load(x + (plane * H + h) * W + w, mask=mask, other=-float("inf")).to(tl.float32)
            top = tl.maximum(top, values, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + n, top.to(out.dtype.element_ty), mask=n < outputs)


@triton.jit
def pool_by_rows(
    x, out, H, W, P, Q, stride_h, stride_w, padding_h, padding_w,
    R: tl.constexpr, S: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute a row of outputs in each program, which knows plane and row; the loops over the window are unrolled."""
    plane, p = tl.program_id(0) // P, tl.program_id(0) % P
    q = tl.arange(0, BLOCK)
    top = tl.full((BLOCK,), -float("inf"), tl.float32)
    for r in tl.static_range(R):
        for s in tl.static_range(S):
            h, w = p * stride_h - padding_h + r, q * stride_w - padding_w + s
            mask = tl.where((h >= 0) & (h < H), (w >= 0) & (w < W), False)
            values = tl.load(x + (plane * H + h) * W + w, mask=mask, other=-float("inf")).to(tl.float32)
            top = tl.maximum(top, values, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + (plane * P + p) * Q + q, top.to(out.dtype.element_ty), mask=q < Q)


def sizes(tensors: Tensors) -> tuple[int, int, int, int]:
    """Return rows and columns of the images and of the outputs."""
    return (*tensors["x"].shape[2:], *tensors["out"].shape[2:])


def steps_of(problem: Problem) -> tuple[int, int, int, int]:
    """Return strides and paddings."""
    return tuple(problem[name] for name in ("stride_h", "stride_w", "padding_h", "padding_w"))


def outputs(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Launch `pool_by_outputs` with 256 threads for each program."""
    count = prod(tensors["out"].shape)
    args = (tensors["x"], tensors["out"], count, *sizes(tensors), problem["R"], problem["S"], *steps_of(problem))
    return (Launch(pool_by_outputs, (cdiv(count, 256),), args, {"BLOCK": 256, "num_warps": 8, "num_stages": 1}),)


def rows(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Launch `pool_by_rows` with one warp for each row."""
    B, C, P, Q = tensors["out"].shape
    window = {"R": problem["R"], "S": problem["S"], "BLOCK": next_power_of_2(Q)}
    args = (tensors["x"], tensors["out"], *sizes(tensors), *steps_of(problem))
    return (Launch(pool_by_rows, (B * C * P,), args, {**window, "num_warps": 1, "num_stages": 1}),)


TILES: dict[str, Value] = {"VARIANT": "tiles", "BLOCK_Q": 64, "BLOCK_K": 1, "SPLIT": 1, "num_stages": 1}
STEM = {"B": 32, "C": 64, "H": 112, "R": 3, "stride_h": 2, "padding_h": 1, "padding_w": 1}

LADDER = Ladder(
    kernel=KERNEL,
    problems=(KERNEL.signature.problem(STEM),),
    steps=(
        Step("an output a thread", "divisions and loops in each thread, reads of one element", outputs),
        Step("a row a program", "plane and row by program, the window unrolled", rows),
        configured(
            "16 bytes",
            "four outputs a thread, from reads of 16 bytes, separated in registers",
            KERNEL,
            {**TILES, "TILE_P": 1, "TILE_Q": 4, "BLOCK_N": 8, "num_warps": 4},
        ),
        configured(
            "shared rows",
            "two rows of outputs a thread, which reads the row between them once",
            KERNEL,
            {**TILES, "TILE_P": 2, "TILE_Q": 4, "BLOCK_N": 8, "num_warps": 4},
        ),
        configured(
            "small programs",
            "two warps a program: programs start and end more evenly",
            KERNEL,
            {**TILES, "TILE_P": 2, "TILE_Q": 4, "BLOCK_N": 4, "num_warps": 2},
        ),
    ),
    unit="GB/s",
)
