"""Matrix product: out (M, N) = act(a (M, K) @ b (K, N) + bias (N,)), accumulated in fp32.

A GEMM does 2 M N K operations on M K + K N + M N elements, so for large sizes the tensor cores should be the
limit and memory should not. A program that computes a BLOCK_M x BLOCK_N tile of the output reads
(BLOCK_M + BLOCK_N) K elements to do 2 BLOCK_M BLOCK_N K operations: larger tiles read less, until the accumulators
no longer fit the registers, or until there are fewer tiles than multiprocessors. Everything else is about hiding
the latency of those reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.kernels.spec import (
    Attribute,
    Config,
    Dim,
    Kernel,
    Knob,
    Launch,
    Limits,
    Operand,
    Problem,
    Signature,
    Value,
    cdiv,
    itemsize,
    next_power_of_2,
)


@triton.jit
def corner_of(tile, M, N, group_m, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """First row and column of a tile.

    Programs run roughly in order. Walking `group_m` rows of tiles column by column keeps the rows of a and the columns
    of b that running programs share in L2, where a row-by-row walk would stream all of b.
    """
    tiles_m = tl.cdiv(M, BLOCK_M)
    group_size = group_m * tl.cdiv(N, BLOCK_N)
    first_m = tile // group_size * group_m
    rows = min(tiles_m - first_m, group_m)
    return (first_m + tile % group_size % rows) * BLOCK_M, tile % group_size // rows * BLOCK_N


@triton.jit
def joined(acc, partials, arrived, slot, SPLIT_K: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """The sum of all slices of a tile, and whether it is all there: only the last slice to arrive has it.

    SPLIT_K slots one after the other are a tile's. Each leaves its sum for the others; the last one adds them up in
    their order, not in that of their arrival, so that every run gives the same bits.
    """
    within = tl.arange(0, BLOCK_M)[:, None] * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    tl.store(partials + slot.to(tl.int64) * (BLOCK_M * BLOCK_N) + within, acc)
    tl.debug_barrier()  # all of it is written before one thread says so
    counter = arrived + slot // SPLIT_K
    last = tl.atomic_add(counter, 1, sem="acq_rel") == SPLIT_K - 1
    if last:
        tl.debug_barrier()
        slices = partials + (slot // SPLIT_K * SPLIT_K).to(tl.int64) * (BLOCK_M * BLOCK_N) + within
        if SPLIT_K == 2:  # a + b is b + a
            acc += tl.load(slices + (1 - slot % 2) * (BLOCK_M * BLOCK_N), cache_modifier=".cg")
        else:
            acc = tl.load(slices, cache_modifier=".cg")
            for nth in range(1, SPLIT_K):
                acc += tl.load(slices + nth * (BLOCK_M * BLOCK_N), cache_modifier=".cg")
        tl.store(counter, 0)
    return acc, last


@triton.jit
def finished(acc, bias, n, N, ACTIVATION: tl.constexpr):
    """What becomes of a sum before it is rounded: act(sum + bias)."""
    if bias is not None:
        acc += tl.load(bias + n, mask=n < N, other=0.0).to(tl.float32)[None, :]
    if ACTIVATION == "silu":
        acc = acc / (1.0 + tl.exp(-acc))
    elif ACTIVATION == "gelu":
        acc = 0.5 * acc * (1.0 + tl.erf(acc * 0.7071067811865476))
    return acc


@triton.jit(do_not_specialize=["group_m"])
def gemm_tiles(
    a, b, out, bias, partials, arrived, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_om, stride_on, group_m,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
    WHOLE_K: tl.constexpr, PRECISION: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """A program a tile, or a slice of one along K, through pointers: any strides, any card."""
    slot = tl.program_id(0)
    first_m, first_n = corner_of(slot // SPLIT_K, M, N, group_m, BLOCK_M, BLOCK_N)
    steps = tl.cdiv(K, BLOCK_K)
    first = steps * (slot % SPLIT_K) // SPLIT_K
    end = steps * (slot % SPLIT_K + 1) // SPLIT_K

    # Rows past the end wrap around: their loads stay in bounds without a mask in the loop, and are never stored.
    # 64-bit offsets: one matrix may hold more than 2^31 elements.
    m = ((first_m + tl.arange(0, BLOCK_M)) % M).to(tl.int64)
    n = ((first_n + tl.arange(0, BLOCK_N)) % N).to(tl.int64)
    k = tl.arange(0, BLOCK_K)
    a_tile = a + m[:, None] * stride_am + k[None, :] * stride_ak
    b_tile = b + k[:, None] * stride_bk + n[None, :] * stride_bn
    if SPLIT_K > 1:
        a_tile += (first * BLOCK_K).to(tl.int64) * stride_ak
        b_tile += (first * BLOCK_K).to(tl.int64) * stride_bk

    # The loop that num_stages pipelines: while the tensor cores work on one step, the next num_stages - 1 steps
    # are on their way from device memory into shared memory.
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(first, end):
        if WHOLE_K:
            acc = tl.dot(tl.load(a_tile), tl.load(b_tile), acc, input_precision=PRECISION)
        else:
            left = K - step * BLOCK_K
            acc = tl.dot(
                tl.load(a_tile, mask=k[None, :] < left, other=0.0),
                tl.load(b_tile, mask=k[:, None] < left, other=0.0),
                acc,
                input_precision=PRECISION,
            )
        a_tile += BLOCK_K * stride_ak
        b_tile += BLOCK_K * stride_bk

    done = True
    if SPLIT_K > 1:
        acc, done = joined(acc, partials, arrived, slot, SPLIT_K, BLOCK_M, BLOCK_N)
    if done:
        row = first_m + tl.arange(0, BLOCK_M)
        column = first_n + tl.arange(0, BLOCK_N)
        acc = finished(acc, bias, column, N, ACTIVATION)
        place = out + row.to(tl.int64)[:, None] * stride_om + column.to(tl.int64)[None, :] * stride_on
        tl.store(place, acc.to(out.dtype.element_ty), mask=(row < M)[:, None] & (column < N)[None, :])


@triton.jit
def summed(
    a, b, first_m, first_n, first, end,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    A_IS_T: tl.constexpr, B_IS_T: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """A tile's sum over some steps along K, of descriptors over memory as it lies."""
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(first, end):
        k = step * BLOCK_K
        a_tile = a.load([k, first_m]).T if A_IS_T else a.load([first_m, k])
        b_tile = b.load([first_n, k]).T if B_IS_T else b.load([k, first_n])
        acc = tl.dot(a_tile, b_tile, acc, input_precision=PRECISION)
    return acc


@triton.jit
def stored(acc, out, first_m, first_n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STORES: tl.constexpr):
    """Stores a tile at once, or in halves, which leaves more shared memory to the stages."""
    if STORES == 1:
        out.store([first_m, first_n], acc.to(out.dtype))
    else:
        halves = tl.permute(tl.reshape(acc, (BLOCK_M, 2, BLOCK_N // 2)), (0, 2, 1))
        left, right = tl.split(halves)
        out.store([first_m, first_n], left.to(out.dtype))
        out.store([first_m, first_n + BLOCK_N // 2], right.to(out.dtype))


@triton.jit(do_not_specialize=["whole", "group_m"])
def gemm_persistent(
    a, b, out, bias, partials, arrived, M, N, K, whole, group_m,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
    STORES: tl.constexpr, A_IS_T: tl.constexpr, B_IS_T: tl.constexpr,
    PRECISION: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """A program a multiprocessor, which takes one tile after the other, through tensor descriptors.

    The copy engine (TMA) computes the addresses and fills in zeros past the edges, so that the threads have their
    registers for the accumulators. Flattened into one loop, the loads of the next tile begin while this one ends.

    The tiles after the first `whole`, fewer than there are programs, are cut into SPLIT_K slices along K, one for each
    program: else a last wave would keep few multiprocessors busy for as long as a full one, which Osama et al. cure
    in "Stream-K" (2023) in a more general way.
    """
    steps = tl.cdiv(K, BLOCK_K)
    column = tl.arange(0, BLOCK_N)
    for tile in tl.range(tl.program_id(0), whole, tl.num_programs(0), flatten=True):
        first_m, first_n = corner_of(tile, M, N, group_m, BLOCK_M, BLOCK_N)
        acc = summed(a, b, first_m, first_n, 0, steps, BLOCK_M, BLOCK_N, BLOCK_K, A_IS_T, B_IS_T, PRECISION)
        acc = finished(acc, bias, first_n + column, N, ACTIVATION)
        stored(acc, out, first_m, first_n, BLOCK_M, BLOCK_N, STORES)

    if SPLIT_K > 1:
        slot = tl.program_id(0)
        tile = whole + slot // SPLIT_K
        if tile < tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N):
            first_m, first_n = corner_of(tile, M, N, group_m, BLOCK_M, BLOCK_N)
            first = steps * (slot % SPLIT_K) // SPLIT_K
            end = steps * (slot % SPLIT_K + 1) // SPLIT_K
            acc = summed(a, b, first_m, first_n, first, end, BLOCK_M, BLOCK_N, BLOCK_K, A_IS_T, B_IS_T, PRECISION)
            acc, done = joined(acc, partials, arrived, slot, SPLIT_K, BLOCK_M, BLOCK_N)
            if done:
                acc = finished(acc, bias, first_n + column, N, ACTIVATION)
                stored(acc, out, first_m, first_n, BLOCK_M, BLOCK_N, STORES)


def operands(problem: Problem) -> Mapping[str, Operand]:
    """a (M, K), b (K, N), out (M, N), bias (N,). A `t` in the layout: that input is the transpose of a contiguous
    matrix."""
    M, N, K = problem.sizes
    a_is_t, b_is_t = transposed(problem)
    inputs = {
        "a": Operand((M, K), problem.dtype, strides=(1, M) if a_is_t else (K, 1)),
        "b": Operand((K, N), problem.dtype, strides=(1, K) if b_is_t else (N, 1)),
    }
    bias = {"bias": Operand((N,), problem.dtype)} if problem["bias"] else {}
    return {**inputs, **bias, "out": Operand((M, N), problem.dtype, role="out")}


def transposed(problem: Problem) -> tuple[bool, bool]:
    """Whether a is, and whether b is."""
    a, b = problem["layout"]
    return a == "t", b == "t"


def tile_count(problem: Problem, config: Mapping[str, Any]) -> int:
    M, N, _ = problem.sizes
    return cdiv(M, config["BLOCK_M"]) * cdiv(N, config["BLOCK_N"])


def sliced_tiles(problem: Problem, config: Mapping[str, Any], sm_count: int) -> int:
    """How many tiles are cut along K: all, or of a persistent kernel those after its last full wave."""
    if config["SPLIT_K"] == 1:
        return 0
    tiles = tile_count(problem, config)
    return tiles % sm_count if config["VARIANT"] == "persistent" else tiles


def workspace(problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
    """The slices' sums, and how many slices of each tile have arrived; persistent, a counter for every program."""
    sliced = sliced_tiles(problem, config, limits.sm_count)
    counters = limits.sm_count if config["VARIANT"] == "persistent" else sliced
    partials = Operand((sliced * config["SPLIT_K"], config["BLOCK_M"], config["BLOCK_N"]), "fp32")
    return {
        **({"arrived": Operand((counters,), "int32")} if counters else {}),
        **({"partials": partials} if sliced else {}),
    }


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    """The persistent kernel needs what descriptors can describe; other tensors of the same problem go through pointers,
    in tiles of the same size."""
    M, N, K = problem.sizes
    if M == 0 or N == 0:
        return ()
    a, b, out = tensors["a"], tensors["b"], tensors["out"]
    summing = tuple(tensors.get(name) for name in ("bias", "partials", "arrived"))
    compiled = {name: config[name] for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "SPLIT_K", "num_warps", "num_stages")}
    compiled |= {"PRECISION": dict(problem.attributes).get("precision", "ieee"), "ACTIVATION": problem["activation"]}
    tiles, group_m = tile_count(problem, config), config["GROUP_M"]
    a_is_t, b_is_t = transposed(problem)
    if config["VARIANT"] == "persistent" and describable(a, a_is_t) and describable(b, b_is_t) and describable(out):
        block_m, block_n, block_k = config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]
        descriptors = (
            described(a, block_m, block_k, is_t=a_is_t),
            described(b, block_k, block_n, is_t=b_is_t),
            described(out, block_m, block_n // config["STORES"]),
        )
        programs = tensors["arrived"].shape[0]
        sliced = sliced_tiles(problem, config, programs)
        args = (*descriptors, *summing, M, N, K, tiles - sliced, group_m)
        grid = min(programs, max(tiles - sliced, sliced * config["SPLIT_K"]))
        compiled |= {"STORES": config["STORES"], "A_IS_T": a_is_t, "B_IS_T": b_is_t}
        return (Launch(gemm_persistent, (grid,), args, compiled),)
    strides = [tensor.stride(dim) for tensor in (a, b, out) for dim in (0, 1)]
    if config["VARIANT"] == "persistent":
        compiled["SPLIT_K"] = 1  # its workspace has room for the last wave alone
    compiled["WHOLE_K"] = K % config["BLOCK_K"] == 0
    args = (a, b, out, *summing, M, N, K, *strides, group_m)
    return (Launch(gemm_tiles, (tiles * compiled["SPLIT_K"],), args, compiled),)


def describable(matrix: Any, is_t: bool = False) -> bool:
    """Whether the copy engine can address it: rows (columns, if it `is_t`) without gaps, all aligned to 16 bytes."""
    inner, outer = (0, 1) if is_t else (1, 0)
    return (
        matrix.stride(inner) == 1
        and matrix.stride(outer) > 0
        and matrix.stride(outer) * matrix.dtype.itemsize % 16 == 0
        and matrix.data_ptr() % 16 == 0
    )


def described(matrix: Any, rows: int, columns: int, *, is_t: bool = False) -> TensorDescriptor:
    """A descriptor of blocks of so many rows and columns, over memory as it lies."""
    sizes, strides, block = list(matrix.shape), [matrix.stride(0), matrix.stride(1)], [rows, columns]
    order = slice(None, None, -1 if is_t else 1)
    return TensorDescriptor(matrix, sizes[order], strides[order], block[order])


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    """In fp32 for 16-bit inputs (their products are exact there) and in fp64 for fp32 ones."""
    a, b = tensors["a"][rows], tensors["b"]
    out = a.double() @ b.double() if problem.dtype == "fp32" else a.float() @ b.float()
    if problem["bias"]:
        out += tensors["bias"]
    return {"out": activated(problem, out)}


def activated(problem: Problem, x: Any) -> Any:
    import torch

    return {"none": lambda x: x, "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu}[
        problem["activation"]
    ](x)


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """`torch.matmul` or `torch.addmm`, which are cuBLAS, and torch's activation after it."""
    import torch

    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, dict(problem.attributes).get("precision") == "tf32"
    a, b, out = tensors["a"], tensors["b"], tensors["out"]
    try:
        if problem["bias"]:
            torch.addmm(tensors["bias"], a, b, out=out)
        else:
            torch.matmul(a, b, out=out)
        return out if problem["activation"] == "none" else out.copy_(activated(problem, out))
    finally:
        matmul.allow_tf32 = before


def stage_bytes(problem: Problem, config: Mapping[str, Any]) -> int:
    """Shared memory that one step's tiles of a and b take."""
    return (config["BLOCK_M"] + config["BLOCK_N"]) * config["BLOCK_K"] * itemsize(problem.dtype)


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    M, N, K = problem.sizes
    block_m, block_n, block_k = config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]
    threads = config["num_warps"] * limits.warp_size
    persistent = config["VARIANT"] == "persistent"
    return (
        # Pieces are how a persistent kernel stores.
        (persistent or config["STORES"] == 1)
        # A tile larger than the matrix computes rows that nobody reads.
        and block_m <= max(16, next_power_of_2(M))
        and block_n <= max(16, next_power_of_2(N))
        and block_k <= max(32, next_power_of_2(K))
        # 16-wide tiles starve the tensor cores; they are for matrices with few rows.
        and (min(block_m, block_n) > 16 or min(M, N) <= 64)
        # Grouping more rows of tiles than there are changes nothing.
        and config["GROUP_M"] <= next_power_of_2(cdiv(M, block_m))
        # The fp32 accumulators live in registers, beside at least something else: a tile that fills or spills
        # them is refused by ptxas or compiles for minutes.
        and block_m * block_n < min(threads * limits.registers_per_thread, limits.registers_per_sm)
        # Enough of the tile for each warp to own one 16 x 8 tensor-core tile.
        and block_m * block_n >= config["num_warps"] * 16 * 8
        and threads <= limits.threads_per_block
        # Steps along K are 32-bit offsets, and one down a column crosses whole rows. (Along M and N they are 64-bit.)
        and block_k * max(M, N) < 2**31
        and (config["SPLIT_K"] == 1 or worth_slicing(problem, config, limits))
        and (persistent_can if persistent else tiles_can)(problem, config, limits)
    )


def tiles_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """What is asked of the kernel that goes through pointers alone."""
    # Hopper's wgmma takes its operands from shared memory, so the step in use stays there beside those on their
    # way; older instructions copy it to registers first and need one buffer less.
    wgmma = limits.capability[0] == 9 and config["BLOCK_M"] >= 64 and config["num_warps"] >= 4
    buffers = config["num_stages"] - (0 if wgmma else 1)
    return buffers * stage_bytes(problem, config) <= limits.shared_bytes


def persistent_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """What is asked of the persistent kernel alone."""
    M, N, K = problem.sizes
    a_is_t, b_is_t = transposed(problem)
    rows = (M if a_is_t else K, K if b_is_t else N, N)
    tile = config["BLOCK_M"] * config["BLOCK_N"]
    store_bytes = tile // config["STORES"] * itemsize(problem.dtype)
    return (
        # The copy engine came with Hopper, and wants every row aligned to 16 bytes.
        limits.capability >= (9, 0)
        and all(row * itemsize(problem.dtype) % 16 == 0 for row in rows)
        # Exact fp32 products are made by threads, which want their operands in registers.
        and dict(problem.attributes).get("precision") != "ieee"
        # With two stages the copy engine waits for the tensor cores; more warps only divide their work.
        and config["num_stages"] >= 3
        and config["num_warps"] <= 8
        # Halves are for tiles that leave no room for another stage.
        and (config["STORES"] == 1 or tile >= 128 * 128)
        and config["num_stages"] * stage_bytes(problem, config) + store_bytes <= limits.shared_bytes
    )


def worth_slicing(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Whether slices along K give idle multiprocessors work that outweighs adding up their sums."""
    tiles = tile_count(problem, config)
    slices = sliced_tiles(problem, config, limits.sm_count) * config["SPLIT_K"]
    if config["SPLIT_K"] * config["BLOCK_K"] * 2 > problem["K"]:  # less than two steps each
        return False
    if config["VARIANT"] == "persistent":  # one wave of slices, as full as it can be, after a few of tiles
        return limits.sm_count < 2 * slices <= 2 * limits.sm_count and tiles < 8 * limits.sm_count
    return tiles <= limits.sm_count and slices <= 8 * limits.sm_count


_TILES = {
    (128, 256): 1.0, (128, 128): 0.956, (256, 128): 0.952, (64, 256): 0.95, (256, 64): 0.846, (64, 128): 0.814,
    (128, 64): 0.687, (64, 64): 0.578, (256, 32): 0.527, (128, 32): 0.451, (64, 32): 0.338,
}  # fmt: skip
"""How fast the tensor cores are with a tile, over the fastest: the best config of each in the recorded space of 4096^3
bf16 (H200, 2026-11-28), where all fill the card alike."""


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Of the tiles the one whose waves over the multiprocessors take least, persistent where that can be.

    Few rows: the widest tile that still gives every multiprocessor one, for the bytes of b are what takes the time.

    Measured on an H200, 2026-11-28, bf16: the best of all configs at 1024 x 6144 x 4096, at 256 x 4096 x 14336 (nt) and
    at 16 x 4096 x 4096, and 0.996 of it at 4096^3.
    """
    M, N, _ = problem.sizes
    if min(M, N) < 64:
        return few_rows(problem, limits)

    def waves(tile: tuple[int, int]) -> float:
        block_m, block_n = tile
        return cdiv(cdiv(M, block_m) * cdiv(N, block_n), limits.sm_count) * block_m * block_n / _TILES[tile]

    for block_m, block_n in sorted(_TILES, key=waves):
        config = {
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "num_warps": 8 if block_m * block_n > 128 * 128 else 4,
        }
        for found in filled(problem, config, limits, most_bytes=48 * 1024):
            return found
    return few_rows(problem, limits)


def few_rows(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """The default where a tile has fewer than 64 rows or columns."""
    M, N, _ = problem.sizes
    block_m = min(128, max(16, next_power_of_2(M)))
    block_n = min(256, max(16, next_power_of_2(N)))
    narrowest = 32 if transposed(problem)[1] else 64  # b's rows, 128 bytes of each at least
    while cdiv(M, block_m) * cdiv(N, block_n) < limits.sm_count and max(block_m, block_n // 2) > 32:
        if block_m > block_n:
            block_m //= 2
        elif block_n > narrowest:
            block_n //= 2
        else:
            break
    config = {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "num_warps": 4 if block_m * block_n > 16 * 16 else 2,
    }
    return next(filled(problem, config, limits, most_bytes=40 * 1024))


def filled(
    problem: Problem, config: Mapping[str, int], limits: Limits, most_bytes: int
) -> Iterator[Mapping[str, Value]]:
    """A tile with its order, its variant, and the deepest steps and the most stages that fit."""
    grouped = next_power_of_2(cdiv(problem["M"], config["BLOCK_M"]))
    group_m = max(rows for rows in (1, 4, 8) if rows <= grouped)
    for variant in ("persistent", "tiles"):
        for block_k in (256, 128, 64, 32):
            for stages, stores in product((6, 5, 4, 3, 2), (1, 2)):
                more = {"BLOCK_K": block_k, "VARIANT": variant, "SPLIT_K": 1, "STORES": stores, "num_stages": stages}
                full = {**config, "GROUP_M": group_m, **more}
                if stage_bytes(problem, full) <= most_bytes and valid(problem, full, limits):
                    yield full


def rounding(problem: Problem) -> float:
    """tf32 keeps 10 bits of a product's factors; cuBLAS does not always use it where it may (1 x 1 x 1)."""
    return 2.0**-10 if dict(problem.attributes).get("precision") == "tf32" else 0.0


def flops(problem: Problem) -> int:
    M, N, K = problem.sizes
    return 2 * M * N * K


KERNEL = Kernel(
    signature=Signature(
        op="gemm",
        summary="matrix product out (M, N) = a (M, K) @ b (K, N), bias and activation if asked",
        dims=(
            Dim("M", help="rows of a and out"),
            Dim("N", default="M", help="columns of b and out"),
            Dim("K", default="M", help="columns of a, rows of b"),
        ),
        dtypes=("bf16", "fp16", "fp32"),
        attributes=(
            Attribute("layout", ("nn", "nt", "tn", "tt"), "nn", help="which of a, b is a transposed view (t)"),
            Attribute("bias", (False, True), False, help="whether bias (N,) is added to every row"),
            Attribute("activation", ("none", "silu", "gelu"), "none", help="what is applied to the sums"),
            Attribute("precision", ("ieee", "tf32"), "ieee", help="how fp32 products are made", dtypes=("fp32",)),
        ),
        knobs=(
            Knob("BLOCK_M", (16, 32, 64, 128, 256), "rows of the output tile a program computes"),
            Knob("BLOCK_N", (16, 32, 64, 128, 256), "columns of that tile"),
            Knob("BLOCK_K", (32, 64, 128, 256), "depth of one step of the loop over K"),
            Knob("GROUP_M", (1, 4, 8, 16), "rows of tiles walked together, for reuse in L2; not compiled in"),
            Knob("VARIANT", ("tiles", "persistent"), "a program a tile, or one a multiprocessor (Hopper on)", "tiles"),
            Knob("SPLIT_K", (1, 2, 4, 8, 16), "slices along K: of all tiles, or of a persistent kernel's last wave", 1),
            Knob("STORES", (1, 2), "pieces a persistent kernel stores a tile in", 1),
            Knob("num_warps", (2, 4, 8, 16), "warps that share a tile and its accumulators"),
            Knob("num_stages", (2, 3, 4, 5, 6), "steps of the loop in flight between device and shared memory"),
        ),
    ),
    operands=operands,
    launch=launch,
    workspace=workspace,
    reference=reference,
    vendor=vendor,
    valid=valid,
    default=default,
    flops=flops,
    rounding=rounding,
)
