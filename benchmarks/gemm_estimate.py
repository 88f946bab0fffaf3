"""Fit and check the estimate of gemm on measured configs of many problems.

    python benchmarks/gemm_estimate.py [--store STORE.db ...] [--fit [NAME ...]] [--out coefficients.json]

Problems are those of the recorded spaces and of the searches in `--store`, as `tuner search gemm --suite
random:60:SEED --db STORE.db` fills one. With `--fit`, all coefficients, or those named, are fitted in turn to the
problems of all families but one part of them, and checked on that part; at last to all, which is what `--out` gets. A
family has the same N and K. Without `--fit`, today's coefficients are checked. A row has:

- `rank`: Spearman's correlation of estimate and latency, over all configs that ran; `of fast`: over those within 1.5 x
  the best;
- `pick`, `default`: latency of the config with the least estimate, and of today's default, over the best that was
  measured;
- `place`: part of the ordering by the estimate in which the first config within 1 % of the best is;
- `excess`: its estimate over the least one. Searches try configs last whose estimate is over 1.5 times the least.

Only measured configs count, so `pick` is a lower bound where a record has a sample of the space.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from math import exp, inf, isfinite, log, nan
from pathlib import Path
from statistics import geometric_mean, mean

import numpy as np

from tuner import catalog, recorded
from tuner.db.store import Store
from tuner.kernels.gemm.default import default
from tuner.kernels.gemm.estimate import estimate
from tuner.kernels.shared.product_coefficients import COEFFICIENTS, Coefficients
from tuner.kernels.spec import Config, Limits, Problem, Signature
from tuner.records import POLICIES, Measurement, Policy


@dataclass(frozen=True)
class FitSettings:
    """Limits and weights of the fit."""

    fixed: tuple[str, ...] = ("mhz", "gb_per_s", "near", "shared_bytes")
    """Coefficients that stay as they are."""
    fastest: int = 60
    """Number of fastest configs of a problem that always count; 110 without tensor cores do too."""
    others: int = 100
    """Number of random other configs."""
    rounds: int = 8
    """Number of rounds over all coefficients."""
    step: float = 0.12
    """First relative change of a coefficient."""
    offset: float = 0.3
    """Weight of a problem's mean error, relative to that of the order of its configs."""
    largest: float = 0.5
    """Squared log error above which a config counts no more."""
    penalty: float = 0.0005
    """Weight of a squared log change of a coefficient."""
    folds: int = 6
    """Number of parts of the families that are held out in turn."""
    events_us: float = 3.5
    """Time by which a latency by events exceeds one in a graph, in us. Estimates are of launches in a graph."""
    runs: int = 10_000
    """Number of newest searches that are read from a store."""
    fewest_configs: int = 5
    """Configs that ran, below which a search is left out."""


SETTINGS = FitSettings()


@dataclass(frozen=True)
class Measured:
    """Measured configs of a problem."""

    family: str
    problem: Problem
    limits: Limits
    trials: tuple[tuple[Config, float], ...]
    """Configs that ran, each with its latency in us."""

    @property
    def best(self) -> float:
        return min(us for _, us in self.trials)

    def sample(self, settings: FitSettings) -> tuple[tuple[Config, float], ...]:
        """Return the trials that the fit uses."""
        ranked = sorted(self.trials, key=lambda trial: trial[1])
        without = [trial for trial in ranked if trial[0]["VARIANT"] == "vectors"][:110]
        ranked = [trial for trial in ranked if trial[0]["VARIANT"] != "vectors"]
        rest = ranked[settings.fastest :]
        drawn = random.Random(self.problem.text).sample(rest, min(settings.others, len(rest)))
        return (*without, *ranked[: settings.fastest], *drawn)


def of_spaces(settings: FitSettings = SETTINGS) -> Iterator[Measured]:
    """Yield the recorded spaces, whose configs are completed with the knobs of today."""
    signature = catalog.load("gemm").signature
    for name in recorded.names():
        if name.startswith("gemm-"):
            space = recorded.load(name)
            ran = [each for each in space.measurements if each.ok]
            yield _measured(space.problem, space.device.limits, ran, signature, space.policy, settings)


def of_store(file: Path, settings: FitSettings = SETTINGS) -> Iterator[Measured]:
    """Yield the searches of gemm in a store, the newest of each problem, with enough configs that ran."""
    store, seen = Store.open(file, create=False), set[str]()
    signature = catalog.load("gemm").signature
    with closing(store):
        for run in store.runs(limit=settings.runs):
            if run.problem.op != "gemm" or run.problem.text in seen:
                continue
            ran = [each for each in store.known_to(run) if each.ok]
            if len(ran) < settings.fewest_configs:
                continue
            seen.add(run.problem.text)
            device, policy = run.provenance.device, _POLICIES[run.provenance.policy]
            limits = store.roofline_limits(device)
            card = replace(device.limits, gb_per_s=limits.copy_gb_per_s if limits else 0.0)
            yield _measured(signature.problem(run.problem.values), card, ran, signature, policy, settings)


_POLICIES = {policy.text: policy for policy in POLICIES.values()}


def _measured(
    problem: Problem,
    limits: Limits,
    ran: Iterable[Measurement],
    signature: Signature,
    policy: Policy,
    settings: FitSettings,
) -> Measured:
    """Return configs that ran, with their latencies as they would be in a graph. A family has the same N and K."""
    beside = settings.events_us if policy.timer == "events" else 0.0
    trials = tuple((signature.config(each.config), each.latency_us - beside) for each in ran)
    return Measured(f"{problem['N']} x {problem['K']}", problem, limits, trials)


def loss(measured: Sequence[tuple[Measured, Sequence[tuple[Config, float]]]], c: Coefficients) -> float:
    """Return the mean over problems of the weighted squared log error, fast configs weighing more."""
    total = 0.0
    for one, trials in measured:
        us = np.array([us for _, us in trials])
        costs = np.array([estimate(one.problem, config, one.limits, c).us for config, _ in trials])
        errors, weights = np.log(costs / us), (us.min() / us) ** 2
        middle = (weights * errors).sum() / weights.sum()
        spread = (weights * np.minimum((errors - middle) ** 2, SETTINGS.largest)).sum() / weights.sum()
        total += spread + SETTINGS.offset * middle**2
    return total / len(measured)


def fitted(measured: Sequence[Measured], start: Coefficients = COEFFICIENTS, only: Sequence[str] = ()) -> Coefficients:
    """Return coefficients of a small loss, by steps along one of them at a time: of all of them, or of some only."""
    sampled = [(each, each.sample(SETTINGS)) for each in measured]
    names = only or [field.name for field in fields(Coefficients) if field.name not in SETTINGS.fixed]
    steps = dict.fromkeys(names, SETTINGS.step)

    def penalised(c: Coefficients) -> float:
        changes = (log(getattr(c, name) / getattr(start, name)) ** 2 for name in names)
        return loss(sampled, c) + SETTINGS.penalty * sum(changes)

    found, least = start, penalised(start)
    for _ in range(SETTINGS.rounds):
        for name in names:
            for sign in (1, -1):
                tried = replace(found, **{name: getattr(found, name) * exp(sign * steps[name])})
                if (value := penalised(tried)) < least - 1e-7:
                    found, least = tried, value
                    steps[name] *= 1.4
                    break
            else:
                steps[name] /= 2
        if max(steps.values()) < 0.01:
            break
    return found


def row(one: Measured, c: Coefficients) -> dict[str, float]:
    """Return the figures of a problem."""
    costs = np.array([estimate(one.problem, config, one.limits, c).us for config, _ in one.trials])
    us = np.array([us for _, us in one.trials])
    order, fast, best = np.argsort(costs, kind="stable"), us <= 1.5 * us.min(), us.min()
    ranks = np.empty(len(us))
    ranks[order] = np.arange(len(us)) / len(us)
    usual = catalog.load("gemm").signature.config(default(one.problem, one.limits))
    return {
        "configs": len(us),
        "rank": _spearman(costs, us),
        "rank of fast": _spearman(costs[fast], us[fast]) if fast.sum() > 2 else 1.0,
        "pick": us[order[0]] / best,
        "best of 10": us[order[:10]].min() / best,
        "default": next((latency for config, latency in one.trials if config == usual), inf) / best,
        "place": ranks[us <= 1.01 * best].min(),
        "excess": costs[us <= 1.01 * best].min() / costs.min(),
        "scale": float(np.median(costs[fast] / us[fast])),
    }


def _spearman(one: np.ndarray, other: np.ndarray) -> float:
    first, second = (np.argsort(np.argsort(values)) for values in (one, other))
    return float(np.corrcoef(first, second)[0, 1])


def table(rows: Sequence[tuple[Measured, dict[str, float]]], *, each: bool) -> Iterator[str]:
    """Yield the figures as Markdown, of each problem or only of each range of M and of all."""
    heads = [*rows[0][1]]
    yield f"| problem | {' | '.join(heads)} |"
    yield "|" + "---|" * (len(heads) + 1)
    if each:
        for one, figures in rows:
            yield f"| {one.problem.text} | {' | '.join(f'{value:.3f}' for value in figures.values())} |"
    dim = catalog.load("gemm").signature.dims[0]
    groups: dict[str, list[dict[str, float]]] = {}
    for one, figures in sorted(rows, key=lambda pair: pair[0].problem["M"]):
        groups.setdefault(dim.range_of(one.problem["M"]), []).append(figures)
    for name, of_it in {**groups, "all": [figures for _, figures in rows]}.items():
        yield f"| {name} ({len(of_it)}) | {' | '.join(f'{_middle(of_it, head):.3f}' for head in heads)} |"
        first = (
            f"1/{part}: {mean(float(figures['place'] < 1 / part) for figures in of_it):.2f}" for part in (4, 8, 16)
        )
        late = max(figures["excess"] for figures in of_it)
        known = {head: [f[head] for f in of_it if f[head] < inf] for head in ("pick", "default")}
        losses = (f"{head}: {max(values, default=nan):.2f}" for head, values in known.items())
        yield (
            f"| within 1 % in the first {', '.join(first)}; largest excess {late:.2f}; most lost: {', '.join(losses)} |"
            + " |" * len(heads)
        )


def _middle(of_it: Iterable[dict[str, float]], head: str) -> float:
    """Return the geometric mean of ratios, else the mean; of those that are known."""
    values = [figures[head] for figures in of_it if isfinite(figures[head])]
    if not values:
        return nan
    return geometric_mean(values) if head not in ("configs", "rank", "rank of fast", "place") else mean(values)


def _held_out(
    measured: Sequence[Measured], only: Sequence[str], part: frozenset[str]
) -> list[tuple[Measured, dict[str, float]]]:
    """Return the rows of the families of a part, by coefficients that were fitted to all others."""
    c = fitted([each for each in measured if each.family not in part], only=only)
    return [(each, row(each, c)) for each in measured if each.family in part]


def _parts(measured: Sequence[Measured]) -> list[frozenset[str]]:
    """Return the families in parts; recorded spaces are held out one by one if there is nothing else."""
    families = sorted({each.family for each in measured})
    random.Random(0).shuffle(families)
    count = min(len(families), SETTINGS.folds if len(families) > 12 else len(families))
    return [frozenset(families[first::count]) for first in range(count)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [each.name for each in fields(Coefficients)]
    fit = "fit these coefficients, or all, with families held out"
    parser.add_argument("--fit", nargs="*", metavar="NAME", choices=names, help=fit)
    parser.add_argument("--store", type=Path, nargs="*", default=[], help="stores with searches of gemm")
    parser.add_argument("--only-stores", action="store_true", help="leave the recorded spaces out")
    parser.add_argument("--coefficients", type=Path, help="check these, which --out wrote, in place of today's")
    parser.add_argument("--each", action="store_true", help="print each problem")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--out", type=Path, help="write the coefficients that are fitted to all problems")
    given = parser.parse_args()
    measured = [
        *([] if given.only_stores else of_spaces()),
        *(one for file in given.store for one in of_store(file)),
    ]
    start = COEFFICIENTS if given.coefficients is None else Coefficients(**json.loads(given.coefficients.read_text()))
    families = len({each.family for each in measured})
    print(f"{len(measured)} problems of {families} families, {sum(len(each.trials) for each in measured):,} configs\n")
    if given.fit is not None:
        with ProcessPoolExecutor(given.jobs) as pool:
            whole = pool.submit(fitted, measured, start, given.fit)
            rows = [
                each for part in pool.map(partial(_held_out, measured, given.fit), _parts(measured)) for each in part
            ]
            print("Held out:\n", *table(rows, each=given.each), sep="\n")
            start = whole.result()
        print(f"\nFitted to all: {start}")
    print("\nNot held out:\n", *table([(each, row(each, start)) for each in measured], each=given.each), sep="\n")
    if given.out is not None:
        given.out.write_text(json.dumps(asdict(start), indent=1))


if __name__ == "__main__":
    main()
