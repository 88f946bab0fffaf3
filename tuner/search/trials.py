"""The measurements of a running search."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tuner.records import Measurement


class Trials:
    """Measurements of one search by config, in the order in which they ended.

    Args:
        known: measurements of earlier runs.
        on_trial: called with each measurement that is added.
    """

    def __init__(self, known: Iterable[Measurement], on_trial: Callable[[Measurement], None]) -> None:
        self.by_config = {measurement.config: measurement for measurement in known}
        self._on_trial = on_trial

    def add(self, measurement: Measurement) -> None:
        """Add a measurement, or replace that of the same config."""
        self.by_config[measurement.config] = measurement
        self._on_trial(measurement)
