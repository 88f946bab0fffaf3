"""Searches of gemm's recorded spaces without and with its estimate, by coefficients that do not know the space.

    python benchmarks/estimated_search.py --seeds 10 [--default-first]

For each space the coefficients are fitted to the other spaces (`benchmarks/gemm_estimate.py`). A search is a replay
with the limits of the effort `normal`, in batches of 8 and of 20. `reversed` has the estimates of the space turned
round, the worst that can happen. Printed: configs until one within 1 % of the best, the geometric mean over spaces of
the gap after 10, 25, 50 and 100 configs, configs in all, and the number of converged searches that are over 1 % off.
"""

from __future__ import annotations

import os

os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

import argparse
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from statistics import geometric_mean, mean
from typing import Any

from calibration import ReplayMeasurer
from gemm_estimate import Measured, fitted, of_spaces

from tuner import catalog, recorded
from tuner.kernels.gemm.estimate import estimate
from tuner.kernels.shared.product_coefficients import Coefficients
from tuner.kernels.spec import Config
from tuner.search import Budget
from tuner.search.loop import LOOP, AskMeasureTell
from tuner.search.proposer import Proposer
from tuner.search.trials import Trials
from tuner.tuning.effort import EFFORTS

AT = (10, 25, 50, 100)
KINDS = ("without", "with", "reversed")


@dataclass(frozen=True)
class Search:
    """Outcome of a search: the gap to the best after each config, and whether it converged."""

    space: str
    kind: str
    batch: int
    gaps: tuple[float, ...]
    converged: bool

    @property
    def reached(self) -> int:
        """Number of configs until one was within 1 % of the best, 200 if none was."""
        return next((number for number, gap in enumerate(self.gaps, 1) if gap <= 0.01), 200)


def searched(name: str, coefficients: Coefficients, kind: str, batch: int, seed: int, default_first: bool) -> Search:
    """Return how a search of a recorded space ended."""
    space, knobs = recorded.load(name), catalog.load("gemm").signature
    budget = EFFORTS["normal"]
    limit = budget.min_improvement_probability or 0.0
    costs = {
        m.config: estimate(space.problem, knobs.config(m.config), space.device.limits, coefficients).us
        for m in space.measurements
    }
    turned = max(costs.values()) * min(costs.values())
    ways: dict[str, Callable[[Config], float] | None] = {
        "without": None,
        "with": costs.__getitem__,
        "reversed": lambda config: turned / costs[config],
    }
    proposer = Proposer([*costs], "gp", seed, (), limit, ways[kind])
    trials = Trials((), lambda measurement: None)
    measurer: Any = ReplayMeasurer(space.measurements, batch)
    first = [space.default] if default_first and space.default is not None else []
    limits = Budget(budget.trials, min_improvement_probability=limit)
    asking = AskMeasureTell(proposer, measurer, trials, limits, LOOP, first, tuple, None, lambda: False)
    stopped = asking.run(0.0)
    best = min(m.latency_us for m in space.measurements if m.ok)
    gaps = (latency / best - 1 for latency in accumulate((m.latency_us for m in trials.by_config.values()), min))
    return Search(name, kind, batch, tuple(gaps), stopped == "converged")


def row(searches: Sequence[Search]) -> str:
    """Return the figures of some searches as cells."""
    spaces = {search.space for search in searches}

    def gap(at: int) -> float:
        """Return the geometric mean over spaces of the mean gap after a number of configs."""
        gaps = ([s.gaps[min(at, len(s.gaps)) - 1] for s in searches if s.space == space] for space in spaces)
        return geometric_mean(max(mean(of_it), 1e-3) for of_it in gaps)

    converged = [search for search in searches if search.converged]
    off = sum(search.gaps[-1] > 0.01 for search in converged)
    cells = (
        f"{mean(search.reached for search in searches):.1f}",
        *(f"{gap(at):.4f}" for at in AT),
        f"{mean(len(search.gaps) for search in searches):.0f}",
        f"{len(converged)} of {len(searches)}",
        str(off),
    )
    return " | ".join(cells)


def _without(name: str, measured: Sequence[Measured]) -> tuple[str, Coefficients]:
    """Return coefficients that are fitted to all other spaces."""
    problem = recorded.load(name).problem
    return name, fitted([each for each in measured if each.problem != problem])


def _task(task: tuple[str, Coefficients, str, int, int], default_first: bool) -> Search:
    return searched(*task, default_first)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--default-first", action="store_true", help="measure the kernel's default first")
    parser.add_argument("--jobs", type=int, default=2)
    given = parser.parse_args()
    names = [name for name in recorded.names() if name.startswith("gemm-")]
    with ProcessPoolExecutor(given.jobs) as pool:
        coefficients = dict(pool.map(partial(_without, measured=[*of_spaces()]), names))
        tasks = [
            (name, coefficients[name], kind, batch, seed)
            for name in names
            for kind in KINDS
            for batch in (8, 20)
            for seed in range(given.seeds)
        ]
        searches = list(pool.map(partial(_task, default_first=given.default_first), tasks, chunksize=4))
    print(f"| estimate | batch | within 1 % | {' | '.join(map(str, AT))} | configs | converged | off |")
    print("|---" * (len(AT) + 6) + "|")
    for kind in KINDS:
        for batch in (8, 20):
            print(f"| {kind} | {batch} | {row([s for s in searches if (s.kind, s.batch) == (kind, batch)])} |")


if __name__ == "__main__":
    main()
