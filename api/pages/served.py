"""The answers that serve today: what a program gets that has the newest kernel and software known in the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from threading import Lock

from tuner.api.pages.site import Site
from tuner.api.view import View
from tuner.kernels.spec import Signature
from tuner.lookup.newest import Newest
from tuner.lookup.query import Query
from tuner.lookup.table import Table
from tuner.records import StoredAnswer

Place = tuple[str, str]
"""An op and a device id."""


@dataclass(frozen=True)
class Served:
    """The answers that serve the problems of an op on a card, one for each problem."""

    answers: Sequence[tuple[StoredAnswer, bool]]
    """Each with whether it is exact for a program with the newest kernel and software."""
    exact: int
    """Number of those that are."""

    @property
    def stale(self) -> int:
        """Number of those that are not."""
        return len(self.answers) - self.exact


@dataclass(frozen=True)
class Today:
    """The answers that serve, by op and device."""

    newest: Newest
    served: Mapping[Place, Served]

    @property
    def problems(self) -> int:
        """Number of problems with an answer; a problem counts once for each card."""
        return sum(len(served.answers) for served in self.served.values())

    @property
    def exact(self) -> int:
        """Number of those whose answer is exact."""
        return sum(served.exact for served in self.served.values())

    def ops(self) -> list[str]:
        """Return the ops with answers, sorted."""
        return sorted({op for op, _ in self.served})

    def devices(self, op: str | None = None) -> list[str]:
        """Return the ids of the devices with answers, of one op if it is given, sorted."""
        return sorted({device for of, device in self.served if op in (None, of)})

    def of(self, op: str, device: str) -> Served:
        """Return the answers of an op on a device; there may be none."""
        return self.served.get((op, device), Served((), 0))


@dataclass(frozen=True)
class _Part:
    """The answers of one table, and all that they were chosen by."""

    table: Table
    query: Query | None
    signatures: Sequence[tuple[str, Signature]]
    served: Served
    last: Sequence[StoredAnswer]
    """The newest answer of each provenance of the table."""


class _Parts:
    """The answers of each table of the newest view, chosen again only if the table or the newest software changed."""

    def __init__(self) -> None:
        self._lock, self._parts = Lock(), dict[Place, _Part]()

    def today(self, view: View, newest: Newest | None = None) -> Today:
        """Return the answers that serve as of a view. `newest`: those of the view's answers if it is None."""
        with self._lock:
            last = {place: self._last(place, table) for place, table in view.tables.items()}
            newest = newest or Newest.of(chain.from_iterable(last.values()))
            self._parts = {
                place: self._part(place, table, newest, view, last[place]) for place, table in view.tables.items()
            }
            return Today(newest, {place: part.served for place, part in self._parts.items()})

    def _last(self, place: Place, table: Table) -> Sequence[StoredAnswer]:
        before = self._parts.get(place)
        return before.last if before is not None and before.table is table else last_of_each(table)

    def _part(self, place: Place, table: Table, newest: Newest, view: View, last: Sequence[StoredAnswer]) -> _Part:
        op, device = place
        before, sample = self._parts.get(place), next(iter(table)).answer.problem
        query = newest.query(sample, device)
        signatures = [(source, signature) for (of, source), signature in view.in_use.items() if of == op]
        if before is not None and before.table is table and (before.query, before.signatures) == (query, signatures):
            return before
        found = list(table.served(query, view.lookup.refusal))
        return _Part(table, query, signatures, Served(found, sum(exact for _, exact in found)), last)


def last_of_each(table: Table) -> list[StoredAnswer]:
    """Return the newest answer of each provenance and kind in a table."""
    last: dict[tuple[int, str], StoredAnswer] = {}
    for stored in table:
        alike = (id(stored.provenance), stored.answer.kind)
        if alike not in last or stored.id > last[alike].id:
            last[alike] = stored
    return list(last.values())


def today(site: Site) -> Today:
    """Return the answers that serve as of the site's view."""
    parts = site.kept.get(("served",), _Parts)
    return site.of_view(("today",), lambda: parts.today(site.view, site.newest))
