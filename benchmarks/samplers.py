"""Samplers compared by replaying the recorded spaces: the tables of docs/studies/samplers.md.

Beside the package's samplers there is `forest`, a random forest that separates the fastest tenth from the rest. It
needs scikit-learn. A second run continues from the scores in `--out`.

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

from tuner import recorded
from tuner.kernels.spec import Config
from tuner.search.replay import AT, ReplaySpace, Score, geometric_gap, replay
from tuner.search.samplers.base import FeasibleSet, SamplerFactory
from tuner.search.samplers.uniform import RandomSampler

_RANDOM_FIRST, _BATCH = 10, 7
"""Random configs before the first forest, and configs taken from each forest."""


class ForestSampler(RandomSampler):
    """Takes ten random configs, then by turns seven that a forest finds likeliest to be fast, and a random one."""

    def __init__(self, feasible: FeasibleSet, seed: int) -> None:
        super().__init__(feasible, seed)
        self._seed = seed
        self._space = list(feasible.unseen)
        self._index = {config: index for index, config in enumerate(self._space)}
        columns = ([config[name] for config in self._space] for name in feasible.distributions)
        self._points = np.column_stack([np.unique(column, return_inverse=True)[1] for column in columns])
        self._queue: list[Config | None] = []

    def choose(self, study: Study, trial: FrozenTrial) -> Config:
        """Return the next queued config; fit the forest again if none is queued."""
        finished = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.FAIL))
        if len(finished) >= _RANDOM_FIRST and not self._queue:
            self._queue = [None, *self._likeliest(finished)]
        config = self._queue.pop() if self._queue else None
        return super().choose(study, trial) if config is None or config not in self.feasible.unseen else config

    def _likeliest(self, finished: Sequence[FrozenTrial]) -> list[Config]:
        from sklearn.ensemble import RandomForestClassifier

        values = np.array([inf if trial.value is None else trial.value for trial in finished])
        fast = values.argsort().argsort() < max(1, len(values) // 10)
        known = [self._index[Config(trial.params, "")] for trial in finished]
        forest = RandomForestClassifier(random_state=self._seed).fit(self._points[known], fast)
        unseen = [self._index[config] for config in self.feasible.unseen]
        probabilities = forest.predict_proba(self._points[unseen])[:, 1]
        return [self._space[unseen[place]] for place in np.argsort(probabilities, kind="stable")[-_BATCH:]]


OTHERS: dict[str, SamplerFactory] = {"forest": ForestSampler}
"""Samplers beside those of the package."""


def ours(space: ReplaySpace, sampler: str, *, seeds: int, batch: int = 8, default_first: bool = False) -> Score:
    """Replay a space with a sampler of the package or of `OTHERS`."""
    score = replay(space, OTHERS.get(sampler, sampler), seeds=seeds, batch=batch, default_first=default_first)
    return Score(space.name, sampler, score.shares)


def judged(
    spaces: Sequence[ReplaySpace],
    names: Sequence[str],
    run: Callable[[ReplaySpace, str], Score],
    out: Path,
    setting: str,
    jobs: int,
) -> list[Score]:
    """Return the score of each name on each space. Scores of the same setting that `out` holds are not run again."""
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
    """Return the gaps of each sampler as Markdown: the geometric mean over all spaces, then each space."""
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
    """Return shares of the optimum's speed as Markdown: mean / 10th percentile."""
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
    """Print the tables."""
    parser = argparse.ArgumentParser(description="Samplers on the recorded spaces, as Markdown.")
    parser.add_argument("--samplers", default="gp,forest,tpe,random")
    parser.add_argument("--seeds", type=int, default=50)
    parser.add_argument("--batches", default="8,20", help="configs that run at once; a card has cores + 4")
    parser.add_argument("--default-first", action="store_true", help="measure the default first, as a search does")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--out", type=Path, required=True, help="keeps the scores")
    given = parser.parse_args()
    for batch in map(int, given.batches.split(",")):
        run = partial(ours, seeds=given.seeds, batch=batch, default_first=given.default_first)
        setting = f"{given.seeds} seeds, batch {batch}{', the default first' if given.default_first else ''}"
        scores = judged(_recorded(), given.samplers.split(","), run, given.out, setting, given.jobs)
        print(f"Batch {batch}:", gap_table(scores, AT), share_table(scores, AT), sep="\n\n", end="\n\n")


if __name__ == "__main__":
    main()
