"""Problems that were asked for and have no answer of their own, and what tuning them is expected to gain."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tuner.api.pages.site import Site
from tuner.api.view import View
from tuner.errors import UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.kernels.values import parsed
from tuner.lookup.expected import expected_gain, value_of_tuning
from tuner.lookup.patterns import described
from tuner.lookup.query import Query
from tuner.lookup.table import LookupResult
from tuner.records.signatures import lacks_choices


@dataclass(frozen=True)
class Missed:
    """A problem without an answer of its own, on a device."""

    problem: Problem
    device: str
    has_neighbour: bool
    """True if a neighbour's answer serves meanwhile."""
    command: str
    """Command that tunes it; empty if it cannot be tuned."""
    count: int = 0
    """Number of lookups that missed it."""


@dataclass(frozen=True)
class Ranked:
    """A missed problem with the value of tuning it."""

    missed: Missed
    gain: float | None
    """Share of its latency that tuning is expected to save; None if it is not known."""

    @property
    def value(self) -> float:
        """Value of tuning it, by which misses are ordered."""
        return value_of_tuning(self.missed.count, self.gain)


def missed(site: Site, rows: Iterable[Mapping[str, Any]]) -> list[Missed]:
    """Return the problems of rows of requests that still have no answer of their own, in the order of the rows.

    Problems that cannot be read are left out.
    """
    known, found = site.kept.get(("missed",), _Known), list[Missed]()
    for row in rows:
        if not site.is_about(row["op"], row["device"]):
            continue
        each = known.get(site.view, row["op"], row["problem"], row["device"])
        if each is not None:
            found.append(replace(each, count=row["count"]))
    return found


def ranked(site: Site, misses: Iterable[Missed]) -> list[Ranked]:
    """Return missed problems, the most valuable first."""
    known = site.kept.get(("missed",), _Known)
    found = [Ranked(each, known.gain(site.view, each)) for each in misses]
    return sorted(found, key=lambda each: (-each.value, each.missed.problem.text, each.missed.device))


class _Known:
    """Missed problems of each op and device, found again only if its answers or the kernels changed."""

    def __init__(self) -> None:
        self._of: dict[tuple[str, str], tuple[tuple[object, int], dict[str, Any]]] = {}

    def get(self, view: View, op: str, text: str, device: str) -> Missed | None:
        """Return a problem as it is missed; None if it has an answer by now, or cannot be read."""
        found = self._found(view, op, device)
        if text not in found:
            found[text] = _missed(view, op, text, device)
        known: Missed | None = found[text]
        return known

    def gain(self, view: View, about: Missed) -> float | None:
        """Return the expected gain of tuning a problem."""
        found, key = self._found(view, about.problem.op, about.device), f"gain of {about.problem.text}"
        if key not in found:
            device = view.lookup.stored_as(about.device)
            found[key] = expected_gain(view.lookup.find_on(device, Query(about.problem)), view.lookup)
        gain: float | None = found[key]
        return gain

    def _found(self, view: View, op: str, device: str) -> dict[str, Any]:
        table = view.tables.get((op, view.lookup.stored_as(device)))
        made_by = (view.tip if table is None else table, view.tip.kernel)  # without answers, those of other cards count
        before, found = self._of.get((op, device), (None, {}))
        if before != made_by:
            found = {}
            self._of[op, device] = made_by, found
        return found


def _missed(view: View, op: str, text: str, device: str) -> Missed | None:
    signatures = view.patterns.get(op) or tuple(filter(None, [view.signatures.get(op)]))
    if not signatures:
        return None
    try:
        signature, problem = described(signatures, parsed(text), Signature.problem)
    except UsageError:
        return None
    stored_as = view.lookup.stored_as(device)
    if not all(map(view.lookup.refusal, view.table(op, stored_as).answers_to(problem.text))):
        return None  # one that is not refused
    neighbour = view.lookup.neighbour_on(stored_as, Query(problem))
    result = LookupResult(problem, device, "none", captured=signature.captured)
    return Missed(problem, device, neighbour is not None, "" if lacks_choices(signature) else result.command)
