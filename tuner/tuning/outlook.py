"""The outlook of a stored answer, from its kernel's estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuner import catalog
from tuner.errors import NoDevice, UnknownName
from tuner.lookup.neighbours import with_current_knobs
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
    answer, card, signature = stored.answer, stored.provenance.device.limits, kernel.signature
    if kernel.estimate is None or answer.latency_us is None or stored.provenance.source != kernel.source:
        return None
    if limits is not None:
        card = replace(card, gb_per_s=limits.copy_gb_per_s)
    config = with_current_knobs(signature, answer.config)
    if config is None:
        return None
    measured = ((each, with_current_knobs(signature, each.config)) for each in measurements)
    estimate, problem = kernel.estimate, answer.problem
    return outlook(
        config,
        answer.latency_us,
        [replace(each, config=full) for each, full in measured if full is not None],
        feasible(kernel, problem, card),
        lambda config: estimate(problem, config, card),
        power_capped=comparison is not None and any("power_cap" in state.throttled for state in comparison.states),
    )
