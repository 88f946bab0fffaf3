"""Samplers compared with Kernel Tuner's strategies in its simulation mode: a table of docs/studies/samplers.md.

Both sides read the same Kernel Tuner caches: the recorded spaces, and files such as those of the benchmark hub
(https://github.com/AutoTuningAssociation/benchmark_hub). Configs that fail are included. Kernel Tuner runs one config
at a time, the package's samplers eight. A second run continues from the scores in `--out`.

    pip install --group judges
    python benchmarks/judges.py HUB/cachefiles/convolution_milo/A100.json.gz ... --seeds 20 --out judges.json
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import tempfile
import warnings
from dataclasses import replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from kernel_tuner import tune_kernel, util
from samplers import gap_table, judged, ours

from tuner import recorded
from tuner.exchange import measurements
from tuner.exchange.kernel_tuner import to_cache
from tuner.search import SAMPLERS
from tuner.search.replay import AT, ReplaySpace, Score

STRATEGIES = (
    "bayes_opt",
    "genetic_algorithm",
    "diff_evo",
    "simulated_annealing",
    "greedy_mls",
    "greedy_ils",
    "basinhopping",
    "pso",
    "hybrid_vndx",
    "adaptive_tabu_greywolf",
)


def theirs(space: ReplaySpace, strategy: str, *, seeds: int, folder: Path) -> Score:
    """Return the score of a Kernel Tuner strategy with its defaults. A config counts when it is first measured."""
    file = folder / f"{space.name}.json"
    latencies = {tuple(m.config.values()): m.latency_us for m in space.measurements}
    optimum = min(latencies.values())
    names = list(space.measurements[0].config)

    def shares(seed: int) -> tuple[float, ...]:
        random.seed(seed)
        np.random.seed(seed)
        visited = dict.fromkeys(tuple(result[name] for name in names) for result in _tuned(file, strategy, seed))
        return tuple(optimum / best for best in accumulate((latencies[config] for config in visited), min))

    return Score(space.name, strategy, tuple(map(shares, range(seeds))))


def _tuned(file: Path, strategy: str, seed: int) -> list[dict[str, Any]]:
    """Return the strategy's results. `kernel_tuner.tune_cache` would reveal beforehand which configs fail."""
    cache = json.loads(file.read_text())
    there = {tuple(entry[name] for name in cache["tune_params_keys"]) for entry in cache["cache"].values()}
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        warnings.catch_warnings(action="ignore"),
    ):
        results, _ = tune_kernel(
            **util.infer_args_from_cache(cache),
            restrictions=[util.FunctionConstraint(lambda *config: config in there)],
            cache=str(file),
            simulation_mode=True,
            strategy=strategy,
            strategy_options={"max_fevals": AT[-1]},
            seed=seed,
            quiet=True,
        )
    return list(results)


def judge(space: ReplaySpace, name: str, *, seeds: int, folder: Path) -> Score:
    """Return the score of a sampler or a Kernel Tuner strategy on the cache that `write` made of the space."""
    if name in SAMPLERS:
        return ours(ReplaySpace(space.name, measurements.load(folder / f"{space.name}.json")), name, seeds=seeds)
    return theirs(space, name, seeds=seeds, folder=folder)


def _spaces(files: list[Path]) -> list[ReplaySpace]:
    shipped = [
        ReplaySpace(name.rpartition("-nvidia")[0], recorded.load(name).measurements) for name in recorded.names()
    ]
    return shipped + [
        ReplaySpace(f"{file.parent.name}-{file.name.partition('.')[0]}", measurements.load(file)) for file in files
    ]


def write(space: ReplaySpace, folder: Path) -> None:
    """Write a space as a Kernel Tuner cache, with one median for each config, so that both sides read the same."""
    medians = [m if not m.ok else replace(m, samples=(m.latency_us,)) for m in space.measurements]
    (folder / f"{space.name}.json").write_text(to_cache(medians, "kernel", (1,), "a card"))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Our samplers beside Kernel Tuner's strategies, as Markdown.")
    parser.add_argument("files", nargs="*", type=Path, help="spaces that others measured, beside the recorded ones")
    parser.add_argument("--names", default=",".join(("gp", "tpe", "random", *STRATEGIES)))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--out", type=Path, required=True, help="keeps the scores")
    given = parser.parse_args()
    spaces = _spaces(given.files)
    with tempfile.TemporaryDirectory() as folder:
        for space in spaces:
            write(space, Path(folder))
        run = partial(judge, seeds=given.seeds, folder=Path(folder))
        scores = judged(spaces, given.names.split(","), run, given.out, f"{given.seeds} seeds", given.jobs)
    print(gap_table(scores, AT[1:]))  # at ten evaluations, no config had run for some seeds


if __name__ == "__main__":
    main()
