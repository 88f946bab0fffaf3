"""Readings: an answer's config beside its contenders, of the stored rounds of its run or of new ones."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from tuner.db.store import Store
from tuner.errors import UsageError
from tuner.kernels.spec import Config, Signature
from tuner.kernels.values import parsed, value_text
from tuner.records import VENDOR, Comparison, Provenance, StoredAnswer, median
from tuner.records.retune import DEFAULT, RUNNER_UP, Contender, Reading
from tuner.search.verdict import VERDICT, interval_of_median, ratio


def reading_of(
    comparison: Comparison,
    config: Config,
    roles: Mapping[str, Config],
    provenance: Provenance,
    at: str,
    vendor: str = "",
) -> Reading:
    """Return the reading of a config in an interleaved comparison.

    Args:
        comparison: The config and perhaps others; those of `roles` that are not among them are left out.
        roles: Config of each role besides the vendor.
        at: Time of the rounds, UTC in ISO 8601.
        vendor: Name of the vendor if it is not the kernel's own.
    """
    own, timed = config.text, comparison.timed
    latencies = comparison.of(own)
    names = {VENDOR: VENDOR, **{role: other.text for role, other in roles.items() if other != config}}
    contenders = {
        role: Contender(
            *(median(comparison.of(name)), *ratio(comparison, name, own), roles.get(role)),
            vendor=vendor if role == VENDOR else "",
        )
        for role, name in names.items()
        if name in timed
    }
    states = comparison.states
    return Reading(
        latency_us=median(latencies),
        interval_us=interval_of_median(latencies),
        contenders=contenders,
        provenance=provenance,
        rounds=len(comparison.rounds),
        at=at,
        marks=comparison.marks,
        state=states[len(states) // 2] if states else None,
    )


def stored_reading(
    stored: StoredAnswer, comparison: Comparison | None, roles: Mapping[str, Config], vendor: str = ""
) -> Reading | None:
    """Return the reading of an answer by the rounds of its run.

    None if they do not have its config, or are too few for an interval.

    Args:
        vendor: Name of the vendor if it is not the kernel's own.
    """
    config = stored.answer.config
    if comparison is None or len(comparison.rounds) < VERDICT.first_look or config.text not in comparison.timed:
        return None
    return reading_of(comparison, config, roles, stored.measured_with, stored.created_at, vendor)


def next_best(stored: StoredAnswer, comparison: Comparison | None, store: Store) -> Iterator[Config]:
    """Yield the configs that come next after an answer's, the best first; some may come twice.

    They are its ties, then the others of its rounds by their latency there, then the fastest trials of its run.
    """
    yield from (tie.config for tie in stored.answer.ties)
    if comparison is not None and stored.signature is not None:
        names = sorted(set(comparison.timed) - {VENDOR}, key=lambda name: median(comparison.of(name)))
        configs = (_config_of(stored.signature, name) for name in names)
        yield from (config for config in configs if config is not None and config != stored.answer.config)
    run = None if stored.imported_from is not None else store.run(stored.measured_in)
    if run is not None:
        measured = sorted((m for m in store.known_to(run) if m.ok), key=lambda m: m.latency_us)
        yield from (m.config for m in measured if m.config != stored.answer.config)


def _config_of(signature: Signature, text: str) -> Config | None:
    """Return the config of a canonical text, or None if a value is none of the choices."""
    texts = parsed(text)
    values = {
        knob.name: choice
        for knob in signature.knobs
        for choice in knob.choices
        if knob.name in texts and value_text(choice) in (texts[knob.name], json.dumps(texts[knob.name]))
    }
    try:
        config = signature.config(values)
    except UsageError:
        return None
    return config if config.text == text else None


def roles_of(default: Config | None, runner_up: Config | None) -> dict[str, Config]:
    """Return the configs by their roles, without those that are missing."""
    given = {DEFAULT: default, RUNNER_UP: runner_up}
    return {role: config for role, config in given.items() if config is not None}
