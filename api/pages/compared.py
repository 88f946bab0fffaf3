"""Two sides of a comparison, problem by problem: latencies, ratios and configs. Pure functions over stored values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from statistics import geometric_mean

from tuner.kernels.spec import Config, Problem
from tuner.lookup.ranking import serving
from tuner.records import Interval, StoredAnswer
from tuner.records.readings import quotient
from tuner.records.retune import Action, Finding, Retune
from tuner.search.verdict import VERDICT


class Verdict(StrEnum):
    """The right side of a problem, compared with the left one."""

    FASTER = "faster"
    SLOWER = "slower"
    SAME = "same"
    """Not shown to differ by more than 1 %."""
    UNKNOWN = "not comparable"
    """One was never timed, or by another policy."""
    ONLY_LEFT = "only left"
    ONLY_RIGHT = "only right"


@dataclass(frozen=True)
class Entry:
    """One problem on one side."""

    problem: Problem
    config: Config
    latency_us: float | None
    interval_us: Interval | None
    policy: str
    """Text of the policy that it was timed with."""


@dataclass(frozen=True)
class Pair:
    """One problem on both sides, or on one of them."""

    left: Entry | None
    right: Entry | None
    ratio: float | None
    """Latency on the left over that on the right: above 1, the right is faster."""
    interval: Interval | None
    verdict: Verdict

    @property
    def problem(self) -> Problem:
        entry = self.right or self.left
        assert entry is not None
        return entry.problem

    @property
    def is_moved(self) -> bool:
        """True if both sides have a config, and not the same."""
        return self.left is not None and self.right is not None and self.left.config.text != self.right.config.text

    @property
    def left_us(self) -> float | None:
        return None if self.left is None else self.left.latency_us

    @property
    def right_us(self) -> float | None:
        return None if self.right is None else self.right.latency_us

    @property
    def moved(self) -> tuple[str, ...]:
        """Knobs that differ, as `BLOCK_M 64, then 128`."""
        if self.left is None or self.right is None:
            return ()
        before, after = dict(self.left.config), dict(self.right.config)
        names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
        return tuple(f"{name} {before.get(name, 'unset')}, then {after.get(name, 'unset')}" for name in names)


def entries_of(answers: Iterable[StoredAnswer], triton: str | None = None) -> dict[str, Entry]:
    """Return the answer that serves each problem, by its text.

    Args:
        triton: Only answers that were found with this version of Triton.
    """
    several: dict[str, list[StoredAnswer]] = {}
    for stored in answers:
        if triton in (None, stored.provenance.environment.triton):
            several.setdefault(stored.answer.problem.text, []).append(stored)
    return {text: _entry(found[0] if len(found) == 1 else serving(found, triton)) for text, found in several.items()}


def _entry(stored: StoredAnswer) -> Entry:
    answer = stored.answer
    return Entry(answer.problem, answer.config, answer.latency_us, answer.interval_us, stored.provenance.policy)


def entries_of_night(retune: Retune, op: str) -> dict[str, Entry]:
    """Return what a retune measured of an op, by the text of the problem; for a replaced answer, the new config."""
    measured = [finding for finding in retune.findings if finding.problem.op == op and finding.now is not None]
    return {finding.problem.text: _measured(finding) for finding in measured}


def _measured(finding: Finding) -> Entry:
    now = finding.now
    assert now is not None
    policy, config = now.provenance.policy, finding.config
    latency_us, interval_us = now.latency_us, now.interval_us
    if finding.action is Action.REPLACED and finding.new_config is not None and finding.gain:
        config, gain = finding.new_config, finding.gain
        latency_us, interval_us = quotient((latency_us, interval_us), (gain, finding.gain_interval or (gain, gain)))
    return Entry(finding.problem, config, latency_us, interval_us, policy)


def pairs_of(left: Mapping[str, Entry], right: Mapping[str, Entry]) -> list[Pair]:
    """Return the problems of both sides, each with its ratio."""
    return [_pair(left.get(text), right.get(text)) for text in {**left, **right}]


def _pair(left: Entry | None, right: Entry | None) -> Pair:
    if left is None or right is None:
        return Pair(left, right, None, None, Verdict.ONLY_LEFT if right is None else Verdict.ONLY_RIGHT)
    if left.policy != right.policy or not left.latency_us or not right.latency_us:
        return Pair(left, right, None, None, Verdict.UNKNOWN)
    if not (_is_sound(left) and _is_sound(right)):
        ratio = left.latency_us / right.latency_us
        return Pair(left, right, ratio, None, verdict_of(ratio, None))
    assert left.interval_us is not None
    assert right.interval_us is not None
    ratio, interval = quotient((left.latency_us, left.interval_us), (right.latency_us, right.interval_us))
    return Pair(left, right, ratio, interval, verdict_of(ratio, interval))


def _is_sound(entry: Entry) -> bool:
    """Return whether the interval of a latency is there and holds it."""
    if entry.interval_us is None or entry.latency_us is None:
        return False
    low, high = entry.interval_us
    return 0 < low <= entry.latency_us <= high and isfinite(high)


def verdict_of(ratio: float, interval: Interval | None) -> Verdict:
    """Return how a ratio is to be read: a difference is more than 1 %, and its interval is on one side of 1."""
    low, high = interval or (ratio, ratio)
    if ratio > VERDICT.equivalent and low > 1:
        return Verdict.FASTER
    return Verdict.SLOWER if ratio < 1 / VERDICT.equivalent and high < 1 else Verdict.SAME


@dataclass(frozen=True)
class Summary:
    """The pairs in numbers."""

    counts: Mapping[Verdict, int]
    moved: int
    """Number of problems whose configs differ."""
    mean: float | None
    """Geometric mean of the ratios; None if there are none."""

    @property
    def faster(self) -> int:
        return self.counts.get(Verdict.FASTER, 0)

    @property
    def slower(self) -> int:
        return self.counts.get(Verdict.SLOWER, 0)

    @property
    def compared(self) -> int:
        """Number of problems with a ratio."""
        return self.faster + self.slower + self.counts.get(Verdict.SAME, 0)

    @property
    def only_left(self) -> int:
        return self.counts.get(Verdict.ONLY_LEFT, 0)

    @property
    def only_right(self) -> int:
        return self.counts.get(Verdict.ONLY_RIGHT, 0)

    @staticmethod
    def of(pairs: Sequence[Pair]) -> Summary:
        """Return the summary of these pairs."""
        ratios = [pair.ratio for pair in pairs if pair.ratio is not None]
        counts = Counter(pair.verdict for pair in pairs)
        return Summary(counts, sum(pair.is_moved for pair in pairs), geometric_mean(ratios) if ratios else None)
