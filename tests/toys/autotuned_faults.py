"""Autotuned kernels for a card, whose configs have a knob for each way to be wrong."""

import triton
import triton.language as tl

RIGHT, TWICE, HALF, READS, WILD, ENDLESS, STALE = range(7)


def config(fault, block):
    return triton.Config({"BLOCK": block, "FAULT": fault}, num_warps=4, num_stages=2)


@triton.autotune(
    configs=[config(fault, 128) for fault in (TWICE, HALF, READS, WILD, ENDLESS, STALE)]
    + [config(RIGHT, block) for block in (128, 256, 512)],
    key=["n"],
)
@triton.jit
def doubled(x, out, total, n, BLOCK: tl.constexpr, FAULT: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    value = tl.load(x + at, mask=inside, other=0.0) * 2
    tl.atomic_add(total, tl.sum(value))
    if FAULT == 1:
        value *= 2
    elif FAULT == 2:
        inside = at < n // 2
    elif FAULT == 3:
        value = tl.maximum(value, tl.load(out + at, mask=inside, other=0.0))
    elif FAULT == 4:
        at += 1 << 44
    elif FAULT == 5:
        while tl.atomic_add(total, 0.0) < 1e30:
            pass
    elif FAULT == 6:
        inside = inside & (value > -1.0)
    tl.store(out + at, value, mask=inside)


@triton.autotune(configs=[triton.Config({"BLOCK": 1024}, num_warps=warps) for warps in (4, 8)], key=["n"])
@triton.jit
def locked(x, out, lock, n, BLOCK: tl.constexpr):
    while tl.atomic_add(lock, 0) != 0:  # waits for ever on another's
        pass
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)
    tl.atomic_add(lock, 1)
