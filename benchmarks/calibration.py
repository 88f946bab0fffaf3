"""Calibration of the stop rule: how often a search that converged is more than 1 % off, on two halves of the spaces.

The settings are chosen on the half `chosen on`: the recorded spaces, and those files of the benchmark hub
(https://github.com/AutoTuningAssociation/benchmark_hub) on which samplers were compared before. The half `held out`,
all other files, is printed first. A search runs without a default, as fast as the sampler proposes. A second run
continues from the lines of `--out`; the files in `--spaces` are Kernel Tuner caches named KERNEL-CARD.json.gz.

    python benchmarks/calibration.py --spaces FOLDER --seeds 20 --out calibration.jsonl
    python benchmarks/calibration.py --spaces FOLDER --settings grid.json --out grid.jsonl

`grid.json` has for each setting its limits and the fields that differ from the defaults:
{"NAME": {"trials": 200, "limit": 0.02, "convergence": {"prior": 3}, "model": {"exploration": 2}}}.
"""

from __future__ import annotations

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import argparse
import json
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache, partial
from itertools import accumulate
from math import exp, inf, log
from pathlib import Path
from time import process_time
from typing import Any

from tuner import recorded
from tuner.exchange import measurements
from tuner.records import Measurement
from tuner.search import Budget
from tuner.search.loop import LOOP, AskMeasureTell
from tuner.search.proposer import Proposer
from tuner.search.trials import Trials
from tuner.tuning.effort import EFFORTS

COMPARED_BEFORE = (
    "convolution-RTX_3090",
    "convolution_milo-A100",
    "convolution_milo-A4000",
    "dedispersion_milo-A100",
    "gemm-RTX_3090",
    "pnpoly-RTX_3090",
)
"""Files of the hub that belong to the half on which settings are chosen, since they were looked at before."""
AT = (25, 50, 100)
"""Results after which the gap is printed."""
OFF = 1.01
"""Latency over the optimum's above which a search is off."""


class ReplayMeasurer:
    """Measurer of recorded results: it returns at once, in the order of submission."""

    waits_for_device = False

    def __init__(self, results: Iterable[Measurement], capacity: int) -> None:
        self._known = {measurement.config: measurement for measurement in results}
        self.capacity = capacity
        self._submitted: deque[Measurement] = deque()

    def submit(self, config: Any) -> None:
        self._submitted.append(self._known[config])

    def next(self, timeout_s: float) -> Measurement | None:
        return self._submitted.popleft() if self._submitted else None


@cache
def _space(folder: Path | None, name: str) -> tuple[Measurement, ...]:
    if name in recorded.names():
        return recorded.load(name).measurements
    assert folder is not None
    return measurements.load(folder / f"{name}.json.gz")


def ended(task: tuple[str, int, int, str, Mapping[str, Any]], folder: Path | None) -> dict[str, Any]:
    """Return how a search of one space with one seed, batch and setting ended."""
    name, seed, batch, setting, given = task
    space = _space(folder, name)
    optimum = min(measurement.latency_us for measurement in space if measurement.ok)
    budget = Budget(given["trials"], min_improvement_probability=given["limit"])
    trials = Trials((), lambda measurement: None)
    started = process_time()
    sampler = _sampler(given) if set(given) - {"limit", "trials"} else "gp"
    proposer = Proposer([m.config for m in space], sampler, seed, (), given["limit"] or 0.0)
    measurer: Any = ReplayMeasurer(space, batch)
    stopped = AskMeasureTell(proposer, measurer, trials, budget, LOOP, (), tuple, None, lambda: False).run(0.0)
    seconds = process_time() - started
    best = [*accumulate((m.latency_us for m in trials.by_config.values()), min)]
    gaps = {str(at): best[min(at, len(best)) - 1] / optimum - 1 for at in (*AT, len(best))}
    return {
        "space": name,
        "seed": seed,
        "batch": batch,
        "setting": setting,
        "stopped": stopped,
        "tried": len(best),
        "gap": None if gaps[str(len(best))] == inf else gaps[str(len(best))],
        "gaps": [None if gaps[str(at)] == inf else gaps[str(at)] for at in AT],
        "seconds": seconds,
    }


def _sampler(given: Mapping[str, Any]) -> Any:
    """Return the sampler `gp` with other settings."""
    from tuner.search.convergence import CONVERGENCE
    from tuner.search.gaussian_process import GAUSSIAN_PROCESS
    from tuner.search.samplers.gaussian_process import GaussianProcessSampler

    return partial(
        GaussianProcessSampler,
        settings=replace(GAUSSIAN_PROCESS, **given.get("model", {})),
        convergence=replace(CONVERGENCE, **given.get("convergence", {})),
    )


def halves(folder: Path | None) -> dict[str, list[str]]:
    """Return the names of the spaces of each half."""
    files = sorted(file.name.removesuffix(".json.gz") for file in folder.glob("*.json.gz")) if folder else []
    return {
        "held out": [name for name in files if name not in COMPARED_BEFORE],
        "chosen on": [*recorded.names(), *(name for name in files if name in COMPARED_BEFORE)],
    }


def table(runs: Sequence[Mapping[str, Any]], of: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield the table as Markdown, a row for each half, batch and setting."""
    columns = ("half", "batch", "setting", "converged", "off", "worst space", "configs", "seconds", "25", "50", "100")
    yield f"| {' | '.join(columns)} |"
    yield "|" + "---|" * len(columns)
    for half, names in of.items():
        for batch in sorted({run["batch"] for run in runs}):
            for setting in dict.fromkeys(run["setting"] for run in runs):
                of_it = [
                    run for run in runs if run["space"] in names and (run["batch"], run["setting"]) == (batch, setting)
                ]
                if of_it:
                    yield f"| {half} | {batch} | {setting} | {_row(of_it)} |"


def _row(runs: Sequence[Mapping[str, Any]]) -> str:
    done = [run for run in runs if run["stopped"] == "converged"]
    by_space: dict[str, list[bool]] = {}
    for run in done:
        by_space.setdefault(run["space"], []).append(run["gap"] is None or run["gap"] > OFF - 1)
    off = [miss for misses in by_space.values() for miss in misses]
    worst = max(by_space, key=lambda name: sum(by_space[name]) / len(by_space[name]), default="")
    share = f"{worst} {sum(by_space[worst])}/{len(by_space[worst])}" if worst else ""
    configs, seconds = (sum(run[name] for run in runs) / len(runs) for name in ("tried", "seconds"))
    gaps = (f"{_gap(runs, place):.4f}" for place in range(len(AT)))
    cells = [f"{len(done) / len(runs):.2f}", f"{sum(off) / max(1, len(off)):.3f}", share]
    return " | ".join([*cells, f"{configs:.0f}", f"{seconds:.2f}", *gaps])


def _gap(runs: Sequence[Mapping[str, Any]], place: int) -> float:
    """Return the geometric mean over spaces of the mean gap. A search that ended early keeps its last gap."""
    by_space: dict[str, list[float]] = {}
    for run in runs:
        gap = run["gaps"][place]
        by_space.setdefault(run["space"], []).append(10.0 if gap is None else gap)
    logs = [log(max(1e-3, sum(gaps) / len(gaps))) for gaps in by_space.values()]
    return exp(sum(logs) / len(logs))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Calibration of the stop rule, as Markdown.")
    parser.add_argument("--spaces", type=Path, help="folder of Kernel Tuner caches")
    parser.add_argument(
        "--settings", type=Path, help="settings by name; else those of the efforts `normal` and `quick`"
    )
    parser.add_argument("--batches", default="8,20")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--half", choices=("held out", "chosen on"), help="one half only")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="processes")
    parser.add_argument("--out", type=Path, required=True, help="keeps the runs, a line each")
    given = parser.parse_args()
    limits = {name: (EFFORTS[name].trials, EFFORTS[name].min_improvement_probability) for name in ("normal", "quick")}
    named = {name: {"trials": trials, "limit": limit} for name, (trials, limit) in limits.items()}
    settings = json.loads(given.settings.read_text()) if given.settings else named
    of = {half: names for half, names in halves(given.spaces).items() if given.half in (None, half)}
    lines = given.out.read_text().splitlines() if given.out.is_file() else []
    runs = [json.loads(line) for line in lines]
    known = {(run["space"], run["seed"], run["batch"], run["setting"]) for run in runs}
    tasks = [
        (name, seed, int(batch), setting, of_it)
        for seed in range(given.seeds)
        for setting, of_it in settings.items()
        for names in of.values()
        for name in names
        for batch in given.batches.split(",")
        if (name, seed, int(batch), setting) not in known
    ]
    with ProcessPoolExecutor(given.jobs) as pool, given.out.open("a") as out:
        for run in pool.map(partial(ended, folder=given.spaces), tasks, chunksize=4):
            runs.append(run)
            print(json.dumps(run), file=out, flush=True)
            if len(runs) % 200 == 0:
                print(f"{len(runs)} of {len(tasks) + len(lines)}", file=sys.stderr, flush=True)
    print(*table(runs, of), sep="\n")


if __name__ == "__main__":
    main()
