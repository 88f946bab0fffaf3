"""Readings of an answer by formula and seed, for tests of causes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from helpers import H200

from tuner.kernels.spec import Config, Dim, Knob, Signature
from tuner.records import COLD, VENDOR, Comparison, Environment, Provenance
from tuner.records.retune import Reading
from tuner.retuning.reading import reading_of

KNOBS = Signature(
    "toy", (Dim("N"),), ("fp32",), (Knob("A", (1, 2, 3)), Knob("num_warps", (4,)), Knob("num_stages", (1,)))
)
CONFIGS = {
    name: KNOBS.config({"A": a, "num_warps": 4, "num_stages": 1})
    for name, a in (("answer", 1), ("default", 2), ("runner-up", 3))
}
THEN = Provenance(H200, Environment("3.6.0", "12.8", "2.11.0", "580.1"), "9f2c", COLD.text, definition="4d2c")
LATENCIES = {"answer": 100.0, "default": 130.0, "runner-up": 102.0, VENDOR: 110.0}


def changed(**fields: str) -> Provenance:
    """Return the provenance with other versions, or another source or policy."""
    versions = {name: value for name, value in fields.items() if hasattr(THEN.environment, name)}
    others = {name: value for name, value in fields.items() if name not in versions}
    changed = replace(THEN, environment=replace(THEN.environment, **versions))
    source, policy = others.get("source", THEN.source), others.get("policy", THEN.policy)
    return replace(changed, source=source, policy=policy)


def rounds_of(
    latencies: Mapping[str, float], rounds: int = 20, noise: float = 0.0, dice: random.Random | None = None
) -> Comparison:
    """Return rounds of these contenders, each latency with normal noise."""
    dice = dice or random.Random(0)
    names = tuple(name if name == VENDOR else CONFIGS[name].text for name in latencies)
    once = (tuple(us * (1 + dice.gauss(0, noise)) for us in latencies.values()) for _ in range(rounds))
    return Comparison(names, tuple(once))


def reading(
    factors: Mapping[str, float] | float = 1.0,
    provenance: Provenance = THEN,
    *,
    rounds: int = 20,
    noise: float = 0.0,
    dice: random.Random | None = None,
    without: tuple[str, ...] = (),
    vendor: str = "",
) -> Reading:
    """Return a reading in which each contender takes its usual latency times a factor."""
    by = factors if isinstance(factors, Mapping) else dict.fromkeys(LATENCIES, factors)
    latencies = {name: us * by.get(name, 1.0) for name, us in LATENCIES.items() if name not in without}
    comparison = rounds_of(latencies, rounds, noise, dice)
    roles: dict[str, Config] = {
        name: config for name, config in CONFIGS.items() if name in latencies and name != "answer"
    }
    return reading_of(comparison, CONFIGS["answer"], roles, provenance, "2026-11-29T01:00:00Z", vendor)
