"""Latencies of contenders in the rounds of an interleaved comparison."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import nan
from typing import Any

from tuner.kernels.spec import Config
from tuner.measure.clock import Timer
from tuner.measure.loaded_problem import LoadedProblem
from tuner.measure.messages import Stage
from tuner.measure.samples import checked
from tuner.measure.timed_vendors import Vendor
from tuner.records import median
from tuner.records.measurement import are_latencies


class ContenderFailed(Exception):
    """A config failed in interleaved rounds, or a vendor that is not the kernel's own."""

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(name)
        self.name, self.error = name, error


class Latencies:
    """The latencies of contenders in interleaved rounds, by name.

    Args:
        tell: reports a stage.
    """

    def __init__(
        self, loaded: LoadedProblem, contenders: Mapping[str, Config | Vendor], tell: Callable[[Any], None]
    ) -> None:
        self._loaded, self._contenders, self._tell = loaded, contenders, tell
        self._timers: dict[str, Timer] = {}

    def __call__(self, name: str) -> float:
        """Return the latency of one round, in us; NaN if a vendor's is not finite and above 0.

        Raises:
            ContenderFailed: a config failed, or a vendor that is not the kernel's own.
        """
        contender = self._contenders[name]
        try:
            if isinstance(contender, Vendor):
                return self._of_vendor(name, contender)
            self._tell(Stage("comparison", contender))
            return median(checked(self._samples(name, lambda: self._loaded.timer(contender))))
        except Exception as error:
            if isinstance(contender, Vendor) and contender.is_own:
                raise
            raise ContenderFailed(name, error) from error

    def _of_vendor(self, name: str, vendor: Vendor) -> float:
        self._tell(Stage("comparison", vendor=vendor.told))
        samples = self._samples(name, lambda: self._loaded.vendor_timer(vendor.run))
        return median(checked(samples)) if are_latencies(samples) else nan

    def _samples(self, name: str, make: Callable[[], Timer]) -> list[float]:
        if name not in self._timers:
            self._timers[name] = make()
        return self._timers[name](self._loaded.clock.samples_per_round)
