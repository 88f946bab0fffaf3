"""Feasible configs of attention: the single statement of the rules, by variant."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tuner.kernels.attention.sequences import group, paged
from tuner.kernels.shared.tiling import on_wgmma
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize, next_power_of_2


@dataclass(frozen=True)
class SpaceSettings:
    """Settings of the rules."""

    registers_per_thread: int = 168
    """Most registers of a thread that hold sums and scores; the rest holds addresses."""
    operands_per_thread: int = 128
    """Most elements of keys that a thread holds for the instructions that read them from registers."""
    most_waves: int = 8
    """Number of waves of programs up to which keys are split further."""
    workspace_bytes: int = 2**30
    """Most bytes of the sums of split keys."""
    stages_of_pages: tuple[int, ...] = (1, 2, 3, 5)
    """Stages of keys in pages. Four compile to the same instructions as three (Triton 3.6, 3.7)."""
    heads_of_roles: tuple[int, ...] = (1, 2, 4, 8, 16, 32)
    """Choices of the number of heads that share a tile if warps have roles; each has as many rows."""


SETTINGS = SpaceSettings()

SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Choices of the number of shares of the keys."""

VARIANTS: Mapping[str, Mapping[str, tuple[Value, ...]]] = {
    "tiles": {"TURNS": (False,)},
    "specialized": {
        "BLOCK_M": (128,),  # two groups of 64 rows
        "BLOCK_N": (64, 128),
        "num_warps": (4,),
        "num_stages": (2, 3, 4),
    },
}
"""Choices of each variant; a knob that is missing has all its choices."""


def head_width(problem: Problem) -> int:
    """Return the columns of a tile: D, rounded up to a power of 2 from 16 on."""
    return max(16, next_power_of_2(problem["D"]))


def packed_heads(problem: Problem, config: Mapping[str, Any]) -> int:
    """Return the number of heads in a tile."""
    return group(problem) if config["PACK"] else 1


def tile_count(problem: Problem, config: Mapping[str, Any]) -> int:
    """Return the number of tiles of a sequence and a group of packed heads."""
    return cdiv(int(problem["M"]) * packed_heads(problem, config), int(config["BLOCK_M"]))


def pair_count(problem: Problem, config: Mapping[str, Any]) -> int:
    """Return the number of pairs of a sequence and a group of packed heads."""
    return int(problem["B"]) * (int(problem["H"]) // packed_heads(problem, config))


def program_count(problem: Problem, config: Mapping[str, Any]) -> int:
    """Return the number of programs without a split."""
    return tile_count(problem, config) * pair_count(problem, config)


def valid(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether a config is feasible."""
    rows = problem["M"] * packed_heads(problem, config)
    return (
        # A tile larger than a sequence computes rows and keys that are not there.
        config["BLOCK_M"] <= max(16, next_power_of_2(rows))
        and config["BLOCK_N"] <= max(16, next_power_of_2(problem["N"]))
        and (not config["PACK"] or group(problem) > 1)
        and config["num_warps"] * limits.warp_size <= limits.threads_per_block
        and program_count(problem, config) * config["SPLITS"] < 2**31
        and (config["SPLITS"] == 1 or worth_splitting(problem, config, limits))
        and _CAN[config["VARIANT"]](problem, config, limits)
        and all(config[name] in choices for name, choices in VARIANTS[config["VARIANT"]].items())
    )


def worth_splitting(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether shares of the keys have a block each, room in the workspace, and multiprocessors to run on."""
    B, H, _, M, N, D = problem.sizes
    splits, programs = config["SPLITS"], program_count(problem, config)
    return (
        splits <= cdiv(N, config["BLOCK_N"])
        and programs * splits <= SETTINGS.most_waves * limits.sm_count
        and splits * B * H * M * (D + 1) * itemsize("fp32") <= SETTINGS.workspace_bytes
    )


def stage_bytes(problem: Problem, config: Mapping[str, Any]) -> int:
    """Return the bytes of shared memory that a block of keys and values takes."""
    return 2 * int(config["BLOCK_N"]) * head_width(problem) * itemsize(problem.dtype)


def shared_bytes(problem: Problem, config: Mapping[str, Any], limits: Limits) -> int:
    """Return the bytes of shared memory of the kernel that reads through pointers, without entries of the page table.

    wgmma reads its operands from shared memory, so that the block in use stays there beside those in flight; older
    instructions copy it to registers first and need one buffer less, but weights change threads there. Entries of the
    page table take up to 1 KB for each loop.
    """
    size, is_pipelined = itemsize(problem.dtype), config["num_stages"] > 1
    row_bytes = config["BLOCK_M"] * head_width(problem) * size
    if on_wgmma(config["BLOCK_M"], config["num_warps"], limits):
        return blocks_held(problem, config) * stage_bytes(problem, config) + row_bytes
    weight_bytes = config["BLOCK_M"] * config["BLOCK_N"] * size if is_pipelined else 0
    return max(1, blocks_held(problem, config) - 1) * stage_bytes(problem, config) + row_bytes + weight_bytes


def blocks_held(problem: Problem, config: Mapping[str, Any]) -> int:
    """Return the blocks in use and in flight of the kernel that reads through pointers.

    The place of a block in pages is read before the block, and Triton gives each of these two loads half of the stages
    after the second.
    """
    stages = int(config["num_stages"])
    return 1 + cdiv(stages - 2, 2) if paged(problem) and stages > 2 else stages


def tiles_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the kernel that reads through pointers can run a config."""
    block_m, block_n, wide = config["BLOCK_M"], config["BLOCK_N"], head_width(problem)
    threads = config["num_warps"] * limits.warp_size
    return (
        block_m * (wide + block_n) <= SETTINGS.registers_per_thread * threads
        and (
            on_wgmma(config["BLOCK_M"], config["num_warps"], limits)
            or block_n * wide <= SETTINGS.operands_per_thread * threads
        )
        and threads <= block_m * block_n // 8  # each thread has some scores
        and (not paged(problem) or config["num_stages"] in SETTINGS.stages_of_pages)
        and shared_bytes(problem, config, limits) <= limits.shared_bytes
    )


def shares_staging(problem: Problem, config: Mapping[str, Any]) -> bool:
    """Return whether the rows of out take the place of those of q in shared memory, which has no room for both."""
    return config["SPLITS"] == 1 and head_width(problem) > 128


def row_tiles(problem: Problem, config: Mapping[str, Any]) -> int:
    """Return the tiles of rows in shared memory: of q, and of out, unless they take its place or are a share's sums."""
    return 1 if config["SPLITS"] > 1 or shares_staging(problem, config) else 2


def specialized_can(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether the kernel whose warps have roles can run a config: on Hopper."""
    wide = head_width(problem)
    row_bytes = config["BLOCK_M"] * wide * itemsize(problem.dtype) * row_tiles(problem, config)
    return (
        limits.capability[0] == 9
        and packed_heads(problem, config) in SETTINGS.heads_of_roles
        and wide >= 64
        and (wide < 256 or config["BLOCK_N"] == 64)
        and config["num_stages"] * stage_bytes(problem, config) + row_bytes + 1024 <= limits.shared_bytes
    )


_CAN = {"tiles": tiles_can, "specialized": specialized_can}
