"""A script as people write them: an autotuned kernel, its configs, and a benchmark at the bottom that is never run."""

import sys

import torch
import triton
import triton.language as tl

DEVICE = triton.runtime.driver.active.get_active_torch_device()
SCALE = tl.constexpr(3.0)


def get_configs():
    return [triton.Config({"BLOCK": block}, num_warps=warps) for block in (64, 128) for warps in (2, 4)]


configs = get_configs()
configs.append(triton.Config({"BLOCK": 256}, num_warps=4))


@triton.jit
def scaled(x):
    return x * SCALE


@triton.autotune(configs=configs, key=["n"])
@triton.jit
def add(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n)
    y = tl.load(y_ptr + at, mask=at < n)
    tl.store(out_ptr + at, scaled(x) + y, mask=at < n)


def call(x, y):
    out = torch.empty_like(x)
    add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, out, x.numel())
    return out


configs = []
for size in (1024, 4096):
    configs.append(size)
x = torch.rand(1024, device=DEVICE)
sys.exit(f"this script ran as a whole: {call(x, x).sum()}")
