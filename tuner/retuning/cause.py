"""The cause of a difference between two readings of one answer. Pure statistics: no clock, no device, no store.

Ratios within rounds are compared, since drift of the card cancels in them. Latencies only tell the machine from the
code: if the partner of the ratio, the vendor or else the default, changed as much, the machine did.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from statistics import stdev

from tuner.records import VENDOR, VENDOR_NAME
from tuner.records.readings import (
    is_code_same,
    is_in_both,
    is_vendor_compiled_alike,
    is_vendor_same,
    quotient,
    role_factor,
    widened,
)
from tuner.records.retune import DEFAULT, RUNNER_UP, Cause, Contender, Reading
from tuner.report.text import ratio_text, times, us_text
from tuner.retuning.settings import SETTINGS, RetuneSettings

_PARTNERS = (VENDOR, DEFAULT, RUNNER_UP)
"""Roles whose ratio to the answer is compared, the most independent of the kernel first."""
_FEWEST = 3
"""Fewest readings whose spread is known."""


@dataclass(frozen=True)
class Judgement:
    """The cause of a difference, with the figures that decided."""

    cause: Cause
    text: str
    """One sentence."""
    ahead: str | None = None
    """Role of the config that is ahead with confidence, the fastest; None if none is."""
    is_moved: bool = False
    """True if the config moved against its partner, or another is ahead."""


@dataclass(frozen=True)
class _Move:
    """The changes of an answer's config and of its partner between two readings."""

    role: str
    then: Contender
    now: Contender
    own: float
    """The config's latency now over that then."""
    partner: float
    """The partner's latency now over that then."""

    def direction(self, least: float, spread: float) -> int:
        """Return -1 if the config lost against the partner by more than `least` with confidence, 1 if it gained.

        The change has an interval of its own. Two whole intervals that lie apart would ask for more.

        Args:
            spread: standard deviation of the logarithm of a ratio between processes that run the same code.
        """
        change = quotient((self.now.ratio, self.now.interval), (self.then.ratio, self.then.interval))
        lowest, highest = widened(*change, spread)
        return -1 if highest * (1 + least) < 1 else 1 if lowest > 1 + least else 0

    def text(self, name: str) -> str:
        """Return `1.020 x torch (1.010 - 1.030), was 1.100 (1.090 - 1.110)`."""
        was = ratio_text(self.then.ratio, self.then.interval)
        return f"{ratio_text(self.now.ratio, self.now.interval, times(name))}, was {was}"


def cause_of(
    then: Reading | None,
    now: Reading,
    *,
    settings: RetuneSettings = SETTINGS,
    machine: float | None = None,
    vendor: str = VENDOR_NAME,
) -> Judgement:
    """Return the cause of the difference between two readings.

    Args:
        then: None if the rounds of the answer are not stored; then only the order counts.
        machine: Median over other problems of the latency now over that then; None if it is not known.
        vendor: Name of the vendor's implementation.
    """
    ahead = role_ahead(then, now, settings.ahead)
    judged = _compared(then, now, settings, machine, vendor)
    if ahead is None:
        return judged
    leader = now.contenders[ahead]
    order = f"{ahead} takes {ratio_text(leader.ratio, leader.interval)} of the answer's time"
    if judged.cause is Cause.SLOWER_CODE:
        return Judgement(judged.cause, f"{judged.text}; {order}", ahead, is_moved=True)
    return Judgement(Cause.ORDER, order, ahead, is_moved=True)


def role_ahead(then: Reading | None, now: Reading, least: float = SETTINGS.ahead) -> str | None:
    """Return the role of the fastest config that leads the answer's by more than `least` with confidence, or None.

    If nothing changed since, both readings count alike: the geometric mean of the ratios must show the lead too. The
    noise of one night thus moves no order.
    """
    leads = {
        role: each.ratio
        for role, each in now.contenders.items()
        if each.config is not None and each.interval[1] < _bound(role, then, now, least)
    }
    return min(leads, key=lambda role: leads[role], default=None)


def _bound(role: str, then: Reading | None, now: Reading, least: float) -> float:
    """Return the ratio to the answer's latency below which a config leads."""
    bound = 1 / (1 + least)
    if then is None or not is_same(then, now) or not is_in_both(role, then, now):
        return bound
    return min(bound, bound**2 / then.contenders[role].ratio)


def is_decided(then: Reading | None, now: Reading, settings: RetuneSettings = SETTINGS) -> bool:
    """Return whether more rounds would hardly change the cause.

    Each other config must be shown to lead by more than 1 %, or not to. The ratio to the partner must be shown to have
    moved, or its interval must lie within the bounds of one that did not.
    """
    for role, each in now.contenders.items():
        bound = _bound(role, then, now, settings.ahead)
        if each.config is not None and each.interval[0] < bound <= each.interval[1]:
            return False
    move = None if then is None or _policy(then) != _policy(now) else _move(then, now)
    if move is None or then is None:
        return True
    least = _least(then, now, settings)
    low, high = move.then.interval[0] / (1 + least), move.then.interval[1] * (1 + least)
    within = low <= move.now.interval[0] and move.now.interval[1] <= high
    return within or move.direction(least, settings.spread) != 0


@dataclass(frozen=True)
class _Difference:
    """Two readings of an answer by one policy, and what decides on the cause of their difference."""

    then: Reading
    now: Reading
    settings: RetuneSettings
    machine: float | None
    vendor: str

    def judged(self) -> Judgement:
        """Return the cause."""
        move = _move(self.then, self.now)
        if move is None:
            return self._alone()
        name = self.vendor if move.role == VENDOR else move.role
        direction = move.direction(_least(self.then, self.now, self.settings), self.settings.spread)
        return self._moved(direction, move, name) if direction else self._alike(move, name)

    def _moved(self, direction: int, move: _Move, name: str) -> Judgement:
        """Return the cause of a ratio that moved: the config's code, unless the partner is the one that changed."""
        if not self._config_moved(direction, move):
            held = f"{name} takes {move.partner:.3f} x its stored latency, and that of the config is unchanged"
            return Judgement(Cause.UNCHANGED, f"{move.text(name)}; {held}")
        if not is_code_same(self.then, self.now):
            cause = Cause.SLOWER_CODE if direction < 0 else Cause.FASTER_CODE
            return Judgement(cause, move.text(name), is_moved=True)
        cause = Cause.SLOWER_MACHINE if direction < 0 else Cause.FASTER_MACHINE
        same = "source, Triton and ptxas are the same, so the code is not the cause"
        return Judgement(cause, f"{move.text(name)}; {same}", is_moved=True)

    def _config_moved(self, direction: int, move: _Move) -> bool:
        """Return whether the config moved, rather than its partner.

        The config moved if it is slower by itself, relative to the machine, and lost, or faster and gained. If the
        machine is not known, a vendor whose code is the same and whose latency held says so too. But if the default
        changed as much as the vendor, while the config did not, the machine changed, and the config alone lost or
        gained.
        """
        then, now, settings = self.then, self.now, self.settings
        own = move.own / (self.machine or 1.0)
        if (own - 1) * -direction > settings.moved:
            return True
        if self.machine is not None or move.role != VENDOR:
            return False
        if is_vendor_same(then, now) and abs(log(move.partner)) <= log(1 + settings.machine):
            return True
        if not is_in_both(DEFAULT, then, now):
            return False
        default = role_factor(DEFAULT, then, now)
        return abs(log(default / move.partner)) < abs(log(default / move.own))

    def _alike(self, move: _Move, name: str) -> Judgement:
        """Return the cause if the ratio held: the machine, or the code of both, if both latencies moved alike."""
        least, own, partner = log(1 + self.settings.machine), log(move.own), log(move.partner)
        if min(abs(own), abs(partner)) <= least or own * partner < 0:
            return Judgement(Cause.UNCHANGED, move.text(name))
        text = f"{_change(self.then, self.now)}, and {name} changed alike; {move.text(name)}"
        has_vendor = move.role == VENDOR and is_vendor_compiled_alike(self.then, self.now)
        return self._machine_or_code(text, has_vendor=has_vendor)

    def _alone(self) -> Judgement:
        """Return the cause if nothing else was timed both then and now."""
        then, now = self.then, self.now
        apart = now.interval_us[0] > then.interval_us[1] or now.interval_us[1] < then.interval_us[0]
        text = f"{_change(then, now)}; no other contender was timed both times"
        if abs(log(now.latency_us / then.latency_us)) <= log(1 + self.settings.machine) or not apart:
            return Judgement(Cause.UNCHANGED, text)
        return self._machine_or_code(text)

    def _machine_or_code(self, text: str, *, has_vendor: bool = False) -> Judgement:
        """Return the cause of a latency that changed with all others.

        It is the code if that changed, unless the vendor or the other problems changed as much.
        """
        own = log(self.now.latency_us / self.then.latency_us)
        by_machine = self.machine is not None and abs(own - log(self.machine)) <= log(1 + self.settings.machine)
        if has_vendor or by_machine or is_code_same(self.then, self.now):
            return Judgement(Cause.SLOWER_MACHINE if own > 0 else Cause.FASTER_MACHINE, text)
        return Judgement(Cause.SLOWER_CODE if own > 0 else Cause.FASTER_CODE, text)


def _compared(
    then: Reading | None, now: Reading, settings: RetuneSettings, machine: float | None, vendor: str
) -> Judgement:
    """Return the cause by both readings, without the order."""
    if then is None:
        return Judgement(Cause.UNCHANGED, f"{us_text(now.latency_us)}; there are no stored rounds to compare with")
    if _policy(then) != _policy(now):
        return Judgement(Cause.METHOD, f"timed by {_policy(then)}, now by {_policy(now)}; latencies are not compared")
    return _Difference(then, now, settings, machine, vendor).judged()


def _move(then: Reading, now: Reading) -> _Move | None:
    """Return how the config and its partner moved; None if no partner was timed both times."""
    role = next((role for role in _PARTNERS if is_in_both(role, then, now)), None)
    if role is None:
        return None
    before, after = then.contenders[role], now.contenders[role]
    return _Move(role, before, after, now.latency_us / then.latency_us, role_factor(role, then, now))


def _least(then: Reading, now: Reading, settings: RetuneSettings) -> float:
    """Return the change of a ratio beyond which it moved."""
    return max(settings.moved, settings.machine) if is_same(then, now) else settings.moved


def spread_of(readings: Sequence[Reading]) -> float:
    """Return the standard deviation of the logarithm of an answer's ratio to its partner; 0 of fewer than three.

    Args:
        readings: of the same code, in several processes.
    """
    common = (role for role in _PARTNERS if all(is_in_both(role, readings[0], each) for each in readings))
    role = next(common, None) if len(readings) >= _FEWEST else None
    return 0.0 if role is None else stdev(log(each.contenders[role].ratio) for each in readings)


def is_same(then: Reading, now: Reading) -> bool:
    """Return whether source, environment and policy are as they were, so that only noise and the machine differ."""
    before, after = then.provenance, now.provenance
    return (before.source, before.environment, before.policy) == (after.source, after.environment, after.policy)


def _policy(reading: Reading) -> str:
    return reading.provenance.policy


def _change(then: Reading, now: Reading) -> str:
    return f"{us_text(now.latency_us)}, was {us_text(then.latency_us)} ({now.latency_us / then.latency_us:.3f} x)"
