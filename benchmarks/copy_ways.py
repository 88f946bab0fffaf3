"""The ways of copy_column at each size: a kernel, the driver, packed on the host, and torch; and the default's choice.

All are timed in turn, in a new random order each round, as a search times them: from the host by the host, from the
call to the end of the copy. Of kernels the fastest of a few configs stands for all. The last column is the time of the
default over that of the fastest way.

    python benchmarks/copy_ways.py --out copy_ways.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from statistics import geometric_mean, median
from typing import Any

import torch

from tuner import catalog
from tuner.kernels.spec import Config, Problem, itemsize
from tuner.measure import device
from tuner.measure.clock import Timer
from tuner.measure.loaded_problem import LoadedProblem
from tuner.measure.messages import Task

KERNEL = catalog.load("copy_column")
ROWS = (256, 4096, 65536, 1048576)
DISTANCES = (1, 2, 8, 32, 128, 1024, 16384)
"""Elements from a row to the next."""
DTYPES = ("bf16", "int64")
SHORT: dict[str, Any] = {"rows": (256, 65536), "distances": (1, 128), "dtypes": ("bf16",)}
"""The short form, of about a minute."""
MOST_BYTES = 2**30
"""Bytes from the first element of a column to its last."""
BLOCKS = ((128, 4, 0), (256, 1, 0), (512, 2, 0), (1024, 4, 0), (1024, 4, 1), (2048, 4, 1), (4096, 8, 0))
"""Rows in a program, warps, and WIDE of the kernels that are timed."""
ROUNDS, SAMPLES = 7, 3
DEFAULT, TORCH = "default", "torch"


@dataclass(frozen=True)
class Found:
    """Latencies of one problem in us, by way."""

    problem: Problem
    us: dict[str, float]
    chosen: str
    """The way of the default."""

    @property
    def loss(self) -> float:
        """Latency of the default over that of the fastest way."""
        return self.us[DEFAULT] / min(latency for name, latency in self.us.items() if name != TORCH)


def problems(rows: Sequence[int], distances: Sequence[int], dtypes: Sequence[str]) -> Iterator[Problem]:
    """Yield the problems of each memory that fit."""
    for memory in ("device", "pinned", "pageable"):
        for dtype in dtypes:
            for M in rows:
                for N in distances:
                    if M * N * itemsize(dtype) <= MOST_BYTES:
                        yield KERNEL.signature.problem({"M": M, "N": N, "dtype": dtype, "memory": memory})


def configs(problem: Problem) -> dict[str, Config]:
    """Return the default and the configs of each way, by a name that begins with the way."""
    limits = device.describe(0).limits
    found = {DEFAULT: KERNEL.default_config(problem, limits)}
    for way in ("kernel", "driver", "packed"):
        for block, warps, wide in BLOCKS:
            knobs = {"WAY": way, "BLOCK": block, "WIDE": wide, "num_warps": warps, "num_stages": 1}
            config = KERNEL.signature.config(knobs)
            if KERNEL.valid(problem, config, limits):
                found[f"{way} {block} {warps} {wide}"] = config
    return found


def measured(problem: Problem, dice: Random) -> Found:
    """Time all ways of a problem in turn, and check each result."""
    loaded = LoadedProblem(Task("copy_column", problem, device.describe(0).limits), "cuda:0", None)
    loaded.draw(seed=0)
    loaded.copy_sets()
    chosen = configs(problem)
    timers: dict[str, Timer] = {name: loaded.timer(config) for name, config in chosen.items()}
    assert KERNEL.vendor is not None
    timers[TORCH] = loaded.vendor_timer(KERNEL.vendor)
    rounds: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        rounds.append({name: median(timers[name](SAMPLES)) for name in dice.sample([*timers], len(timers))})
        if not torch.equal(
            loaded.tensors["out"].cpu().view(torch.uint8), loaded.tensors["x"].cpu().contiguous().view(torch.uint8)
        ):
            raise SystemExit(f"{problem.text}: a copy is wrong")
    latency = {name: median(each[name] for each in rounds) for name in timers}
    us = {name: latency[name] for name in (DEFAULT, TORCH)}
    for way in ("kernel", "driver", "packed"):
        if mine := [value for name, value in latency.items() if name.startswith(way)]:
            us[way] = min(mine)
    return Found(problem, us, str(chosen[DEFAULT]["WAY"]))


def row(found: Found) -> str:
    """Return a line of the Markdown table."""
    M, N = found.problem.sizes
    ways = (f"{found.us[way]:,.1f}" if way in found.us else "" for way in ("kernel", "driver", "packed", TORCH))
    cells = (found.problem["memory"], f"{M:,}", f"{N * itemsize(found.problem.dtype):,}", found.problem.dtype, *ways)
    return f"| {' | '.join(cells)} | {found.chosen} | {found.loss:.2f} |"


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--short", action="store_true", help="a few sizes only")
    options.add_argument("--seed", type=int, default=0, help="seed of the order in each round")
    options.add_argument("--out", type=Path, help="write what was measured as JSON")
    given = options.parse_args()
    sizes = SHORT if given.short else {"rows": ROWS, "distances": DISTANCES, "dtypes": DTYPES}
    dice, all_found = Random(given.seed), []
    print(f"{device.describe(0).name}, torch {torch.__version__}, {torch.get_num_threads()} threads; us\n")
    print("| memory | rows | bytes apart | dtype | kernel | driver | packed | torch | default | x fastest |")
    print("|---" * 10 + "|")
    for problem in problems(**sizes):
        all_found.append(measured(problem, dice))
        print(row(all_found[-1]), flush=True)
    for memory in ("device", "pinned", "pageable"):
        losses = [found.loss for found in all_found if found.problem["memory"] == memory]
        print(
            f"\n{memory}: the default takes {geometric_mean(losses):.3f} x the fastest way, at most {max(losses):.3f} x"
        )
    if given.out is not None:
        rows = [{"problem": found.problem.text, "us": found.us, "default": found.chosen} for found in all_found]
        given.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
