"""The contract of the proposer with each sampler."""

from __future__ import annotations

import pytest
from optuna.distributions import CategoricalDistribution, IntDistribution
from scripted import BEST, DEFAULT, SPACE, bowl

from tuner.kernels.spec import Config
from tuner.records import Measurement, Outcome
from tuner.search import SAMPLERS
from tuner.search.proposer import Proposer
from tuner.search.samplers.base import FeasibleSet
from tuner.search.samplers.tpe import FeasibleTPESampler

SPARSE = [config for config in SPACE if (config["A"] * config["B"]) % 3 != 1 and config["num_warps"] != 2]
"""A third of the combinations, in no pattern of a single knob."""


def _ok(config: Config) -> Measurement:
    return Measurement(config, Outcome.OK, (bowl(config),) * 10)


@pytest.fixture(params=SAMPLERS)
def sampler(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class TestProposerContract:
    def test_every_feasible_config_is_proposed_once_and_no_other(self, sampler: str) -> None:
        proposer = Proposer(SPARSE, sampler, seed=0)
        proposed = []
        while (config := proposer.ask()) is not None:
            proposed.append(config)
            proposer.tell(_ok(config))
        assert sorted(proposed, key=SPARSE.index) == SPARSE
        assert not proposer.unseen

    def test_a_batch_may_run_at_once(self, sampler: str) -> None:
        proposer = Proposer(SPARSE, sampler, seed=0)
        batch = [proposer.ask() for _ in range(8)]
        assert len(set(batch)) == 8
        for config in reversed(batch):
            assert config is not None
            proposer.tell(_ok(config))

    def test_a_failed_config_is_not_proposed_again(self, sampler: str) -> None:
        proposer = Proposer(SPARSE, sampler, seed=0)
        for _ in range(12):
            config = proposer.ask()
            assert config is not None
            proposer.tell(Measurement(config, Outcome.CRASHED))
            assert config not in proposer.unseen

    def test_the_caller_may_choose_a_config(self, sampler: str) -> None:
        proposer = Proposer(SPACE, sampler, seed=0)
        assert proposer.take(DEFAULT) == DEFAULT
        assert DEFAULT not in proposer.unseen
        proposer.tell(_ok(DEFAULT))

    def test_a_known_config_is_not_proposed(self, sampler: str) -> None:
        known = [_ok(config) for config in SPACE[:20]] + [Measurement(SPACE[20], Outcome.CRASHED)]
        proposer = Proposer(SPACE, sampler, seed=0, known=known)
        assert list(proposer.unseen) == SPACE[21:]

    def test_proposals_keep_the_canonical_text(self, sampler: str) -> None:
        config = Proposer(SPACE, sampler, seed=0).ask()
        assert config is not None
        assert config.text.startswith("A=")

    def test_a_space_of_one(self, sampler: str) -> None:
        proposer = Proposer([BEST], sampler, seed=0)
        assert proposer.ask() == BEST
        assert proposer.ask() is None

    def test_an_empty_space(self, sampler: str) -> None:
        assert Proposer([], sampler, seed=0).ask() is None


def test_the_grid_goes_in_order() -> None:
    proposer = Proposer(SPACE, "grid", seed=0)
    assert [proposer.ask() for _ in range(5)] == SPACE[:5]


def test_known_results_guide_the_default_sampler() -> None:
    """With results that are fast at B = 3, it proposes B = 3 more often than one time in four."""
    known = [_ok(config) for config in SPACE if config["num_warps"] == 1]
    proposer = Proposer(SPACE, "gp", seed=0, known=known)
    proposed = [proposer.ask() for _ in range(8)]
    assert sum(config["B"] == 3 for config in proposed if config is not None) >= 4


def test_the_default_sampler_proposes_the_best_of_a_bowl() -> None:
    """With half of the bowl known, its next proposal is the best of all 60."""
    known = [_ok(config) for config in SPACE[::2] if config != BEST]
    assert Proposer(SPACE, "gp", seed=0, known=known).ask() == BEST


def test_the_default_sampler_learns_from_failures() -> None:
    """Every config with A > 4 crashes; the fastest of the others is B = 3, num_warps = 4."""
    known = [
        Measurement(config, Outcome.CRASHED) if config["A"] > 4 else _ok(config)
        for config in SPACE
        if config["num_warps"] < 4 and config["B"] < 4
    ]
    proposer = Proposer(SPACE, "gp", seed=0, known=known)
    proposed = [proposer.ask() for _ in range(6)]
    assert sum(config["A"] > 4 for config in proposed if config is not None) <= 2


def test_the_default_sampler_learns_from_a_config_that_the_caller_chose() -> None:
    """`take` does not ask the sampler, and its results count like any other."""
    proposers = [Proposer(SPACE, "gp", seed=0) for _ in range(2)]
    for proposer in proposers:
        for config in SPACE[::3]:
            proposer.take(config)
    for config in SPACE[::3]:
        proposers[0].tell(_ok(config))
        proposers[1].tell(Measurement(config, Outcome.OK, (200.0 - bowl(config) / 10,)))
    assert proposers[0].ask() != proposers[1].ask()


def _tpe(space: list[Config], known: list[Measurement]) -> tuple[FeasibleTPESampler, list[Config]]:
    """Return the sampler `tpe` and the configs it proposes after known results."""
    samplers: list[FeasibleTPESampler] = []

    def made(feasible: FeasibleSet, seed: int) -> FeasibleTPESampler:
        samplers.append(FeasibleTPESampler(feasible, seed))
        return samplers[0]

    proposer = Proposer(space, made, 0, known)
    return samplers[0], [config for _ in range(12) if (config := proposer.ask()) is not None]


WIDE = [Config({"A": a, "B": b}, f"A={a} B={b}") for a in range(64) for b in range(8)]


def test_known_results_guide_tpe() -> None:
    known = [Measurement(config, Outcome.OK, (10.0 + config["A"],)) for config in WIDE[::16]]
    _, proposed = _tpe(WIDE, known)
    assert sum(config["A"] < 16 for config in proposed) >= 8


def test_tpe_learns_from_failures() -> None:
    """The fastest that ran are at A = 31. Above, every config fails."""
    ran = [Measurement(config, Outcome.OK, (50.0 - config["A"],)) for config in WIDE if config["A"] < 32][::3]
    failed = [Measurement(config, Outcome.CRASHED) for config in WIDE if config["A"] >= 32][::3]
    above = [sum(config["A"] >= 32 for config in _tpe(WIDE, known)[1]) for known in (ran, [*ran, *failed])]
    assert above == [10, 0]


def test_tpe_sees_ranks() -> None:
    """Numbers are an order to it, whatever lies between them, and strings are not."""
    space = [Config({"A": a, "B": b}, f"A={a} B={b}") for a in (1, 2.5, 1000) for b in ("x", "y", "z", "w")]
    sampler, _ = _tpe(space, [])
    assert sampler.distributions["A"] == IntDistribution(0, 2)
    assert isinstance(sampler.distributions["B"], CategoricalDistribution)
