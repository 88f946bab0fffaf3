"""Trials and results of each `--effort`, by searching the recorded spaces. Needs no GPU.

python benchmarks/effort.py --seeds 20
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace

from tuner import recorded
from tuner.recorded import RecordedMeasurer
from tuner.search import Budget, search
from tuner.tuning.effort import EFFORTS


def ended(space: recorded.RecordedSpace, default: bool, budget: Budget, seeds: int) -> Iterator[tuple[int, float]]:
    """Yield for each seed the number of configs tried and the share of the optimum's speed."""
    configs = [measurement.config for measurement in space.measurements]
    optimum = min(measurement.latency_us for measurement in space.measurements if measurement.ok)
    for seed in range(seeds):
        first = space.default if default else None
        result = search(configs, first, RecordedMeasurer(space), seed=seed, budget=budget)
        assert result.best is not None
        yield len(result.measurements), optimum / result.best.latency_us


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    seeds = parser.parse_args().seeds
    efforts = {name: budget for name, budget in EFFORTS.items() if name != "exhaustive"}
    efforts["200 trials"] = replace(efforts["normal"], min_improvement_probability=None)
    spaces = [recorded.load(name) for name in recorded.names()]
    print("| start | effort | tried | share, mean | 10th percentile | worst |\n|---|---|---|---|---|---|")
    for default in (True, False):
        for name, budget in efforts.items():
            runs = [run for space in spaces for run in ended(space, default, budget, seeds)]
            shares = sorted(share for _, share in runs)
            tried = sum(count for count, _ in runs) / len(runs)
            mean, tenth = sum(shares) / len(shares), shares[(len(shares) - 1) // 10]
            head = "default first" if default else "without default"
            print(f"| {head} | {name} | {tried:.0f} | {mean:.4f} | {tenth:.4f} | {shares[0]:.4f} |", flush=True)


if __name__ == "__main__":
    main()
