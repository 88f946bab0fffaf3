"""The sampler `tpe`: Optuna's tree-structured Parzen estimator, restricted to the feasible configs."""

from __future__ import annotations

from dataclasses import dataclass

from optuna.samplers import TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.kernels.spec import Config
from tuner.search.samplers.base import FeasibleSet
from tuner.search.samplers.uniform import RandomSampler


@dataclass(frozen=True)
class TPESettings:
    """Limits of the sampler `tpe`."""

    max_proposals: int = 25
    """Number of proposals that may be infeasible or seen before a random config is taken."""


class FeasibleTPESampler(RandomSampler):
    """Takes what Optuna's TPE proposes if it is unseen and feasible, else a random config."""

    def __init__(self, feasible: FeasibleSet, seed: int, settings: TPESettings = TPESettings()) -> None:
        super().__init__(feasible, seed)
        self._settings = settings
        self._tpe = TPESampler(seed=seed, multivariate=True, constant_liar=True)

    def choose(self, study: Study, trial: FrozenTrial) -> Config:
        """Return TPE's first proposal that is unseen and feasible, or a random config."""
        for _ in range(self._settings.max_proposals):
            proposed = self._tpe.sample_relative(study, trial, self.feasible.distributions)
            if not proposed:  # TPE starts with random trials
                break
            if (config := Config(proposed, "")) in self.feasible.unseen:
                return config
        return super().choose(study, trial)
