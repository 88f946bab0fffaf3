"""The document of an answer, as the service and the command line give it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from tuner.records.answer import Answer, StoredAnswer, Tie

DERIVED = ("tflops", "gb_per_s")
"""Properties of `Answer` that the document has beside its fields."""
_DECIMALS = 4
"""Decimals of the document's numbers: a tenth of a nanosecond, and the precision of a ratio."""


@cache
def served_names(record: type[Answer] | type[Tie]) -> tuple[str, ...]:
    """Return the names of the fields that the document has, in order."""
    return tuple(each.name for each in fields(record) if each.metadata["served"])


def answer_document(stored: StoredAnswer) -> dict[str, Any]:
    """Return an answer's config, its measurements and their origin, as JSON values."""
    answer, provenance, evidence = stored.answer, stored.provenance, stored.answer.evidence
    return {
        **{name: _served(getattr(answer, name)) for name in _NAMES},
        "vendor": stored.vendor,
        "recorded": provenance.recorded,
        "imported": stored.imported_from,
        "max_error": evidence.max_error,
        "tolerance": evidence.tolerance,
        "checked": {"inputs": list(evidence.inputs), "launches": evidence.launches},
        "tuned_with": provenance.as_json(),
    }


def unmeasured(answer: Answer) -> Answer:
    """Return an answer without its measurements, which say nothing of another problem."""
    return Answer(answer.problem, answer.kind, answer.config, basis=answer.basis)


def _served(value: Any) -> Any:
    match value:
        case float():
            return round(value, _DECIMALS)
        case Tie():
            return {name: _served(getattr(value, name)) for name in served_names(Tie)}
        case Mapping():
            return dict(value)
        case tuple():
            return [_served(each) for each in value]
    return value


_NAMES = (*served_names(Answer), *DERIVED)
