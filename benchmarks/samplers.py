"""Our samplers beside a rival that learns in another way, on the recorded spaces: the tables of docs/search.md.

The rival, `forest`, tells the fastest tenth from the rest over the same enumerated set (scikit-learn, which nothing
else here needs). Run again, it goes on from what `--out` holds.

    python benchmarks/samplers.py --seeds 50 --out samplers.json
    python benchmarks/samplers.py --seeds 50 --out samplers.json --default-first --samplers gp,random
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import product
from math import inf
from pathlib import Path

import numpy as np
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from sklearn.ensemble import RandomForestClassifier

from tuner.kernels.spec import Config
from tuner.measure import recorded
from tuner.search.replay import AT, ReplaySpace, Score, geometric_gap, replay
from tuner.search.sampler import Feasible, Maker, Proposer

_RANDOM_FIRST, _AT_ONCE = 10, 7


class Forest(Feasible):
    """Ten at random; then by eights the seven that a forest holds likeliest to be fast, and one at random."""

    def __init__(self, proposer: Proposer, seed: int) -> None:
        super().__init__(proposer, seed)
        self._seed = seed
        self._space = list(self._unseen)
        self._number = {config: number for number, config in enumerate(self._space)}
        columns = ([config[name] for config in self._space] for name in self._knobs)
        self._points = np.column_stack([np.unique(column, return_inverse=True)[1] for column in columns])
        self._queue: list[Config | None] = []

    def _next(self, study: Study, trial: FrozenTrial) -> Config:
        told = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.FAIL))
        if len(told) >= _RANDOM_FIRST and not self._queue:
            self._queue = [None, *self._likeliest(told)]
        config = self._queue.pop() if self._queue else None
        return super()._next(study, trial) if config is None or config not in self._unseen else config

    def _likeliest(self, told: Sequence[FrozenTrial]) -> list[Config]:
        values = np.array([inf if trial.value is None else trial.value for trial in told])
        fast = values.argsort().argsort() < max(1, len(values) // 10)
        known = [self._number[Config(trial.params, "")] for trial in told]
        forest = RandomForestClassifier(random_state=self._seed).fit(self._points[known], fast)
        unseen = [self._number[config] for config in self._unseen]
        chances = forest.predict_proba(self._points[unseen])[:, 1]
        return [self._space[unseen[place]] for place in np.argsort(chances, kind="stable")[-_AT_ONCE:]]


RIVALS: dict[str, Maker] = {"forest": Forest}


def ours(space: ReplaySpace, sampler: str, *, seeds: int, default_first: bool = False) -> Score:
    """What `tuner replay` does, for a sampler of ours or a rival."""
    score = replay(space, RIVALS.get(sampler, sampler), seeds=seeds, default_first=default_first)
    return Score(space.name, sampler, score.shares)


def judged(
    spaces: Sequence[ReplaySpace],
    names: Sequence[str],
    run: Callable[[ReplaySpace, str], Score],
    out: Path,
    setting: str,
    jobs: int,
) -> list[Score]:
    """The score of everything named on every space; what `out` holds of the same setting is not run again."""
    known: dict[str, list[list[float]]] = json.loads(out.read_text()) if out.is_file() else {}
    pairs = {f"{space.name}, {name}, {setting}": (space, name) for name, space in product(names, spaces)}
    with ProcessPoolExecutor(jobs) as pool:
        running = {pool.submit(run, *pair): key for key, pair in pairs.items() if key not in known}
        for done in as_completed(running):
            known[running[done]] = [[round(share, 6) for share in shares] for shares in done.result().shares]
            out.write_text(json.dumps(known))
            print(running[done], file=sys.stderr)
    return [Score(space.name, name, tuple(map(tuple, known[key]))) for key, (space, name) in pairs.items()]


def gap_table(scores: Sequence[Score], budgets: Sequence[int]) -> str:
    """Gaps by sampler: the geometric mean over all spaces, then every space."""
    spaces, names = (list(dict.fromkeys(of)) for of in zip(*((s.space, s.sampler) for s in scores), strict=True))
    lines = [_row("space", "sampler", *map(str, budgets)), _row(*["---"] * (2 + len(budgets)))]
    for name in names:
        gaps = (geometric_gap([s for s in scores if s.sampler == name], budget) for budget in budgets)
        lines.append(_row("geometric mean", f"`{name}`", *(f"{gap:.4f}" for gap in gaps)))
    for space, name in product(spaces, names):
        (score,) = (s for s in scores if (s.space, s.sampler) == (space, name))
        lines.append(_row(space, f"`{name}`", *(f"{score.gap(budget):.4f}" for budget in budgets)))
    return "\n".join(lines)


def share_table(scores: Sequence[Score], budgets: Sequence[int]) -> str:
    """Shares of the optimum's speed, mean / 10th percentile."""
    lines = [_row("space", "sampler", *map(str, budgets)), _row(*["---"] * (2 + len(budgets)))]
    for score in sorted(scores, key=lambda score: score.space):
        shares = (f"{score.share(budget):.3f} / {score.tenth(budget):.3f}" for budget in budgets)
        lines.append(_row(score.space, f"`{score.sampler}`", *shares))
    return "\n".join(lines)


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _recorded() -> list[ReplaySpace]:
    spaces = [recorded.load(name) for name in recorded.names()]
    problems = [space.name.rpartition("-nvidia")[0] for space in spaces]
    names = [short if problems.count(short) == 1 else space.name for short, space in zip(problems, spaces, strict=True)]
    return [ReplaySpace(name, space.measurements, space.default) for name, space in zip(names, spaces, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description="Samplers on the recorded spaces, as Markdown.")
    parser.add_argument("--samplers", default="gp,forest,tpe,random")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--default-first", action="store_true", help="as in a search; else the sampler is on its own")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--out", type=Path, required=True, help="keeps the scores")
    given = parser.parse_args()
    run = partial(ours, seeds=given.seeds, default_first=given.default_first)
    setting = f"{given.seeds} seeds{', the default first' if given.default_first else ''}"
    scores = judged(_recorded(), given.samplers.split(","), run, given.out, setting, given.jobs)
    print(gap_table(scores, AT), share_table(scores, AT), sep="\n\n")


if __name__ == "__main__":
    main()
