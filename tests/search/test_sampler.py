"""What the proposer promises whatever the sampler is."""

from __future__ import annotations

import pytest
from scripted import BEST, DEFAULT, SPACE, bowl

from tuner.kernels.spec import Config
from tuner.records import Measurement, Outcome
from tuner.search import SAMPLERS
from tuner.search.proposer import Proposer

SPARSE = [config for config in SPACE if (config["A"] * config["B"]) % 3 != 1 and config["num_warps"] != 2]
"""A third of the combinations, in no pattern that a knob could tell."""


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

    def test_a_batch_may_be_on_its_way(self, sampler: str) -> None:
        proposer = Proposer(SPARSE, sampler, seed=0)
        batch = [proposer.ask() for _ in range(8)]
        assert len(set(batch)) == 8
        for config in reversed(batch):
            assert config is not None
            proposer.tell(_ok(config))

    def test_failures_are_told_and_not_proposed_again(self, sampler: str) -> None:
        proposer = Proposer(SPARSE, sampler, seed=0)
        for _ in range(12):
            config = proposer.ask()
            assert config is not None
            proposer.tell(Measurement(config, Outcome.CRASHED))
            assert config not in proposer.unseen

    def test_a_config_can_be_taken_out_of_turn(self, sampler: str) -> None:
        proposer = Proposer(SPACE, sampler, seed=0)
        assert proposer.take(DEFAULT) == DEFAULT
        assert DEFAULT not in proposer.unseen
        proposer.tell(_ok(DEFAULT))

    def test_what_is_known_is_not_proposed(self, sampler: str) -> None:
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


@pytest.mark.parametrize("guided", ["gp", "tpe"])
def test_known_results_guide(guided: str) -> None:
    """Told that B = 3 is where it is fast, it proposes B = 3 more often than one time in four."""
    known = [_ok(config) for config in SPACE if config["num_warps"] == 1]
    proposer = Proposer(SPACE, guided, seed=0, known=known)
    proposed = [proposer.ask() for _ in range(8)]
    assert sum(config["B"] == 3 for config in proposed if config is not None) >= 4


def test_the_default_goes_straight_to_the_best_of_a_bowl() -> None:
    """Told half of the bowl, it names the best of all 60 at once."""
    known = [_ok(config) for config in SPACE[::2] if config != BEST]
    assert Proposer(SPACE, "gp", seed=0, known=known).ask() == BEST


def test_failures_are_learnt_from() -> None:
    """Every config with A > 4 crashes; the fastest of the others is B = 3, num_warps = 4."""
    known = [
        Measurement(config, Outcome.CRASHED) if config["A"] > 4 else _ok(config)
        for config in SPACE
        if config["num_warps"] < 4 and config["B"] < 4
    ]
    proposer = Proposer(SPACE, "gp", seed=0, known=known)
    proposed = [proposer.ask() for _ in range(6)]
    assert sum(config["A"] > 4 for config in proposed if config is not None) <= 2


def test_a_taken_config_is_learnt_from() -> None:
    """`take` asks the sampler for nothing, and what it took counts like any other."""
    proposers = [Proposer(SPACE, "gp", seed=0) for _ in range(2)]
    for proposer in proposers:
        for config in SPACE[::3]:
            proposer.take(config)
    for config in SPACE[::3]:
        proposers[0].tell(_ok(config))
        proposers[1].tell(Measurement(config, Outcome.OK, (200.0 - bowl(config) / 10,)))
    assert proposers[0].ask() != proposers[1].ask()
