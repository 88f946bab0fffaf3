"""Answers that come from elsewhere, and which of them are let in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from tuner.kernels.spec import Signature
from tuner.records import Answer, Provenance


@dataclass(frozen=True)
class Arrival:
    """An answer that another store gave, or that a file of others says."""

    signature: Signature
    answer: Answer
    provenance: Provenance
    origin: str
    """The file or the store it comes from, as people are told."""
    created_at: str = ""
    """When it was found, UTC in ISO 8601; empty where that is not known."""


class Fate(StrEnum):
    """What became of an arrival."""

    STORED = "stored"
    REPLACED = "stored in place of another that was imported"
    OVERRULED = "stored in place of one that was measured here"
    THERE = "there already"
    MEASURED = "another was measured here; --replace takes this one instead"
    OLDER = "a newer one is there"
    OUT = "taken out of service here"

    @property
    def stored(self) -> bool:
        return self in (Fate.STORED, Fate.REPLACED, Fate.OVERRULED)


@dataclass(frozen=True)
class Present:
    """An answer of the same key that the store has."""

    kind: str
    config: dict[str, object] = field(hash=False)
    latency_us: float | None
    created_at: str
    imported: bool
    in_service: bool

    @staticmethod
    def of(arrival: Arrival) -> Present:
        """An arrival that was let in."""
        answer = arrival.answer
        return Present(answer.kind, dict(answer.config), answer.latency_us, arrival.created_at, True, True)


def fate(arrival: Arrival, present: Sequence[Present], *, replace: bool) -> Fate:
    """What is to become of an arrival, beside those of its key that are there, oldest first.

    What is there already comes in no second time. What was measured here goes on serving unless `replace` says
    otherwise. Of two that were imported the newer one serves: the one that was found later, where both say when, else
    the one that came in later. What was taken out of service here stays out.
    """
    same = [one for one in present if _same(arrival, one)]
    if any(not one.in_service for one in same):
        return Fate.OUT
    serving = [one for one in present if one.in_service]
    if not serving:
        return Fate.STORED
    newest, dated = serving[-1], bool(arrival.created_at)
    if newest in same or (same and dated):
        return Fate.THERE
    if not newest.imported:
        return Fate.OVERRULED if replace else Fate.MEASURED
    return Fate.OLDER if dated and arrival.created_at < newest.created_at and not replace else Fate.REPLACED


def _same(arrival: Arrival, one: Present) -> bool:
    found = (arrival.answer.kind, dict(arrival.answer.config), arrival.answer.latency_us)
    when = arrival.created_at in ("", one.created_at)
    return when and found == (one.kind, one.config, one.latency_us)
