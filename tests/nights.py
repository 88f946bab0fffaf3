"""Recorded spaces of one problem at two times, which play the nights before and after a change."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from tuner import recorded
from tuner.kernels.spec import Config
from tuner.recorded import RecordedSpace
from tuner.records import VENDOR, Comparison, Measurement, Outcome

NAME = "softmax-8192x8192-fp32-nvidia-h200"
Factor = Callable[[Config], float]


def held(config: Config) -> float:
    """Return 1: each latency is as it was."""
    return 1.0


@cache
def before(name: str = NAME) -> RecordedSpace:
    """Return a shipped space with the fastest and slowest of its configs, so that searches are quick."""
    space = recorded.load(name)
    ok = sorted((m for m in space.measurements if m.ok), key=lambda m: m.latency_us)
    kept = {m.config for m in (*ok[:12], *ok[-6:])} | {space.default}
    measurements = tuple(m for m in space.measurements if m.config in kept)
    names = [m.config.text for m in measurements if m.config.text in space.comparison.contenders]
    comparison = space.comparison.among([*names, VENDOR])
    comparison = Comparison(comparison.contenders, comparison.rounds[:20], comparison.states[:20])
    return replace(space, measurements=measurements, comparison=comparison)


def after(
    space: RecordedSpace,
    factor: Factor = held,
    *,
    vendor: float = 1.0,
    wrong: Sequence[Config] = (),
    changed: Mapping[str, str] | None = None,
) -> RecordedSpace:
    """Return a space with other latencies.

    Args:
        factor: of the latency of each config.
        vendor: factor of the vendor's latency.
        wrong: configs whose results are wrong.
        changed: another source, or other versions.
    """

    def measured(measurement: Measurement) -> Measurement:
        config = measurement.config
        if config in wrong:
            return Measurement(
                config, Outcome.WRONG_RESULT, stage="check", error="deviates", max_error=1.0, tolerance=0.1
            )
        return replace(measurement, samples=tuple(us * factor(config) for us in measurement.samples))

    by_text = {m.config.text: m.config for m in space.measurements}
    factors = [vendor if name == VENDOR else factor(by_text[name]) for name in space.comparison.contenders]
    rounds = tuple(tuple(us * by for us, by in zip(each, factors, strict=True)) for each in space.comparison.rounds)
    given = changed or {}
    versions = {name: value for name, value in given.items() if hasattr(space.environment, name)}
    return replace(
        space,
        measurements=tuple(map(measured, space.measurements)),
        comparison=replace(space.comparison, rounds=rounds),
        environment=replace(space.environment, **versions),
        source=given.get("source", space.source),
    )


def written(space: RecordedSpace, folder: Path) -> str:
    """Write a space to a file and return its path, by which it is replayed."""
    file = folder / f"{len([*folder.iterdir()])}.json.gz"
    file.write_bytes(recorded.dumps(space))
    return str(file)


def only_slower(
    space: RecordedSpace, config: Config, factor: float, changed: Mapping[str, str] | None = None
) -> RecordedSpace:
    """Return a space in which one config is slower."""
    return after(space, lambda other: factor if other == config else 1.0, changed=changed)


def noisy(space: RecordedSpace, dice: random.Random, noise: float = 0.01, night: float = 0.01) -> RecordedSpace:
    """Return a space with noise in each sample, and each config off by a factor for the whole night."""
    factors = {m.config: dice.gauss(1, night) for m in space.measurements}
    moved = after(space, lambda config: factors[config])
    measurements = tuple(
        replace(m, samples=tuple(us * dice.gauss(1, noise) for us in m.samples)) for m in moved.measurements
    )
    rounds = tuple(tuple(us * dice.gauss(1, noise) for us in each) for each in moved.comparison.rounds)
    return replace(moved, measurements=measurements, comparison=replace(moved.comparison, rounds=rounds))


def near_ties(space: RecordedSpace) -> RecordedSpace:
    """Return a space in which the best dozen of configs are within 1 % of each other."""
    ok = sorted((m for m in space.measurements if m.ok), key=lambda m: m.latency_us)
    level = {m.config: ok[0].latency_us * (1 + 0.001 * place) / m.latency_us for place, m in enumerate(ok[:12])}
    return after(space, lambda config: level.get(config, 1.0))
