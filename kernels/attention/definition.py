"""Attention: out = softmax(scale q k^T) v for each head, with the scores in fp32.

Written as separate torch operations, the M x N scores of each head are written and read again several times. A program
that holds a tile of rows of q reads blocks of k and v in turn, keeps the largest score and the sum of each row, and
rescales what it has added when the largest score grows (Dao et al., "FlashAttention", 2022): no score leaves the chip.
With many rows the tensor cores are the limit: 4 M N D operations for each head.

With few rows, as in decoding, reading k and v takes the time. The heads that share keys then share a tile, so that keys
are read once, and the keys are split among programs until the card is busy; a second launch adds their shares.

Keys and values lie in dense tensors, in sequences one after the other (packed), or in the pages of a cache.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import e, log2
from typing import Any

from tuner.kernels.attention.combine import attention_combine
from tuner.kernels.attention.default import default
from tuner.kernels.attention.draw import draw
from tuner.kernels.attention.reference import reference, scale_of
from tuner.kernels.attention.sequences import PAGES, flops, group, is_dense, operands, paged, window
from tuner.kernels.attention.space import (
    SPLITS,
    VARIANTS,
    head_width,
    packed_heads,
    pair_count,
    program_count,
    shares_staging,
    tile_count,
    valid,
)
from tuner.kernels.attention.specialized import attention_specialized, describable, described
from tuner.kernels.attention.tiles import attention_tiles
from tuner.kernels.attention.vendors import cudnn, flash, flashinfer, vendor
from tuner.kernels.shared.tiling import ALIGNED_BYTES, stated_multiple
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
    SizeLimit,
    cdiv,
    itemsize,
    next_power_of_2,
)

L2_BYTES = 24 * 2**20
"""Bytes of keys and values that programs which run together may read, so that they stay in L2."""
STREAMS = 32
"""Heads of keys that programs which run together may read in any case: a few programs then share each block of keys,
and memory brings 1 TB/s at most."""

COMBINED = 2048
"""Elements of all shares that a program of four warps adds: of several rows if those of one are fewer. With more than
four times as many in a row, there are more warps, up to 16, one for each 2,048."""


def workspace(problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
    """Return what each share of the keys leaves, of all rows that packed sequences can have.

    The length of `programs` is the number of persistent programs, one for each multiprocessor.
    """
    B, H, _, M, _, D = problem.sizes
    splits = config["SPLITS"]
    found = {"programs": Operand((limits.sm_count,), "int32")} if config["VARIANT"] == "specialized" else {}
    if splits == 1:
        return found
    sums, logs = Operand((splits, B * H * M, D), "fp32"), Operand((splits, B * H * M), "fp32")
    return {**found, "partial": sums, "partial_lse": logs}


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    """Return the launch of the tiles, and the one that adds the shares of split keys.

    `tiles` runs on tensors that descriptors cannot describe, with the same rows.
    """
    B, H, _, M, _, D = problem.sizes
    if not (B and H and M and D):
        return ()
    first = tiles(problem, config, tensors)
    if config["VARIANT"] == "specialized":
        plain = {**config, "BLOCK_N": 64, "num_warps": 8, "num_stages": 2}
        with_roles = all(describable(tensors[name]) for name in ("q", "k", "v", "out"))
        first = specialized(problem, config, tensors) if with_roles else tiles(problem, plain, tensors)
    return (first,) if config["SPLITS"] == 1 else (first, combined(problem, config, tensors))


def tiles(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    H, M, N, D = (problem[name] for name in ("H", "M", "N", "D"))
    score, most = factors(problem, tensors)
    heads = packed_heads(problem, config)
    pairs = pair_count(problem, config)
    names = ("q", "k", "v", "out", "lse", "partial", "partial_lse", "cu_q", "cu_k", "table", "lengths")
    strides = (
        *row_strides(problem, tensors["q"]),
        *key_strides(problem, tensors["k"]),
        *key_strides(problem, tensors["v"]),
        *row_strides(problem, tensors["out"]),
    )
    return Launch(
        attention_tiles,
        grid=(program_count(problem, config) * config["SPLITS"],),
        args=(
            *(tensors.get(name) for name in names),
            *(H // heads, tile_count(problem, config), pairs, together(problem, heads), M, N, window(problem)),
            *(score, most, all_rows(config, tensors)),
            *strides,
            *lse_strides(problem),
            table_stride(tensors),
        ),
        kwargs={name: config[name] for name in ("BLOCK_M", "BLOCK_N", "SPLITS", "num_warps", "num_stages")}
        | {"D": D, "BLOCK_D": head_width(problem), "PACK": heads, "SHARING": group(problem), "PAGE": problem["page"]}
        | {"CAUSAL": problem["causal"], "WINDOW": window(problem) > 0, "CAPPED": problem["capped"]}
        | {"STAGES": config["num_stages"], "ALIGN": alignment(problem, strides)},
    )


def specialized(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    count, pairs, splits = tile_count(problem, config), pair_count(problem, config), config["SPLITS"]
    score, most = factors(problem, tensors)
    names = ("lse", "partial", "partial_lse", "cu_q", "cu_k", "table", "lengths")
    heads = packed_heads(problem, config)
    out_strides = row_strides(problem, tensors["out"])[1:]
    sizes = (problem["H"] // heads, group(problem) // heads, problem["M"], problem["N"], window(problem))
    return Launch(
        attention_specialized,
        grid=(min(tensors["programs"].shape[0], count * pairs * splits),),
        args=(
            *described(problem, config, tensors),
            *(tensors.get(name) for name in names),
            *(count, pairs, together(problem, heads), *sizes, score, most, all_rows(config, tensors)),
            *out_strides,
            *lse_strides(problem),
            table_stride(tensors),
        ),
        kwargs={name: config[name] for name in ("BLOCK_M", "BLOCK_N", "SPLITS", "TURNS", "num_warps")}
        | {"CAUSAL": problem["causal"], "WINDOW": window(problem) > 0, "CAPPED": problem["capped"]}
        | {
            "PACK": heads,
            "D": problem["D"],
            "BLOCK_D": head_width(problem),
            "PAGE": problem["page"],
            "RAGGED": not is_dense(problem),
            "ALIGN": alignment(problem, out_strides),
        }
        | {"STAGES": config["num_stages"], "SHARED_STAGING": shares_staging(problem, config)},
    )


def all_rows(config: Mapping[str, Any], tensors: Mapping[str, Any]) -> int:
    """Return the rows of all heads in the workspace of split keys; 0 without a split."""
    return 0 if config["SPLITS"] == 1 else int(tensors["partial_lse"].shape[1])


def alignment(problem: Problem, strides: Iterable[int]) -> int:
    """Return the elements, up to 16 bytes, of which a kernel states that these strides are multiples."""
    return stated_multiple(ALIGNED_BYTES // itemsize(problem.dtype), *strides)


def lse_strides(problem: Problem) -> tuple[int, int, int]:
    """Return the strides of lse, and of the workspace: between sequences, heads and rows."""
    H, M = problem["H"], problem["M"]
    return (0, 1, H) if problem["packed"] else (H * M, M, 1)


def table_stride(tensors: Mapping[str, Any]) -> int:
    """Return the stride of the table between sequences; 0 without one."""
    return int(tensors["table"].stride(0)) if "table" in tensors else 0


def factors(problem: Problem, tensors: Mapping[str, Any]) -> tuple[float, float]:
    """Return the factor of a product of q and k, and the cap: scores are in powers of 2."""
    scale, cap = scale_of(problem, tensors), float(tensors["cap"])
    return (scale / cap, cap * log2(e)) if problem["capped"] else (scale * log2(e), 0.0)


def combined(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    """Return the launch that adds shares: a program for each few rows of all heads."""
    q, partial, logs = tensors["q"], tensors["partial"], tensors["partial_lse"]
    rows = q.shape[0] * q.shape[1] * (1 if problem["packed"] else q.shape[2])
    lse, strides = tensors.get("lse"), row_strides(problem, tensors["out"])
    width = next_power_of_2(config["SPLITS"])
    elements = width * head_width(problem)
    each = max(1, COMBINED // elements)
    return Launch(
        attention_combine,
        grid=(cdiv(rows, each),),
        args=(tensors["out"], lse, partial, logs, logs.shape[1], rows, problem["H"], problem["M"], *strides),
        kwargs={
            "D": problem["D"],
            "BLOCK_D": head_width(problem),
            "SPLITS": config["SPLITS"],
            "WIDTH": width,
            "ROWS": each,
            "IS_PACKED": problem["packed"],
            "ALIGN": alignment(problem, strides),
            "num_warps": min(16, max(4, elements // COMBINED)),
        },
    )


def together(problem: Problem, heads: int) -> int:
    """Return the number of pairs of a sequence and packed heads that run together, as equal for all as can be."""
    sharing = group(problem) // heads
    key_bytes = 2 * int(problem["N"]) * int(problem["D"]) * itemsize(problem.dtype)
    streams = int(problem["B"]) * int(problem["G"])
    sections = cdiv(streams, max(STREAMS, L2_BYTES // key_bytes))
    return cdiv(streams, sections) * sharing


def row_strides(problem: Problem, x: Any) -> tuple[int, int, int]:
    """Return the strides of q or out: between sequences, heads and rows."""
    return (0, x.stride(1), x.stride(0)) if problem["packed"] else (x.stride(0), x.stride(1), x.stride(2))


def key_strides(problem: Problem, x: Any) -> tuple[int, int, int]:
    """Return the strides of k or v: between sequences or pages, heads and keys."""
    if paged(problem):
        return x.stride(0), x.stride(2), x.stride(1)
    return row_strides(problem, x)


KERNEL = Kernel(
    signature=Signature(
        op="attention",
        summary="attention out = softmax(scale q k^T) v of H heads, over dense, packed or paged keys",
        dims=(
            Dim("B", help="sequences"),
            Dim("H", help="heads of q"),
            Dim("G", default="H", help="heads of k and v; H / G heads of q share one"),
            Dim("M", help="rows of q of a sequence; of the longest, if lengths differ"),
            Dim("N", default="M", help="keys of a sequence; of the longest, if lengths differ"),
            Dim("D", default=128, help="head size"),
        ),
        dtypes=("bf16", "fp16"),
        attributes=(
            Attribute("causal", (False, True), False, "a row sees no later keys; the last row is at the last key"),
            Attribute("window", None, "0", "keys that a row sees on each side, itself included; 0: all"),
            Attribute("capped", (False, True), False, "scores are bounded: cap * tanh(score / cap)"),
            Attribute("lse", (False, True), False, "the logarithms of the sums are an output too"),
            Attribute("packed", (False, True), False, "sequences lie one after the other, bounded by cu_q and cu_k"),
            Attribute("page", (0, *PAGES), 0, "keys in a page of a cache; 0: no pages"),
            Attribute("lengths", (False, True), False, "dense sequences have numbers of keys of their own"),
        ),
        size_limits=(SizeLimit("N", 2**31 - 2**16),),
        knobs=(
            Knob("BLOCK_M", (16, 32, 64, 128), "rows of a tile"),
            Knob("BLOCK_N", (16, 32, 64, 128, 256), "keys of a block, which are read at once"),
            Knob("PACK", (False, True), "heads that share keys share a tile", False),
            Knob("SPLITS", SPLITS, "shares of the keys, each with programs of its own", 1),
            Knob(
                "VARIANT",
                tuple(VARIANTS),
                "tiles: a program for each tile; specialized: with roles for warps, on Hopper",
                "tiles",
            ),
            Knob("TURNS", (False, True), "the groups of warps take turns to issue products", False),
            Knob("num_warps", (1, 2, 4, 8), "warps that share a tile"),
            Knob("num_stages", (1, 2, 3, 4, 5), "blocks of keys in flight between device and shared memory"),
        ),
    ),
    operands=operands,
    launch=launch,
    workspace=workspace,
    reference=reference,
    vendor=vendor,
    vendors={"cuDNN": cudnn, "flash": flash, "flashinfer": flashinfer},
    valid=valid,
    parts=tuple({"VARIANT": (variant,), **choices} for variant, choices in VARIANTS.items()),
    default=default,
    draw=draw,
    flops=flops,
    scalars={"scale": 0.0, "cap": 30.0},
    finite_only=True,
)
