"""The sampler `grid`."""

from __future__ import annotations

from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.kernels.spec import Config
from tuner.search.samplers.base import FeasibleSampler


class GridSampler(FeasibleSampler):
    """Takes unseen configs in the order of the space."""

    def choose(self, study: Study, trial: FrozenTrial) -> Config:
        """Return the first unseen config."""
        return next(iter(self.feasible.unseen))
