"""Outlook of an answer by its kernel's estimate: the best latency that seems possible, and what limits the answer."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scripted import SPACE, bowl

from tuner.kernels.spec import Config, Cost
from tuner.records import Measurement, Outcome
from tuner.report.outlook import outlook

TRUTH = {config: float(nth + 10) for nth, config in enumerate(sorted(SPACE, key=bowl))}
BEST, SECOND = sorted(TRUTH, key=TRUTH.__getitem__)[:2]


def cost(config: Config) -> Cost:
    """Return an estimate that is twice the truth."""
    return Cost(2 * TRUTH[config], {"products": 2 * TRUTH[config], "memory": 4.0})


def measured(config: Config) -> Measurement:
    return Measurement(config, Outcome.OK, (TRUTH[config],) * 5)


SOME = [measured(config) for config in sorted(TRUTH, key=TRUTH.__getitem__)[1:12]]


def test_an_untried_config_that_is_expected_to_be_faster_is_named() -> None:
    found = outlook(SECOND, TRUTH[SECOND], SOME, SPACE, cost)
    assert found is not None
    assert found.config == BEST
    assert found.best_us == pytest.approx(TRUTH[BEST])
    assert found.share == pytest.approx(TRUTH[BEST] / TRUTH[SECOND])
    assert found.parts == pytest.approx({"products": TRUTH[SECOND], "memory": 2.0})


def test_the_best_has_nothing_above_it() -> None:
    found = outlook(BEST, TRUTH[BEST], [measured(BEST), *SOME], SPACE, cost)
    assert found is not None
    assert (found.config, found.share, found.best_us) == (None, 1.0, TRUTH[BEST])


def test_products_at_the_power_cap_are_held_back_by_power() -> None:
    limits = [outlook(BEST, TRUTH[BEST], SOME, SPACE, cost, power_capped=capped) for capped in (False, True)]
    assert [found and found.limit for found in limits] == ["products", "power"]

    def waiting(config: Config) -> Cost:
        return replace(cost(config), parts={"memory": 1.0})

    found = outlook(BEST, TRUTH[BEST], SOME, SPACE, waiting, power_capped=True)
    assert found is not None
    assert found.limit == "memory"


def test_few_measurements_say_nothing() -> None:
    assert outlook(SECOND, TRUTH[SECOND], SOME[:7], SPACE, cost) is None
