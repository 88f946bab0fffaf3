"""Autotuned kernels of many kinds, as libraries and scripts have them. Nothing here runs when it is imported."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps, num_stages=2) for block in (32, 64) for warps in (1, 4)]
SEEN: list[dict] = []


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.heuristics(
    {"EVEN": lambda args: args["n"] % args["BLOCK"] == 0, "HAS_BIAS": lambda args: args["bias"] is not None}
)
@triton.jit
def biased(x, bias, out, n, EVEN: tl.constexpr, HAS_BIAS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at) if EVEN else tl.load(x + at, mask=at < n)
    if HAS_BIAS:
        value += tl.load(bias + at, mask=at < n)
    tl.store(out + at, value, mask=at < n)


@triton.heuristics({"POWER": lambda args: triton.next_power_of_2(args["n"])})
@triton.autotune(configs=[triton.Config({}, num_warps=warps) for warps in (1, 2)], key=["n"])
@triton.jit
def row_sum(x, out, n, POWER: tl.constexpr):
    at = tl.arange(0, POWER)
    tl.store(out, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))


@triton.autotune(configs=CONFIGS, key=["n"], reset_to_zero=["total"])
@triton.jit
def count(x, total, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(total, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))


@triton.autotune(configs=CONFIGS, key=["n"], restore_value=["x"])
@triton.jit
def scale_in_place(x, y, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(y + at, mask=at < n) * factor, mask=at < n)


def as_dtype(dtype):
    return triton.Config({"BLOCK": 64, "ACC": dtype}, num_warps=4)


@triton.autotune(configs=[as_dtype(tl.float32), as_dtype(tl.float16)], key=["n", "OUT"])
@triton.jit
def converted(x, out, n, OUT: tl.constexpr, ACC: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n).to(ACC).to(OUT), mask=at < n)


def set_blocks(arguments):
    SEEN.append(dict(arguments))
    for name in ("x", "out"):
        if isinstance(arguments[name], TensorDescriptor):
            arguments[name].block_shape = [arguments["ROWS"], arguments["COLUMNS"]]


@triton.autotune(
    configs=[
        triton.Config({"ROWS": rows, "COLUMNS": 32}, num_warps=4, num_stages=2, pre_hook=set_blocks) for rows in (8, 16)
    ],
    key=["M", "N"],
)
@triton.jit
def copied(x, out, M, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * COLUMNS
    out.store([row, column], x.load([row, column]))


def twice(x, n):
    return {"out": (x.double() * 2)[:n]}


def raising(x):
    return x / (1 // 0)


def too_short(x):
    return x[1:]


def of_others(x, size):
    return x


def misnamed(x):
    return {"y": x}


def untyped(x):
    return {"out": x.tolist()}


def gathered_reference(x, index, out):
    return x[index.long()].to(out.dtype)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def gathered(x, index, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    places = tl.load(index + at, mask=at < n, other=0)
    tl.store(out + at, tl.load(x + places, mask=at < n), mask=at < n)


@triton.jit
def plain(x, out, n, BLOCK: tl.constexpr = 64):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) + 1, mask=at < n)


assigned = triton.autotune(configs=CONFIGS, key=["n"])(plain)


def needs_a_card():
    return torch.zeros(1, device="cuda")
