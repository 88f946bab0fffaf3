"""Optuna samplers over a feasible set: what to try next.

Optuna's own samplers know the knobs' choices, not which combinations are feasible, and they repeat themselves. The ones
here choose among the unseen configs of the enumerated set; nothing is ever moved to a neighbour. The study lives in
memory: the truth is the list of measurements, from which it is rebuilt.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf, log
from typing import Any, Self

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import Study
from optuna.trial import FrozenTrial, Trial, TrialState, create_trial

from tuner.kernels.spec import Config
from tuner.records import Measurement
from tuner.search.gaussian_process import GaussianProcess

_ASKS = 25
"""Proposals of TPE that may be infeasible or seen before a random one is taken. Each costs 3 ms. After 200 configs of
the recorded gemm 4096 space, 3, 10, 25 and 50 of them end at 0.973, 0.978, 0.991 and 0.997 of the optimum, in 1, 4, 7
and 15 s of proposing (6 seeds, 2026-11-28)."""


class _Choices(CategoricalDistribution):
    """A knob's. They never change, so a copy is the thing itself, and they are compared at a glance: Optuna copies and
    compares those of every knob with each trial, which took a quarter of what a trial costs besides measuring."""

    def __deepcopy__(self, memo: object) -> Self:
        return self

    def __eq__(self, other: object) -> bool:
        return self is other or super().__eq__(other)

    __hash__ = CategoricalDistribution.__hash__


class Proposer:
    """Proposes each config of `space` at most once.

    Args:
        space: the feasible set.
        sampler: one of `SAMPLERS` (`grid` goes through the space in order), or what makes one of its own.
        seed: two proposers told the same propose the same.
        known: measurements of earlier runs; they are learnt from and not proposed again.
        least_hope: below which whoever asks will stop asking.
    """

    def __init__(
        self,
        space: Sequence[Config],
        sampler: str | Maker,
        seed: int,
        known: Iterable[Measurement] = (),
        min_improvement_probability: float = 0.0,
    ) -> None:
        self.min_improvement_probability = min_improvement_probability
        self._unseen = {config: config for config in space}
        self._asked: dict[Config, Trial] = {}
        self._distributions: dict[str, BaseDistribution] = {
            name: _Choices(tuple(dict.fromkeys(config[name] for config in space)))
            for name in (space[0] if space else ())
        }
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        make = _SAMPLERS[sampler] if isinstance(sampler, str) else sampler
        self._sampler = make(self, seed)
        self._study = optuna.create_study(sampler=self._sampler)
        for measurement in known:
            if self._unseen.pop(measurement.config, None) is not None:
                self._study.add_trial(self._as_trial(measurement))

    @property
    def unseen(self) -> Mapping[Config, Config]:
        """Configs not proposed yet, in the order of the space."""
        return self._unseen

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """The choices of every knob that occur in the space."""
        return self._distributions

    @property
    def improvement_probability(self) -> float:
        """The chance that there is a config left that is faster by more than 1 %, as far as the sampler can tell.

        1 while it still gives choices of a knob a turn that were neglected.
        """
        return self._sampler.improvement_probability

    def ask(self) -> Config | None:
        """The next config to measure; None when the space is exhausted."""
        if not self._unseen:
            return None
        trial = self._study.ask(self._distributions)
        return self._proposed(self._unseen[Config(trial.params, "")], trial)

    def take(self, config: Config) -> Config:
        """Proposes a config that somebody else chose."""
        self._study.enqueue_trial(dict(config))
        return self._proposed(config, self._study.ask(self._distributions))

    def tell(self, measurement: Measurement) -> None:
        """Learns how a proposed config did."""
        trial = self._asked.pop(measurement.config)
        if measurement.ok:
            self._study.tell(trial, measurement.latency_us)
        else:
            self._study.tell(trial, state=TrialState.FAIL)

    def _proposed(self, config: Config, trial: Trial) -> Config:
        self._asked[config] = trial
        return self._unseen.pop(config)

    def _as_trial(self, measurement: Measurement) -> FrozenTrial:
        return create_trial(
            params=dict(measurement.config),
            distributions=self._distributions,
            value=measurement.latency_us if measurement.ok else None,
            state=TrialState.COMPLETE if measurement.ok else TrialState.FAIL,
        )


class Feasible(BaseSampler):
    """Takes unseen configs at random. The samplers that know better inherit from it."""

    def __init__(self, proposer: Proposer, seed: int) -> None:
        self._unseen, self._knobs = proposer.unseen, proposer.distributions
        self._shuffled = list(self._unseen)
        random.Random(seed).shuffle(self._shuffled)

    @property
    def improvement_probability(self) -> float:
        """As `Proposer.hope`; 1 where it cannot be told."""
        return 1.0

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return self._knobs

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        taken_by_somebody_else = "fixed_params" in trial.system_attrs
        return {} if taken_by_somebody_else else dict(self._next(study, trial))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        raise AssertionError("every knob is sampled together")

    def _next(self, study: Study, trial: FrozenTrial) -> Config:
        while self._shuffled[-1] not in self._unseen:
            self._shuffled.pop()
        return self._shuffled[-1]


class InOrder(Feasible):
    """Takes the first unseen config of the space."""

    def _next(self, study: Study, trial: FrozenTrial) -> Config:
        return next(iter(self._unseen))


class FeasibleTPESampler(Feasible):
    """Takes what Optuna's TPE proposes if it is unseen and feasible, else after `_ASKS` proposals a random config."""

    def __init__(self, proposer: Proposer, seed: int) -> None:
        super().__init__(proposer, seed)
        self._tpe = TPESampler(seed=seed, multivariate=True, constant_liar=True)

    def _next(self, study: Study, trial: FrozenTrial) -> Config:
        for _ in range(_ASKS):
            proposed = self._tpe.sample_relative(study, trial, self._knobs)
            if not proposed:  # it wants a random start
                break
            if (config := Config(proposed, "")) in self._unseen:
                return config
        return super()._next(study, trial)


class GaussianProcessSampler(Feasible):
    """Takes what a Gaussian process over the whole space finds the most promising."""

    def __init__(self, proposer: Proposer, seed: int) -> None:
        super().__init__(proposer, seed)
        self._space = list(self._unseen)
        self._number = {config: number for number, config in enumerate(self._space)}
        knobs = ([config[name] for config in self._space] for name in self._knobs)
        self._model = GaussianProcess(knobs, seed, proposer.min_improvement_probability)
        self._heard = 0
        self._on_the_way: dict[int, int] = {}
        """Configs by trial."""

    @property
    def improvement_probability(self) -> float:
        return self._model.improvement_probability

    def _next(self, study: Study, trial: FrozenTrial) -> Config:
        self._hear(study.get_trials(deepcopy=False)[: trial.number])
        return self._space[self._model.propose()]

    def _hear(self, trials: Sequence[FrozenTrial]) -> None:
        """Tells the model what began and what ended since it was last asked."""
        for number in range(self._heard, len(trials)):
            self._on_the_way[number] = self._number[Config(trials[number].params, "")]
            self._model.start(self._on_the_way[number])
        self._heard = len(trials)
        for number in [number for number in self._on_the_way if trials[number].state.is_finished()]:
            ok, value = trials[number].state is TrialState.COMPLETE, trials[number].value
            self._model.tell(self._on_the_way.pop(number), log(value) if ok and value is not None else inf)


Maker = Callable[[Proposer, int], Feasible]
"""Makes a sampler of a seed, over what a proposer may still propose: a class that inherits from `Feasible`."""

_SAMPLERS: dict[str, Maker] = {
    "gp": GaussianProcessSampler,
    "tpe": FeasibleTPESampler,
    "random": Feasible,
    "grid": InOrder,
}
SAMPLERS = tuple(_SAMPLERS)
DEFAULT = SAMPLERS[0]
