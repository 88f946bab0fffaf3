"""Times as files of other tools state them: samples of a config, and what a search was for."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import Any

from tuner.errors import UsageError
from tuner.kernels.dtypes import shown
from tuner.kernels.spec import Config
from tuner.records import Measurement, Outcome

TIME = "time"
"""The objective that is read."""
_FAILED = 1e20
"""Time that older versions of Kernel Tuner wrote for a config that failed."""


def measured(config: Config, times: Iterable[Any]) -> Measurement:
    """Return the measurement of a config that a file has as correct.

    Without times, or with one that is not a finite positive number, it failed.
    """
    samples = tuple(times)
    wrong = [time for time in samples if not _is_time(time)]
    if samples and not wrong:
        return Measurement(config, Outcome.OK, tuple(map(float, samples)))
    error = f"a time is a finite number above 0, not {shown(wrong[0])}" if wrong else "the file has no time for it"
    return Measurement(config, Outcome.ERROR, error=error)


def fastest(measurements: Iterable[Measurement]) -> tuple[dict[str, Any], float]:
    """Return the config with the lowest median, and that median in the unit of the file.

    Raises:
        UsageError: No config ran.
    """
    ran = [(one.latency_us, one.config) for one in measurements if one.ok]
    if not ran:
        raise UsageError("no config of it ran")
    latency, config = min(ran, key=lambda one: one[0])
    return dict(config), latency


def check_objectives(objectives: object) -> None:
    """Raise UsageError if a file states what its search was for, and time is not part of it."""
    names = [objectives] if isinstance(objectives, str) else objectives
    if isinstance(names, list) and names and TIME not in names:
        stated = ", ".join(str(name)[:40] for name in names[:5])
        raise UsageError(f"its configs were tuned for {stated}, and only those tuned for {TIME} are read")


def _is_time(value: Any) -> bool:
    return type(value) in (int, float) and 0 < value < _FAILED and isfinite(value)
