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

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as GluonDescriptor
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.kernels.device.gemm_persistent import gemm_persistent
from tuner.kernels.device.gemm_specialized import gemm_specialized
from tuner.kernels.device.gemm_streamed import gemm_streamed
from tuner.kernels.device.gemm_tiles import gemm_tiles
from tuner.kernels.device.gemm_vectors import gemm_vectors
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
from tuner.kernels.tiling import (
    accumulators_fit,
    b_is_wider,
    by_waves,
    describable,
    flops,
    has_steps,
    little_left,
    reading,
    rows_walked,
    slices_fill,
    stage_bytes,
    suits,
    threads_can,
    tile_count,
)


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


def sliced_tiles(problem: Problem, config: Mapping[str, Any], sm_count: int) -> int:
    """How many tiles are cut along K: all, or of a persistent kernel those after its last full wave."""
    if config["SPLIT_K"] == 1:
        return 0
    tiles = tile_count(problem, config)
    return tiles % sm_count if config["VARIANT"] == "persistent" else tiles


def shared_tiles(problem: Problem, config: Mapping[str, Any], programs: int) -> int:
    """How many tiles are cut evenly among all programs: a full wave, and what is left of the tiles beside full waves.

    So each program gets more than one tile's worth of steps, and none waits for the sums of more than one other. They
    are the first in number, and done first.
    """
    return programs + tile_count(problem, config) % programs if config["VARIANT"] == "stream_k" else 0


def workspace(problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
    """The sums of slices, and how many of each tile have arrived; of programs that stay, a counter for each."""
    sliced = sliced_tiles(problem, config, limits.sm_count)
    counters = limits.sm_count if config["VARIANT"] in DESCRIBED else sliced
    sums = sliced * config["SPLIT_K"]
    if config["VARIANT"] == "stream_k":  # at most one unfinished tile of every program, told of in halves
        counters, sums = 2 * limits.sm_count, limits.sm_count
    partials = Operand((sums, config["BLOCK_M"], config["BLOCK_N"]), "fp32")
    return {
        **({"arrived": Operand((counters,), "int32")} if counters else {}),
        **({"partials": partials} if sums else {}),
    }


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    """Some variants need rows without gaps, aligned to 16 bytes; other tensors of the same problem go by tiles."""
    M, N, _ = problem.sizes
    if M == 0 or N == 0:
        return ()
    a_is_t, b_is_t = transposed(problem)
    if config["VARIANT"] == "vectors":
        return (vectors(problem, config, tensors),)
    if config["VARIANT"] == "tiles":
        return (tiles(problem, config, tensors),)
    if describable(tensors["a"], a_is_t) and describable(tensors["b"], b_is_t):
        if config["VARIANT"] == "streamed":
            return (streamed(problem, config, tensors),)
        if describable(tensors["out"]):
            return ((persistent if config["VARIANT"] == "persistent" else specialized)(problem, config, tensors),)
    return (tiles(problem, through_pointers(config), tensors),)


def through_pointers(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What replaces a config that takes no such tensors: the same tile without slices, for which the workspace has no
    room; for warps with roles, a tile that fits four warps."""
    if config["VARIANT"] == "persistent":
        return {**config, "SPLIT_K": 1}
    if config["VARIANT"] == "streamed":
        return {**config, "BLOCK_N": 64, "BLOCK_K": 64, "num_stages": 4}
    return {**config, "BLOCK_M": 128, "BLOCK_N": min(128, config["BLOCK_N"]), "BLOCK_K": 64, "num_stages": 4}


def compiled_in(problem: Problem, config: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The knobs that every variant is compiled with, and those of these names."""
    always = ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps", "num_stages")
    return {name: config[name] for name in (*always, *names)} | {"ACTIVATION": problem["activation"]}


def strides(tensors: Mapping[str, Any]) -> list[int]:
    return [tensors[name].stride(dim) for name in ("a", "b", "out") for dim in (0, 1)]


def precision(problem: Problem) -> Value:
    """How fp32 products are made; of other types there is one way."""
    return dict(problem.attributes).get("precision", "ieee")


def tiles(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    pointers = [tensors.get(name) for name in ("a", "b", "out", "bias", "partials", "arrived")]
    whole_k = problem["K"] % config["BLOCK_K"] == 0
    return Launch(
        gemm_tiles,
        grid=(tile_count(problem, config) * config["SPLIT_K"],),
        args=(*pointers, *problem.sizes, *strides(tensors), config["GROUP_M"]),
        kwargs=compiled_in(problem, config, "SPLIT_K") | {"PRECISION": precision(problem), "WHOLE_K": whole_k},
    )


def vectors(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    pointers = [tensors.get(name) for name in ("a", "b", "out", "bias")]
    scales = (None, None)
    run, threads = along_k(problem, config)
    return Launch(
        gemm_vectors,
        grid=(tile_count(problem, config),),
        args=(*pointers, *scales, *problem.sizes, *strides(tensors)),
        kwargs=compiled_in(problem, config)
        | {"WHOLE_K": problem["K"] % config["BLOCK_K"] == 0, "RUN": run, "THREADS": threads}
        | reading(problem, config),
    )


def along_k(problem: Problem, config: Mapping[str, Any]) -> tuple[int, int]:
    """How many neighbours along K one thread multiplies, and how many threads lie along K, where each loads 16 bytes of
    the wider factor: the layout that Triton gives it, so that what a thread adds up is its own."""
    a_is_t, b_is_t = transposed(problem)
    width, threads = 16 // itemsize(problem.dtype), 32 * config["num_warps"]
    if b_is_t if b_is_wider(problem, config) else not a_is_t:
        return width, min(threads, config["BLOCK_K"] // width)
    across = max(1, max(config["BLOCK_M"], config["BLOCK_N"]) // width)
    return 1, min(threads // across, config["BLOCK_K"])


def streamed(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    M, N, K = problem.sizes
    a, b, out = tensors["a"], tensors["b"], tensors["out"]
    eighths = [length // 8 for length in (K, a.stride(0), b.stride(1))]
    return Launch(
        gemm_streamed,
        grid=(cdiv(N, config["BLOCK_N"]),),
        args=(a, b, out, tensors.get("bias"), M, N, *eighths, out.stride(0), out.stride(1)),
        kwargs=compiled_in(problem, config) | {"STAGES": config["num_stages"]},
    )


def persistent(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    a_is_t, b_is_t = transposed(problem)
    block_m, block_n, block_k = config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]
    descriptors = (
        described(tensors["a"], block_m, block_k, is_t=a_is_t),
        described(tensors["b"], block_k, block_n, is_t=b_is_t),
        described(tensors["out"], block_m, block_n // config["STORES"]),
    )
    summing = [tensors.get(name) for name in ("bias", "partials", "arrived")]
    programs = tensors["arrived"].shape[0]
    sliced = sliced_tiles(problem, config, programs)
    whole = tile_count(problem, config) - sliced
    return Launch(
        gemm_persistent,
        grid=(min(programs, max(whole, sliced * config["SPLIT_K"])),),
        args=(*descriptors, *summing, *problem.sizes, whole, config["GROUP_M"]),
        kwargs=compiled_in(problem, config, "SPLIT_K", "STORES")
        | {"PRECISION": precision(problem), "A_IS_T": a_is_t, "B_IS_T": b_is_t},
    )


def specialized(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    a_is_t, b_is_t = transposed(problem)
    block_m, block_n, block_k = config["BLOCK_M"], config["BLOCK_N"], config["BLOCK_K"]
    wide, rest = in_powers_of_2(block_n)
    a, b, out = tensors["a"], tensors["b"], tensors["out"]
    stream_k = config["VARIANT"] == "stream_k"
    programs = tensors["arrived"].shape[0] // (2 if stream_k else 1)
    args = (
        described(a, block_m, block_k, is_t=a_is_t, gluon=problem.dtype),
        described(b, block_k, wide, is_t=b_is_t, gluon=problem.dtype),
        described(b, block_k, rest, is_t=b_is_t, gluon=problem.dtype) if rest else None,
        described(out, block_m // 2, wide // config["STORES"], gluon=problem.dtype),
        described(out, block_m // 2, rest, gluon=problem.dtype) if rest else None,
        *(tensors.get(name) for name in ("bias", "partials", "arrived")),
        *problem.sizes,
        shared_tiles(problem, config, programs),
        config["GROUP_M"],
    )
    return Launch(
        gemm_specialized,
        grid=(programs if stream_k else min(programs, tile_count(problem, config)),),
        args=args,
        kwargs=compiled_in(problem, config, "STORES")
        | {"STAGES": config["num_stages"], "A_IS_T": a_is_t, "B_IS_T": b_is_t, "STREAM_K": stream_k},
    )


def in_powers_of_2(columns: int) -> tuple[int, int]:
    """The two powers of 2 that 192 is the sum of; a power of 2 and 0."""
    wide = 1 << columns.bit_length() - 1
    return wide, columns - wide


def described(
    matrix: Any, rows: int, columns: int, *, is_t: bool = False, gluon: str | None = None
) -> TensorDescriptor | GluonDescriptor:
    """A descriptor of blocks of so many rows and columns, over memory as it lies; with a dtype, one for Gluon."""
    order = slice(None, None, -1 if is_t else 1)
    block = [rows, columns][order]
    lies = (matrix, list(matrix.shape)[order], [matrix.stride(0), matrix.stride(1)][order], block)
    if gluon is None:
        return TensorDescriptor(*lies)
    return GluonDescriptor(*lies, gl.NVMMASharedLayout.get_default_for(block, _GLUON[gluon]))


_GLUON = {"bf16": gl.bfloat16, "fp16": gl.float16}


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


DESCRIBED = ("persistent", "specialized", "stream_k")
"""The variants that go through descriptors, a program a multiprocessor."""

_ROLES: Mapping[str, tuple[Value, ...]] = {
    "BLOCK_M": (128, 256),  # two groups of 64 rows, or of 128
    "BLOCK_N": (64, 128, 192, 256),
    "BLOCK_K": (64, 128),
    "SPLIT_K": (1,),
    "num_warps": (4,),
    "num_stages": (3, 4, 5, 6),
}

VARIANTS: Mapping[str, Mapping[str, tuple[Value, ...]]] = {
    "tiles": {
        "BLOCK_M": (16, 32, 64, 128, 256),
        "BLOCK_N": (16, 32, 64, 128, 256),
        "BLOCK_K": (32, 64, 128, 256),
        "STORES": (1,),
        "num_stages": (2, 3, 4, 5, 6),
    },
    "persistent": {
        "BLOCK_M": (16, 32, 64, 128, 256),
        "BLOCK_N": (16, 32, 64, 128, 256),
        "BLOCK_K": (32, 64, 128, 256),
        "num_warps": (2, 4, 8),  # more only divide their work
        "num_stages": (3, 4, 5, 6),  # with two the copy engine waits for the tensor cores
    },
    "specialized": _ROLES,
    "stream_k": _ROLES,
    "streamed": {
        "BLOCK_M": (16,),
        "BLOCK_N": (8, 16, 32),
        "BLOCK_K": (128, 256, 512, 1024),
        "GROUP_M": (1,),
        "SPLIT_K": (1,),
        "STORES": (1,),
        "num_warps": (2, 4, 8),
        "num_stages": (3, 4),
    },
    "vectors": {
        "BLOCK_M": (1, 2, 4, 8, 16, 32, 64),
        "BLOCK_N": (1, 2, 4, 8, 16, 32, 64),
        "BLOCK_K": (64, 128, 256, 512, 1024, 2048, 4096),
        "GROUP_M": (1,),
        "SPLIT_K": (1,),
        "STORES": (1,),
        "num_stages": (1,),  # what goes by shared memory cannot say that it is read once
    },
}
"""The choices that each variant has a use for."""


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    M, N, _ = problem.sizes
    return (
        suits(problem, config, limits, least=1 if config["VARIANT"] == "vectors" else 16)
        # Steps along K are 32-bit offsets, and one down a column crosses whole rows. (Along M and N they are 64-bit.)
        and config["BLOCK_K"] * max(M, N) < 2**31
        and _CAN[config["VARIANT"]](problem, config, limits)
        and (config["SPLIT_K"] == 1 or worth_slicing(problem, config, limits))
        and all(config[name] in choices for name, choices in VARIANTS[config["VARIANT"]].items())
    )


def tiles_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """What is asked of the kernel that goes through pointers."""
    # Hopper's wgmma takes its operands from shared memory, so the step in use stays there beside those on their
    # way; older instructions copy it to registers first and need one buffer less.
    wgmma = limits.capability[0] == 9 and config["BLOCK_M"] >= 64 and config["num_warps"] >= 4
    buffers = config["num_stages"] - (0 if wgmma else 1)
    return accumulators_fit(problem, config, limits) and buffers * stage_bytes(problem, config) <= limits.shared_bytes


def descriptors_can(problem: Problem, limits: Limits) -> bool:
    """The copy engine came with Hopper, and wants every row aligned to 16 bytes."""
    M, N, K = problem.sizes
    a_is_t, b_is_t = transposed(problem)
    rows = (M if a_is_t else K, K if b_is_t else N, N)
    return limits.capability >= (9, 0) and all(row * itemsize(problem.dtype) % 16 == 0 for row in rows)


def on_tensor_cores(problem: Problem) -> bool:
    """Whether products are: exact fp32 ones are made by threads, which want their operands in registers."""
    return problem.dtype != "fp32" or precision(problem) == "tf32"


def persistent_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """What is asked of the persistent kernel."""
    tile = config["BLOCK_M"] * config["BLOCK_N"]
    store_bytes = tile // config["STORES"] * itemsize(problem.dtype)
    return (
        descriptors_can(problem, limits)
        and accumulators_fit(problem, config, limits)
        and on_tensor_cores(problem)
        # Halves are for tiles that leave no room for another stage.
        and (config["STORES"] == 1 or tile >= 128 * 128)
        and config["num_stages"] * stage_bytes(problem, config) + store_bytes <= limits.shared_bytes
    )


def specialized_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """What is asked of the kernel whose warps have roles."""
    tile = config["BLOCK_M"] * config["BLOCK_N"]
    store_bytes = tile // config["STORES"] * itemsize(problem.dtype)
    return (
        descriptors_can(problem, limits)
        # wgmma is Hopper's alone, and turns operands around only while they have 16 bits.
        and limits.capability[0] == 9
        and itemsize(problem.dtype) == 2
        # Half of the accumulators of each group's threads are its most: the rest is for addresses.
        and tile <= 2 * 128 * 128
        and (config["STORES"] == 1 or config["BLOCK_N"] in (128, 256))
        and config["num_stages"] * stage_bytes(problem, config) + store_bytes + 1024 <= limits.shared_bytes
    )


def vectors_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """What is asked of the kernel without tensor cores."""
    return precision(problem) == "ieee" and threads_can(problem, config, limits)


def streamed_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """What is asked of the kernel whose threads load b themselves."""
    threads = config["num_warps"] * limits.warp_size
    return (
        1 < problem["M"] <= 16
        and problem["layout"] == "nt"
        and itemsize(problem.dtype) == 2
        and problem["K"] % 8 == 0
        # Since Ampere; others make products in another way than Gluon's for NVIDIA.
        and limits.capability >= (8, 0)
        # Each warp has 32 at least of a step along K, and a thread two steps of b, two elements a register, in half of
        # its registers.
        and config["BLOCK_K"] >= 32 * config["num_warps"]
        and config["BLOCK_N"] * config["BLOCK_K"] <= threads * limits.registers_per_thread // 2
        and config["num_stages"] * 16 * config["BLOCK_K"] * 2 <= limits.shared_bytes
    )


def stream_k_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """What is asked of warps with roles that share the last waves evenly."""
    return (
        specialized_can(problem, config, limits)
        and has_steps(problem, config)
        and little_left(tile_count(problem, config), limits)
    )


_CAN = {
    "tiles": tiles_can,
    "persistent": persistent_can,
    "specialized": specialized_can,
    "stream_k": stream_k_can,
    "streamed": streamed_can,
    "vectors": vectors_can,
}


def worth_slicing(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Whether slices along K give idle multiprocessors work that outweighs adding up their sums."""
    if not has_steps(problem, config):
        return False
    if config["VARIANT"] != "persistent":
        return slices_fill(problem, config, limits)
    # One wave of slices, as full as it can be, after a few of tiles.
    slices = sliced_tiles(problem, config, limits.sm_count) * config["SPLIT_K"]
    few = tile_count(problem, config) < 16 * limits.sm_count
    return few and limits.sm_count < 2 * slices <= 2 * limits.sm_count


_TILES = {
    (128, 256): 1.0, (128, 128): 0.956, (256, 128): 0.952, (64, 256): 0.95, (128, 192): 0.95, (256, 64): 0.846,
    (64, 128): 0.814, (128, 64): 0.687, (64, 64): 0.578, (256, 32): 0.527, (128, 32): 0.451, (64, 32): 0.338,
}  # fmt: skip
"""How fast the tensor cores are with a tile, over the fastest: the best config of each in the recorded space of 4096^3
bf16 (H200, 2026-11-28), where all fill the card alike; 192 columns, which do not, by how they compare at 3072^3 and at
1024 x 6144 x 4096."""


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Of the tiles, whole, in two slices or shared evenly, the one whose waves over the multiprocessors take least.

    Few rows: tiles for the bytes of b, which are what takes the time. One row: no tensor cores.
    """
    M, N, _ = problem.sizes
    if min(M, N) < 64:
        ways = (by_vectors, by_stream, sixteen_rows)
        return next((found for way in ways if (found := way(problem, limits))), None) or few_rows(problem, limits)
    if limits.capability[0] == 9 and precision(problem) == "tf32" and problem["layout"] != "nt":
        return across_k(problem, limits)
    for tiling in by_waves(problem, _TILES, limits, even=True):
        block_m, block_n = tiling.block_m, tiling.block_n
        config: dict[str, Value] = {
            "BLOCK_M": block_m,
            "BLOCK_N": block_n,
            "SPLIT_K": tiling.slices,
            "num_warps": 8 if block_m * block_n > 128 * 128 and block_n != 192 else 4,
            **({"VARIANT": "stream_k", "num_warps": 4} if tiling.even else {}),
        }
        for found in filled(problem, config, limits, most_bytes=48 * 1024):
            return found
    return few_rows(problem, limits)


def by_vectors(problem: Problem, limits: Limits) -> Mapping[str, Value] | None:
    """The default of a matrix times a vector, or times up to four where it lies along K; None where it is too small, or
    the tensor cores are asked for.

    A matrix that lies along K is read a row a program, in steps of 8 KB where they divide it: 18.3 us at
    1 x 6144 x 4096, and 19.3 with four rows a program. For more vectors programs take as many rows, and less of each.
    One that lies across K is read 128 bytes of a row at once, by programs of 16 warps: 38.8 us at 1 x 4096 x 14336,
    40.9 with 8. Where there are more than two of those for each multiprocessor, they are small and share it: 65.4 us at
    1 x 28672 x 4096, 67.5 with 8 (H200, 2026-11-28).
    """
    M, N, K = problem.sizes
    a_is_t, b_is_t = transposed(problem)
    few, many, lies_along_k = ("BLOCK_M", "BLOCK_N", b_is_t) if M <= N else ("BLOCK_N", "BLOCK_M", not a_is_t)
    vectors = next_power_of_2(min(M, N))
    if K < 1024 or vectors > (4 if lies_along_k else 1):
        return None
    if lies_along_k:
        step = 4096 if K % 4096 == 0 else 2048 if K >= 2048 else 1024
        depth, warps = {1: (step, step // 512), 2: (min(step, 2048), 2), 4: (512, 2)}[vectors]
        tile = {many: vectors, "BLOCK_K": depth, "num_warps": warps}
    else:
        columns = 128 // itemsize(problem.dtype)
        small = cdiv(max(M, N), columns) > 2 * limits.sm_count
        tile = {many: columns, "BLOCK_K": 128 if small else 512, "num_warps": 4 if small else 16}
    config: dict[str, Value] = {
        few: vectors,
        "GROUP_M": 1,
        "VARIANT": "vectors",
        "SPLIT_K": 1,
        "STORES": 1,
        "num_stages": 1,
        **tile,
    }
    return config if valid(problem, config, limits) else None


def by_stream(problem: Problem, limits: Limits) -> Mapping[str, Value] | None:
    """The default of up to 16 rows where columns of b lie along K, while all programs run at once; else None.

    Steps are as deep as lets them: two programs of 512 for each multiprocessor, or three of 256. 16 x 4096 x 14336
    takes 38.8 us so, 42.3 in steps of 256 and 41.6 in tiles; 16 x 6144 x 4096 21.4, 21.9 in steps of 512 and 23.6 in
    tiles; 16 x 28672 x 4096, whose programs do not all run at once, 71.4 at best and 70.1 in tiles (H200, 2026-11-28).
    """
    programs = cdiv(problem["N"], 16)
    config: dict[str, Value] = {
        "BLOCK_M": 16,
        "BLOCK_N": 16,
        "BLOCK_K": 512 if programs <= 2 * limits.sm_count else 256,
        "GROUP_M": 1,
        "VARIANT": "streamed",
        "SPLIT_K": 1,
        "STORES": 1,
        "num_warps": 4,
        "num_stages": 3,
    }
    return config if programs <= 3 * limits.sm_count and valid(problem, config, limits) else None


def across_k(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """The default of a tf32 product of which a factor does not lie along K, on Hopper.

    Its wgmma turns 16-bit factors around, not these. Two warps with the older instructions and all their registers are
    then fastest by far: 95.3 us at 2048^3, where more take 117 at best and cuBLAS 51.3 (H200, 2026-11-28).
    """
    M, N, _ = problem.sizes
    wide = N > 64 and cdiv(M, 64) * cdiv(N, 128) >= limits.sm_count
    return {
        "BLOCK_M": 64,
        "BLOCK_N": 128 if wide else 64,
        "BLOCK_K": 32,
        "GROUP_M": rows_walked(problem, 64),
        "VARIANT": "tiles",
        "SPLIT_K": 1,
        "STORES": 1,
        "num_warps": 2,
        "num_stages": 3 if wide else 4,
    }


def sixteen_rows(problem: Problem, limits: Limits) -> Mapping[str, Value] | None:
    """The default of up to 16 rows, which a tile has at least; None where there are more, or it does not fit.

    All the time goes by reading b. So tiles are as wide as their waves allow, and steps as deep as leaves six of them:
    16 x 6144 x 4096 takes 22.1 us in steps of 20 KB and 23.7 in ones of 40, 16 x 28672 x 4096 67.0 in tiles of 256
    columns and 71.7 of 128. Columns of b that are its rows want 256 bytes at once. Else more than 12 MB on their way
    only wait for each other: 16 x 4096 x 4096 takes 17.2 us with five stages and 17.7 with six. Descriptors fetch
    nothing in place of rows that are missing (H200, 2026-11-28).
    """
    M, N, _ = problem.sizes
    b_is_t = transposed(problem)[1]
    widths = [width for width in (256, 128, 64, 32) if width <= next_power_of_2(N) and (b_is_t or width > 32)]
    if M > 16 or not widths:
        return None
    walked = {width: cdiv(cdiv(N, width), limits.sm_count) * width for width in widths}  # columns, by the waves of each
    block_n = next(width for width in widths if walked[width] <= 1.2 * min(walked.values()))
    tiles, column_bytes = cdiv(N, block_n), (16 + block_n) * itemsize(problem.dtype)
    most_bytes = 35 * 1024 if 3 * tiles >= 2 * limits.sm_count else 40 * 1024
    block_k = next(depth for depth in (256, 128, 64, 32) if depth * column_bytes <= most_bytes or depth == 32)
    if b_is_t:
        block_k = max(block_k, 128)
    on_their_way = 12_000_000 // (min(tiles, limits.sm_count) * block_k * column_bytes)
    described = M <= 8 and descriptors_can(problem, limits) and on_tensor_cores(problem)
    config: dict[str, Value] = {
        "BLOCK_M": 16,
        "BLOCK_N": block_n,
        "BLOCK_K": block_k,
        "VARIANT": "persistent" if described else "tiles",
        "SPLIT_K": 1,
        "num_warps": 4 if described or b_is_t else 2,
    }
    most_stages = 6 if b_is_t else min(6, max(3, 1 + on_their_way))
    for stages in range(most_stages, 1, -1):
        for found in filled(problem, config | {"num_stages": stages}, limits, most_bytes=limits.shared_bytes):
            return found
    return None


def few_rows(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """The default where a tile has fewer than 64 rows or columns.

    Where the narrowest tiles leave half of the multiprocessors idle, rows are cut in two, though b is then read twice
    from L2, or K is: 32 x 4096 x 4096 takes 17.5 us in tiles of 16 rows and 21.7 in ones of 32, 48 x 4096 x 14336 takes
    42.3 in two slices and 44.6 in one (H200, 2026-11-28).
    """
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
    config: dict[str, Value] = {
        "BLOCK_M": block_m,
        "BLOCK_N": block_n,
        "SPLIT_K": 1,
        "num_warps": 4 if block_m * block_n > 16 * 16 else 2,
    }
    if 2 * cdiv(M, block_m) * cdiv(N, block_n) <= limits.sm_count and min(block_m, block_n) >= 32:
        more = {"BLOCK_M": 16, "num_warps": 2} if block_m == 32 else {"SPLIT_K": 2}
        for found in filled(problem, config | more | {"VARIANT": "tiles", "num_stages": 5}, limits, 40 * 1024):
            return found
    return next(filled(problem, config, limits, most_bytes=40 * 1024))


def filled(
    problem: Problem, config: Mapping[str, Value], limits: Limits, most_bytes: int
) -> Iterator[Mapping[str, Value]]:
    """A tile with its order, and what it leaves open: the variant, the deepest steps and the most stages that fit."""
    group_m = rows_walked(problem, int(config["BLOCK_M"]))
    for variant in ("persistent", "specialized", "tiles"):
        for block_k in (256, 128, 64, 32):
            for stages, stores in product((6, 5, 4, 3, 2), (1, 2)):
                more = {"BLOCK_K": block_k, "VARIANT": variant, "STORES": stores, "num_stages": stages}
                full = {"GROUP_M": group_m, **more, **config}
                if stage_bytes(problem, full) <= most_bytes and valid(problem, full, limits):
                    yield full


def rounding(problem: Problem) -> float:
    """A sum of K products in fp32 strays by a root of K half steps, where each is added to all before it: 9.8e-7 at
    K = 1032, and cuBLAS, which adds sums of parts, by 1.7e-7 (H200, 2026-11-29). tf32 keeps 10 bits of a product's
    factors; cuBLAS does not always use it where it may (1 x 1 x 1)."""
    if problem.dtype != "fp32":
        return 0.0
    return 2.0**-10 if precision(problem) == "tf32" else problem["K"] ** 0.5 * 2.0**-24


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
            Knob("BLOCK_M", (1, 2, 4, 8, 16, 32, 64, 128, 256), "rows of the output tile a program computes"),
            Knob("BLOCK_N", (1, 2, 4, 8, 16, 32, 64, 128, 192, 256), "columns of that tile"),
            Knob("BLOCK_K", (32, 64, 128, 256, 512, 1024, 2048, 4096), "depth of one step of the loop over K"),
            Knob("GROUP_M", (1, 2, 4, 8, 16), "rows of tiles walked together, for reuse in L2; not compiled in"),
            Knob(
                "VARIANT",
                tuple(VARIANTS),
                "a program a tile; one a multiprocessor (Hopper on), also with roles for its warps, or with those and "
                "the last waves shared evenly; b straight to registers; no tensor cores",
                "tiles",
            ),
            Knob("SPLIT_K", (1, 2, 4, 8, 16), "slices along K: of all tiles, or of a persistent kernel's last wave", 1),
            Knob("STORES", (1, 2), "pieces a persistent kernel stores a tile in", 1),
            Knob("num_warps", (2, 4, 8, 16), "warps that share a tile and its accumulators"),
            Knob("num_stages", (1, 2, 3, 4, 5, 6), "steps of the loop in flight between device and shared memory"),
        ),
    ),
    operands=operands,
    launch=launch,
    workspace=workspace,
    reference=reference,
    vendor=vendor,
    valid=valid,
    parts=tuple({"VARIANT": (variant,), **choices} for variant, choices in VARIANTS.items()),
    default=default,
    flops=flops,
    rounding=rounding,
)
