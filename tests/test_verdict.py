"""From rounds to an answer, on scripted rounds."""

from __future__ import annotations

import random

import pytest
from scripted import BEST, DEFAULT, SPACE

from tuner.kernels.spec import Config
from tuner.records import VENDOR, Duel
from tuner.verdict import Verdict, decide, interval_of_median

OTHER = SPACE[7]


def rounds(latencies: dict[Config, float], *, noise: float = 0.0, count: int = 30, seed: int = 0) -> Duel:
    draw = random.Random(seed)
    contenders = (*(config.text for config in latencies), VENDOR)
    true = (*latencies.values(), 120.0)
    return Duel(
        contenders, tuple(tuple(value * (1 + noise * draw.gauss(0, 1)) for value in true) for _ in range(count))
    )


def verdict_of(latencies: dict[Config, float], *, default: Config | None = DEFAULT, noise: float = 0.0) -> Verdict:
    return decide(rounds(latencies, noise=noise), list(latencies), default, dict.fromkeys(latencies, 1024))


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(1, 1, 1), (2, 1, 2), (5, 1, 5), (6, 1, 6), (9, 2, 8), (10, 2, 9), (20, 6, 15), (30, 10, 21), (60, 22, 39)],
)
def test_the_interval_of_a_median_is_the_tables(count: int, low: int, high: int) -> None:
    """Ranks of the 95 % sign-test interval, as statistics books tabulate them."""
    assert interval_of_median(list(range(count, 0, -1))) == (low, high)


def test_the_interval_covers_as_often_as_it_says() -> None:
    draw = random.Random(0)
    covered = 0
    for _ in range(2000):
        low, high = interval_of_median([draw.gauss(0, 1) for _ in range(25)])
        covered += low <= 0 <= high
    assert covered / 2000 >= 0.95 - 0.01


def test_the_fastest_wins_and_the_numbers_are_the_rounds() -> None:
    verdict = verdict_of({BEST: 100.0, OTHER: 110.0, DEFAULT: 125.0})
    assert verdict.config == BEST
    assert verdict.kind == "tuned"
    assert verdict.latency_us == 100
    assert verdict.interval_us == (100, 100)
    assert verdict.speedup == 1.25
    assert verdict.speedup_interval == (1.25, 1.25)
    assert verdict.default_latency_us == 125
    assert verdict.vendor_latency_us == 120
    assert verdict.ties == ()
    assert not verdict.unresolved


@pytest.mark.parametrize(("default_us", "kind"), [(100.9, "default"), (101.1, "tuned"), (99.0, "default")])
def test_d13_the_default_wins_unless_beaten_by_more_than_one_percent(default_us: float, kind: str) -> None:
    verdict = verdict_of({BEST: 100.0, DEFAULT: default_us})
    assert verdict.kind == kind
    if kind == "default":
        assert verdict.config == DEFAULT
        assert verdict.speedup == 1


def test_without_a_default_the_fastest_wins() -> None:
    verdict = verdict_of({BEST: 100.0, OTHER: 100.5}, default=None)
    assert verdict.config in (BEST, OTHER)
    assert verdict.speedup is None
    assert verdict.speedup_interval is None
    assert verdict.default_latency_us is None


def test_d09_among_equivalents_a_fixed_rule_decides() -> None:
    """0.3 % apart: the one with less shared memory, then the first by text, whoever was measured faster."""
    latencies = {BEST: 100.0, OTHER: 100.3, DEFAULT: 150.0}
    less = decide(rounds(latencies), list(latencies), DEFAULT, {BEST: 4096, OTHER: 1024})
    assert less.config == OTHER
    same = decide(rounds(latencies), list(latencies), DEFAULT, {BEST: 1024, OTHER: 1024})
    assert same.config == min(BEST, OTHER, key=lambda config: config.text)
    assert [tie.config for tie in less.ties] == [BEST]
    assert less.ties[0].slowdown == pytest.approx(100 / 100.3)


def test_what_is_not_separated_is_a_tie_and_may_be_unresolved() -> None:
    latencies = {BEST: 100.0, OTHER: 100.5, DEFAULT: 150.0}
    noisy = decide(rounds(latencies, noise=0.05), list(latencies), DEFAULT, {})
    assert len(noisy.ties) == 1
    assert noisy.unresolved
    calm = decide(rounds(latencies, noise=0.0005), list(latencies), DEFAULT, {})
    assert not calm.unresolved


def test_d05_drift_meets_all_alike() -> None:
    """Clocks that fall by 15 % during the duel move every contender, and no ratio."""
    steady = rounds({BEST: 100.0, OTHER: 102.0, DEFAULT: 110.0})
    drifting = Duel(
        steady.contenders,
        tuple(
            tuple(value * (1 + 0.15 * number / 29) for value in latencies)
            for number, latencies in enumerate(steady.rounds)
        ),
    )
    verdict = decide(drifting, [BEST, OTHER, DEFAULT], DEFAULT, {})
    assert verdict.config == BEST
    assert verdict.speedup == pytest.approx(1.1)
    assert verdict.speedup_interval == pytest.approx((1.1, 1.1))
