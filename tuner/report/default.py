"""The failure of a kernel's default in a search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from tuner.db.store import Store
from tuner.records import Measurement, Outcome, StoredAnswer
from tuner.report.text import first_line


def failure_text(measurement: Measurement) -> str:
    """Return `wrong_result: deviates from ...`: the outcome of a failed config and the first line of its error."""
    return f"{measurement.outcome}: {first_line(measurement.error, 300)}"


def default_failure(store: Store, stored: StoredAnswer | None) -> str:
    """Return the outcome and the error of a default that has no latency; empty if it ran, or is not known."""
    if stored is None or stored.answer.speedup is not None:
        return ""
    run = store.run(stored.measured_in)
    return "" if run is None else failure_in(run.settings, store.known_to(run))


def failure_in(settings: Mapping[str, Any], measurements: Iterable[Measurement]) -> str:
    """Return the outcome and the error of the default of a run, by its settings and measurements; empty if it ran."""
    if refused := settings.get("default_refused"):
        return f"{Outcome.INFEASIBLE}: {refused}"
    default = settings.get("default")
    failed = (each for each in measurements if each.config.text == default and not each.ok)
    return next(map(failure_text, failed), "")


def outcome_of(failure: str) -> str:
    """Return the outcome that a text of `default_failure` begins with."""
    return failure.partition(":")[0]
