"""Proposals of configs to measure, from an Optuna study in memory.

The study is rebuilt from the list of measurements, which is the only state that is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Self

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from tuner.kernels.spec import Config
from tuner.records import Measurement
from tuner.search.samplers import sampler_named
from tuner.search.samplers.base import FeasibleSet, SamplerFactory
from tuner.search.space import Unseen, as_space


class Proposer:
    """Proposes each config of `space` at most once.

    Args:
        space: the feasible configs.
        sampler: one of `SAMPLERS`, or a factory such as a subclass of `FeasibleSampler`.
        seed: two proposers with the same seed and the same results propose the same configs.
        known: measurements of earlier runs. The sampler learns from them, and they are not proposed.
        min_improvement_probability: limit below which the caller stops asking.
        estimate: returns the estimated latency of a config, in us.
    """

    def __init__(
        self,
        space: Sequence[Config],
        sampler: str | SamplerFactory,
        seed: int,
        known: Iterable[Measurement] = (),
        min_improvement_probability: float = 0.0,
        estimate: Callable[[Config], float] | None = None,
    ) -> None:
        self.space, self.min_improvement_probability = as_space(space), min_improvement_probability
        self._unseen = Unseen(self.space)
        self._running: dict[Config, Trial] = {}
        self._distributions: dict[str, BaseDistribution] = {
            name: _Choices(tuple(dict.fromkeys(self.space.column(name))))
            for name in (self.space[0] if self.space else ())
        }
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        make = sampler_named(sampler) if isinstance(sampler, str) else sampler
        self._sampler = make(
            FeasibleSet(self.space, self._unseen, self._distributions, min_improvement_probability, estimate), seed
        )
        self._study = optuna.create_study(sampler=self._sampler)
        for measurement in known:
            if self._unseen.take(measurement.config) is not None:
                self._study.add_trial(self._as_trial(measurement))

    @property
    def unseen(self) -> Unseen:
        """Configs that were not proposed yet, in the order of the space."""
        return self._unseen

    @property
    def improvement_probability(self) -> float:
        """Improvement probability; 1 if the sampler cannot estimate it."""
        return self._sampler.improvement_probability

    def ask(self) -> Config | None:
        """Return the next config to measure, or None if the space is exhausted."""
        if not self._unseen:
            return None
        trial = self._study.ask(self._distributions)
        return self._start(Config(trial.params, ""), trial)

    def take(self, config: Config) -> Config:
        """Propose a config that the caller chose."""
        self._study.enqueue_trial(dict(config))
        return self._start(config, self._study.ask(self._distributions))

    def tell(self, measurement: Measurement) -> None:
        """Tell the sampler the result of a proposed config."""
        trial = self._running.pop(measurement.config)
        if measurement.ok:
            self._study.tell(trial, measurement.latency_us)
        else:
            self._study.tell(trial, state=TrialState.FAIL)

    def _start(self, config: Config, trial: Trial) -> Config:
        taken = self._unseen.take(config)
        if taken is None:
            raise KeyError(config)
        self._running[taken] = trial
        return taken

    def _as_trial(self, measurement: Measurement) -> FrozenTrial:
        return create_trial(
            params=dict(measurement.config),
            distributions=self._distributions,
            value=measurement.latency_us if measurement.ok else None,
            state=TrialState.COMPLETE if measurement.ok else TrialState.FAIL,
        )


class _Choices(CategoricalDistribution):
    """A knob's choices, immutable, so that Optuna's copies and comparisons for each trial cost nothing."""

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __eq__(self, other: object) -> bool:
        return self is other or super().__eq__(other)

    __hash__ = CategoricalDistribution.__hash__
