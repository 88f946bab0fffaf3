"""The sampler `tpe`: Optuna's tree-structured Parzen estimator, restricted to the feasible configs."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState

from tuner.kernels.spec import Config, Value
from tuner.search.covariance import coded, is_number
from tuner.search.samplers.base import FeasibleSet
from tuner.search.samplers.uniform import RandomSampler


@dataclass(frozen=True)
class TPESettings:
    """Limits of the sampler `tpe`."""

    max_proposals: int = 25
    """Number of proposals that may be infeasible or seen before a random config is taken."""


class FeasibleTPESampler(RandomSampler):
    """Takes what Optuna's TPE proposes if it is unseen and feasible, else a random config.

    TPE has a study of its own, which gives it what the sampler `gp` has: numbers as ranks among their choices, and
    failed configs as slower than all others. Optuna leaves failed trials out.
    """

    def __init__(self, feasible: FeasibleSet, seed: int, settings: TPESettings = TPESettings()) -> None:
        super().__init__(feasible, seed)
        self._settings = settings
        self._tpe = TPESampler(seed=seed, multivariate=True, constant_liar=True)
        self._study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed))
        self._choices: dict[str, list[Value]] = {}
        for name in feasible.distributions:
            self._choices[name] = coded(feasible.space.column(name))[1]
        self._ranks = {name: {choice: rank for rank, choice in enumerate(of)} for name, of in self._choices.items()}
        self.distributions = {name: _distribution(choices) for name, choices in self._choices.items()}
        """Distributions of TPE's study, over the ranks of each knob's choices."""
        self._running: dict[int, Trial] = {}
        """Trial of TPE's study by number of the search's."""
        self._started = 0
        """Number of the search's trials that TPE's study has."""

    def choose(self, study: Study, trial: FrozenTrial) -> Config:
        """Return TPE's first proposal that is unseen and feasible, or a random config."""
        self._update(study.get_trials(deepcopy=False)[: trial.number])
        proposed = self._proposed()
        return super().choose(study, trial) if proposed is None else proposed

    def _proposed(self) -> Config | None:
        """Return TPE's first proposal that is unseen and feasible, or None."""
        draft = self._study.ask()  # TPE writes its proposal to the trial that it is for
        try:
            for _ in range(self._settings.max_proposals):
                trial = self._study.get_trials(deepcopy=False)[draft.number]
                proposed = self._tpe.sample_relative(self._study, trial, self.distributions)
                if not proposed:  # TPE starts with random trials
                    return None
                values = {name: self._choices[name][rank] for name, rank in proposed.items()}
                if (config := Config(values, "")) in self.feasible.unseen:
                    return config
            return None
        finally:
            self._study.tell(draft, state=TrialState.FAIL)

    def _update(self, trials: list[FrozenTrial]) -> None:
        """Repeat in TPE's study what started and ended since the last proposal."""
        for number in range(self._started, len(trials)):
            params = {name: self._ranks[name][value] for name, value in trials[number].params.items()}
            self._study.enqueue_trial(params)
            self._running[number] = self._study.ask(self.distributions)
        self._started = len(trials)
        for number in [number for number in self._running if trials[number].state.is_finished()]:
            ok, value = trials[number].state is TrialState.COMPLETE, trials[number].value
            self._study.tell(self._running.pop(number), value if ok and value is not None else inf)


def _distribution(choices: list[Value]) -> BaseDistribution:
    """Return a distribution of the choices' ranks: ordered if all are numbers."""
    if all(map(is_number, choices)):
        return IntDistribution(0, len(choices) - 1)
    return CategoricalDistribution(range(len(choices)))
