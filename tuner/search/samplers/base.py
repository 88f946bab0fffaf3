"""The base of all samplers: an Optuna sampler that takes one of the unseen feasible configs.

Optuna's own samplers know the choices of each knob but not which combinations are feasible, and may repeat a config.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from optuna.distributions import BaseDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study
from optuna.trial import FrozenTrial

from tuner.kernels.spec import Config
from tuner.search.space import Space, Unseen


@dataclass(frozen=True)
class FeasibleSet:
    """The configs that a sampler may take."""

    space: Space
    """All feasible configs."""
    unseen: Unseen
    """Configs that were not proposed yet, in the order of the space. It shrinks as configs are proposed."""
    distributions: dict[str, BaseDistribution]
    """Choices of each knob that occur in the space."""
    min_improvement_probability: float = 0.0
    """Improvement probability below which the search stops."""
    estimate: Callable[[Config], float] | None = None
    """Returns the estimated latency of a config, in us; None if the kernel states no estimate."""


class FeasibleSampler(BaseSampler):
    """A sampler over a feasible set. A subclass implements `choose`.

    Args:
        feasible: the configs to take from.
        seed: two samplers with the same seed and the same results take the same configs.
    """

    def __init__(self, feasible: FeasibleSet, seed: int) -> None:
        self.feasible = feasible

    @abstractmethod
    def choose(self, study: Study, trial: FrozenTrial) -> Config:
        """Return one of the unseen configs, at least one of which is left."""

    @property
    def improvement_probability(self) -> float:
        """Improvement probability; 1 if the sampler cannot estimate it."""
        return 1.0

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """Return all knobs, since they are sampled together."""
        return self.feasible.distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """Return the values of the chosen config; nothing for an enqueued trial, which has its values."""
        enqueued = "fixed_params" in trial.system_attrs
        return {} if enqueued else dict(self.choose(study, trial))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """Raise AssertionError, since no knob is sampled by itself."""
        raise AssertionError("every knob is sampled together")


SamplerFactory = Callable[[FeasibleSet, int], FeasibleSampler]
"""Makes a sampler of a feasible set and a seed. A subclass of `FeasibleSampler` is one."""
