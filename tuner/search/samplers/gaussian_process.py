"""The sampler `gp`: a Gaussian process over all feasible configs."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, log

import numpy as np
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from tuner.kernels.spec import Config
from tuner.search.convergence import CONVERGENCE, ConvergenceSettings
from tuner.search.covariance import Floats
from tuner.search.gaussian_process import GAUSSIAN_PROCESS, GaussianProcess, GaussianProcessSettings
from tuner.search.samplers.base import FeasibleSampler, FeasibleSet


class GaussianProcessSampler(FeasibleSampler):
    """Takes the config that a Gaussian process of log latency finds most promising."""

    def __init__(
        self,
        feasible: FeasibleSet,
        seed: int,
        settings: GaussianProcessSettings = GAUSSIAN_PROCESS,
        convergence: ConvergenceSettings = CONVERGENCE,
    ) -> None:
        super().__init__(feasible, seed)
        knobs = map(feasible.space.column, feasible.distributions)
        estimates = None if feasible.estimate is None else self._estimates
        limit = feasible.min_improvement_probability
        self._model = GaussianProcess(knobs, seed, limit, settings, convergence, estimates)
        self._started = 0
        """Number of the study's trials that the model knows."""
        self._running: dict[int, int] = {}
        """Config index by trial number."""

    @property
    def improvement_probability(self) -> float:
        """Probability that an untried config beats the best by 1 %, as the model estimates it."""
        return self._model.improvement_probability

    def choose(self, study: Study, trial: FrozenTrial) -> Config:
        """Return the model's proposal, given all trials before this one."""
        self._update(study.get_trials(deepcopy=False)[: trial.number])
        return self.feasible.space[self._model.propose()]

    def _estimates(self) -> Floats:
        """Return the estimated log latency of each config."""
        assert self.feasible.estimate is not None
        return np.log([self.feasible.estimate(config) for config in self.feasible.space])

    def _update(self, trials: Sequence[FrozenTrial]) -> None:
        """Tell the model which trials started and ended since the last proposal."""
        for number in range(self._started, len(trials)):
            self._running[number] = self.feasible.space.index(Config(trials[number].params, ""))
            self._model.start(self._running[number])
        self._started = len(trials)
        for number in [number for number in self._running if trials[number].state.is_finished()]:
            ok, value = trials[number].state is TrialState.COMPLETE, trials[number].value
            self._model.tell(self._running.pop(number), log(value) if ok and value is not None else inf)
