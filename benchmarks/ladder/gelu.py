"""GELU, from torch operations to a kernel that waits for memory only.

2^26 elements of bf16 are 128 MB, read once and written once. Five operations read six times and write five times. In
one kernel the instructions take more time than the memory, until there are fewer of them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import triton
import triton.language as tl

from ladder.step import Ladder, Run, Step, Tensors, configured
from tuner.kernels.gelu import KERNEL
from tuner.kernels.spec import Launch, Problem, cdiv


def eleven_passes(x: Any, out: Any) -> None:
    """Compute GELU by five torch operations, each of which reads and writes device memory."""
    import torch

    scaled = x * 2**-0.5  # reads x, writes as much
    parts = torch.erf(scaled)  # reads, writes
    total = parts + 1  # reads, writes
    halves = x * total  # reads both, writes
    torch.mul(halves, 0.5, out=out)  # reads, writes


def operations(problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Return `eleven_passes` on the operands."""
    return (partial(eleven_passes, tensors["x"], tensors["out"]),)


@triton.jit
def by_erf(x, out, M, N, stride_x, stride_out, BLOCK: tl.constexpr):
    """Compute a block of a row with the erf of the library."""
    chunks = tl.cdiv(N, BLOCK)
    row = (tl.program_id(0) // chunks).to(tl.int64)
    n = tl.program_id(0) % chunks * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + row * stride_x + n, mask=n < N).to(tl.float32)
    values = 0.5 * values * (1.0 + tl.erf(values * 0.7071067811865476))
    tl.store(out + row * stride_out + n, values.to(out.dtype.element_ty), mask=n < N)


def erf_of_blocks(block: int, problem: Problem, tensors: Tensors) -> tuple[Run, ...]:
    """Launch `by_erf` with 4 warps a block."""
    M, N = problem["M"], problem["N"]
    x, out = tensors["x"], tensors["out"]
    args = (x, out, M, N, x.stride(0) if M > 1 else 0, out.stride(0) if M > 1 else 0)
    return (Launch(by_erf, (M * cdiv(N, block),), args, {"BLOCK": block, "num_warps": 4, "num_stages": 1}),)


KNOBS = {"STEPS": 1, "EVICT_FIRST": False, "num_warps": 4, "num_stages": 1}

LADDER = Ladder(
    kernel=KERNEL,
    problems=(KERNEL.signature.problem({"N": 2**26}),),
    steps=(
        Step("operations", "five torch operations, eleven passes over memory", operations),
        Step("one kernel", "one read and one write, of 2 bytes a thread", partial(erf_of_blocks, 128)),
        Step("16 bytes", "8 elements a thread, read by one instruction", partial(erf_of_blocks, 1024)),
        configured("polynomial", "half of the instructions for each element", KERNEL, KNOBS | {"BLOCK": 1024}),
        configured("four accesses", "32 elements a thread: 64 bytes in flight", KERNEL, KNOBS | {"BLOCK": 4096}),
    ),
    unit="GB/s",
)
