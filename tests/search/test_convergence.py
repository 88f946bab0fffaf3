"""The improvement probability: few results, results that contradict the model, and the time since an improvement."""

from __future__ import annotations

from math import inf, log

import pytest

from tuner.search.convergence import Convergence, ConvergenceSettings

SETTINGS = ConvergenceSettings(proposals=4, results=10)


def _after(results: int, *, probability: float, improvements: int = 0) -> Convergence:
    """Return the state after results that were each expected to be faster with the same probability.

    Args:
        improvements: number of the first results that are faster than all before.
    """
    convergence = Convergence(SETTINGS)
    convergence.tell(-1, 0.0)
    for config in range(results):
        convergence.propose(config, probability, probability)
        convergence.tell(config, -0.1 * (config + 1) if config < improvements else 1.0)
    return convergence


def test_it_is_one_until_there_are_enough_results_and_proposals() -> None:
    assert _after(8, probability=0.001).probability == 1.0
    assert _after(9, probability=0.001).probability < 1.0
    known = Convergence(SETTINGS)
    for config in range(20):
        known.tell(config, 0.0)
    assert known.probability == 1.0


def test_it_is_at_least_laplaces_estimate_of_another_improvement() -> None:
    """The model expects nothing, and 99 results after the first were no improvement."""
    assert _after(99, probability=0.0).probability == pytest.approx(1 / 100)


def test_a_model_that_expected_more_than_came_is_corrected_down() -> None:
    """It expected 0.1 * 99 = 9.9 improvements and saw none, so that a half becomes 0.5 / 10.9."""
    convergence = _after(99, probability=0.1)
    convergence.raise_last(0.5)
    assert convergence.probability == pytest.approx(0.5 / 10.9)


def test_a_model_that_was_too_sure_is_corrected_up() -> None:
    """It expected 0.001 * 199 improvements and saw 20."""
    assert _after(199, probability=0.001, improvements=20).probability == pytest.approx(0.021 / 1.2, rel=0.02)


def test_an_improvement_starts_again() -> None:
    convergence = _after(99, probability=0.0)
    convergence.propose(100, 0.0, 0.0)
    convergence.tell(100, -0.02)
    assert convergence.probability == 1.0


def test_less_than_one_per_cent_is_no_improvement() -> None:
    convergence = _after(98, probability=0.0)
    convergence.propose(100, 0.0, 0.0)
    convergence.tell(100, -log(1.009))
    assert convergence.probability == pytest.approx(1 / 100)


def test_a_search_in_which_nothing_ran_does_not_converge() -> None:
    convergence = Convergence(SETTINGS)
    for config in range(100):
        convergence.propose(config, 0.5, 0.5)
        convergence.tell(config, inf)
    assert convergence.probability == 1.0
