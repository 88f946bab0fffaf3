"""The measurer that replays a recorded space."""

from __future__ import annotations

from shipped_spaces import shipped

from tuner import recorded
from tuner.records import VENDOR


def _some(name: str) -> recorded.RecordedSpace:
    return shipped(next(found for found in recorded.names() if found.startswith(name)))


def test_rounds_are_returned_in_order_and_once() -> None:
    space = _some("softmax")
    measurer = recorded.RecordedMeasurer(space)
    first = measurer.compare([space.best], 5, 1.0, seed=0)
    second = measurer.compare([space.best], 5, 1.0, seed=0)
    assert first.contenders == (space.best.text, VENDOR)
    assert first.of(space.best.text) + second.of(space.best.text) == space.comparison.of(space.best.text)[:10]
    assert measurer.compare([space.best], 1000, 1.0, seed=0).of(VENDOR) == space.comparison.of(VENDOR)[10:]
    assert measurer.compare([space.best], 5, 1.0, seed=0).rounds == ()


def test_a_config_outside_the_comparison_contributes_its_own_samples() -> None:
    space = _some("transpose")
    outside = max((m for m in space.measurements if m.ok), key=lambda m: m.latency_us)
    assert outside.config.text not in space.comparison.contenders
    comparison = recorded.RecordedMeasurer(space).compare([space.best, outside.config], 5, 1.0, seed=0)
    assert comparison.of(outside.config.text) == outside.samples[:5]
