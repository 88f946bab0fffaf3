"""A measurer that replays a recorded space."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from tuner.kernels.spec import Config
from tuner.recorded.space import RecordedSpace
from tuner.records import Comparison, Evidence, Measurement


class RecordedMeasurer:
    """Measurer of one recorded space: it returns at once, and always the same numbers.

    Args:
        capacity: Configs submitted at a time, the batch of a sampler on a real card.
    """

    def __init__(self, space: RecordedSpace, capacity: int = 8) -> None:
        self._known = {measurement.config: measurement for measurement in space.measurements}
        self._comparison = space.comparison
        self._capacity = capacity
        self._rounds_given: dict[Config, int] = {}
        self._submitted: deque[Measurement] = deque()

    @property
    def capacity(self) -> int:
        return self._capacity

    @property
    def waits_for_device(self) -> bool:
        return False

    def submit(self, config: Config) -> None:
        self._submitted.append(self._known[config])

    def next(self, timeout_s: float) -> Measurement | None:
        return self._submitted.popleft() if self._submitted else None

    def settle(self, timeout_s: float) -> Sequence[Measurement]:
        self._submitted.clear()
        return ()

    def recheck(self, configs: Sequence[Config], seed: int) -> Sequence[Evidence]:
        """Return the recorded errors."""
        recorded = [self._known[config] for config in configs]
        return [Evidence(known.max_error, known.tolerance, ("normal",), 1) for known in recorded]

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison:
        """Return the next recorded rounds, fewer or none once these configs have had all of them.

        A config that is not in the recorded comparison contributes the samples of its measurement.
        """
        vendor = [name for name in self._comparison.contenders if name not in {config.text for config in self._known}]
        columns = {config.text: self._latencies(config) for config in configs}
        columns |= {name: self._comparison.of(name) for name in vendor}
        available = min(map(len, columns.values()))
        start = min(self._rounds_given.get(config, 0) for config in configs)
        end = max(start, min(start + rounds, available))
        self._rounds_given |= dict.fromkeys(configs, end)
        return Comparison(tuple(columns), tuple(zip(*(column[start:end] for column in columns.values()), strict=True)))

    def close(self) -> None:
        """Do nothing: no resource is held."""

    def _latencies(self, config: Config) -> tuple[float, ...]:
        compared = config.text in self._comparison.contenders
        return self._comparison.of(config.text) if compared else self._known[config].samples
