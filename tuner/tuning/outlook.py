"""The outlook of a stored answer, from its kernel's estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuner import catalog
from tuner.errors import NoDevice, UnknownName
from tuner.records import Comparison, Measurement, RooflineLimits, StoredAnswer
from tuner.report.explanation import Outlook
from tuner.report.outlook import outlook
from tuner.search.space import feasible


def outlook_of(
    reference: str,
    stored: StoredAnswer,
    measurements: Sequence[Measurement],
    comparison: Comparison | None,
    limits: RooflineLimits | None,
) -> Outlook | None:
    """Return the outlook of a stored answer; None if its kernel cannot be loaded, is another, or states no estimate."""
    try:
        kernel = catalog.resolve(reference)
    except (NoDevice, UnknownName):
        return None
    answer, card = stored.answer, stored.provenance.device.limits
    if kernel.estimate is None or answer.latency_us is None or stored.provenance.source != kernel.source:
        return None
    if limits is not None:
        card = replace(card, gb_per_s=limits.copy_gb_per_s)
    estimate, problem = kernel.estimate, answer.problem
    return outlook(
        answer.config,
        answer.latency_us,
        measurements,
        feasible(kernel, problem, card),
        lambda config: estimate(problem, config, card),
        power_capped=comparison is not None and any("power_cap" in state.throttled for state in comparison.states),
    )
