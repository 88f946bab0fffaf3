"""An answer in two environments: the values, and the judgement of their rounds. No clock and no device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tuner.kernels.spec import Config, Problem
from tuner.records import VENDOR, VERSION_NAMES, Comparison, Environment, Interval, median
from tuner.report.text import ratio_text
from tuner.search.verdict import VERDICT, interval_of_median, ratio


class Change(StrEnum):
    """Effect of another environment on an answer."""

    SAME = "same"
    """Within 1 %, or no difference is shown."""
    FASTER = "faster"
    SLOWER = "slower"
    BROKEN = "broken"
    """Its config does not compile, crashes or is wrong in the other environment."""
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Side:
    """An answer's config in one environment."""

    latency_us: float
    interval_us: Interval
    vendor_us: float | None
    """Latency of the vendor's implementation; None if it was not timed."""
    ahead: Config | None = None
    """Another stored contender that is ahead there with confidence, by more than 1 %."""
    ahead_by: float | None = None
    """Its speed over that of the answer's config."""


@dataclass(frozen=True)
class Compared:
    """An answer in two environments."""

    problem: Problem
    answer_id: int
    config: Config
    change: Change
    text: str
    """One sentence, for people."""
    here: Side | None = None
    there: Side | None = None
    ratio: float | None = None
    """Latency there over latency here, turn by turn: 1.05 is 5 % slower there."""
    interval: Interval | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the document of the comparison."""

        def side(given: Side | None) -> dict[str, Any] | None:
            return None if given is None else {**asdict(given), "ahead": given.ahead and dict(given.ahead)}

        return {
            "op": self.problem.op,
            "problem": self.problem.values,
            "answer_id": self.answer_id,
            "config": dict(self.config),
            "change": str(self.change),
            "text": self.text,
            "here": side(self.here),
            "there": side(self.there),
            "ratio": self.ratio,
            "interval": self.interval,
        }


def across(here: Comparison, there: Comparison, contender: str) -> tuple[float, Interval]:
    """Return the latency of a contender there over its latency here, round by round, and the interval."""
    count = min(len(here.rounds), len(there.rounds))
    pairs = zip(there.of(contender)[:count], here.of(contender)[:count], strict=True)
    return ratio(Comparison(("there", "here"), tuple(pairs)), "there", "here")


def judge(
    problem: Problem,
    answer_id: int,
    config: Config,
    configs: Sequence[Sequence[Config]],
    rounds: tuple[Comparison, Comparison],
) -> Compared:
    """Return what the rounds of two environments say about an answer.

    Args:
        config: the answer's.
        configs: the contenders of each environment besides the vendor.
        rounds: those of this environment, and of the other one.
    """
    here, there = (_side(config, each, found) for each, found in zip(configs, rounds, strict=True))
    found, interval = across(*rounds, config.text)
    change = Change.SAME
    if interval[0] > VERDICT.equivalent:
        change = Change.SLOWER
    elif interval[1] < 1 / VERDICT.equivalent:
        change = Change.FASTER
    text = ratio_text(found, interval, "x its latency here")
    if there.ahead is not None and here.ahead is None:
        text += f"; another config is {there.ahead_by:.3f} x as fast there: {there.ahead.text}"
    return Compared(problem, answer_id, config, change, text, here, there, found, interval)


def _side(own: Config, configs: Sequence[Config], rounds: Comparison) -> Side:
    latencies = rounds.of(own.text)
    vendor = median(rounds.of(VENDOR)) if VENDOR in rounds.contenders else None
    ahead: dict[Config, float] = {}
    for config in configs:
        speed, interval = ratio(rounds, own.text, config.text)
        if interval[0] > VERDICT.equivalent:
            ahead[config] = speed
    best = max(ahead, key=lambda config: ahead[config], default=None)
    return Side(median(latencies), interval_of_median(latencies), vendor, best, None if best is None else ahead[best])


def environments_text(here: Environment, there: Environment) -> str:
    """Return the versions in which two environments differ, such as `Triton 3.6.0 and 3.7.1`; empty if in none."""
    parts = [
        f"{shown} {getattr(here, name) or 'unknown'} and {getattr(there, name) or 'unknown'}"
        for name, shown in VERSION_NAMES.items()
        if getattr(here, name) != getattr(there, name)
    ]
    return ", ".join(parts)
