"""Interleaved rounds: contenders timed in turn, in a new random order each round, while the card is monitored."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import monotonic, sleep

from tuner.measure.card import CardMonitor
from tuner.measure.messages import Rounds
from tuner.records import CardState, Comparison


@dataclass(frozen=True)
class RoundsSettings:
    """Monitoring of the card during interleaved rounds."""

    monitor_interval_s: float = 0.1
    """Time between two readings of the card's state, in s. Source: a reading takes 1.5 to 6 ms (H200)."""
    retries: int = 10
    """Number of times disturbed rounds of a request are discarded and timed again. Source: chosen."""
    pause_s: float = 0.2
    """Pause after discarded rounds, in s. Source: chosen."""


ROUNDS_SETTINGS = RoundsSettings()


def interleave(
    contenders: Sequence[str],
    latency_us: Callable[[str], float],
    request: Rounds,
    end: float,
    monitor: CardMonitor,
    settings: RoundsSettings = ROUNDS_SETTINGS,
) -> Comparison:
    """Time each contender once a round, until there are enough rounds or time is up; at least one round.

    Rounds during which other processes used the card, or its clocks were throttled, are discarded and timed again, up
    to `retries` times. Further ones are kept, with the card state that marks them.

    Args:
        latency_us: times one contender, in us.
        end: time of `monotonic()` after which no round begins.
    """
    order = random.Random(request.seed)
    rounds: list[tuple[float, ...]] = []
    pending: list[tuple[float, ...]] = []
    states: list[CardState] = []
    retries, last_reading = settings.retries, monotonic()
    while len(rounds) < request.rounds and (not rounds or monotonic() < end):
        latencies = {name: latency_us(name) for name in order.sample(contenders, len(contenders))}
        pending.append(tuple(latencies[name] for name in contenders))
        now = monotonic()
        next_reading = min(end, last_reading + settings.monitor_interval_s)
        if now < next_reading and len(rounds) + len(pending) < request.rounds:
            continue
        state, last_reading = monitor.state(), now
        if state is not None and state.marks and retries:
            retries -= 1
            sleep(settings.pause_s)
        else:
            rounds += pending
            states += [state] * len(pending) if state is not None else []
        pending.clear()
    return Comparison(tuple(contenders), tuple(rounds), tuple(states))
