"""The sampler `random`."""

from __future__ import annotations

import random
from array import array

from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.kernels.spec import Config
from tuner.search.samplers.base import FeasibleSampler, FeasibleSet


class RandomSampler(FeasibleSampler):
    """Takes unseen configs in random order."""

    def __init__(self, feasible: FeasibleSet, seed: int) -> None:
        super().__init__(feasible, seed)
        self._shuffled = array("Q", range(len(feasible.space)))
        random.Random(seed).shuffle(self._shuffled)

    def choose(self, study: Study, trial: FrozenTrial) -> Config:
        """Return the next unseen config of the shuffled space."""
        while (config := self.feasible.space[self._shuffled[-1]]) not in self.feasible.unseen:
            self._shuffled.pop()
        return config
