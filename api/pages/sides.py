"""The two sides of a comparison: a card, a version of Triton, a night, or a snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from tuner.api.pages.compared import Entry, entries_of, entries_of_night
from tuner.api.pages.served import Today, today
from tuner.api.pages.site import Query, Site
from tuner.db.overview import RetuneOutline
from tuner.errors import UnknownName, UsageError
from tuner.lookup.ranking import release
from tuner.records import StoredAnswer

LEFT, RIGHT = "left", "right"
FIELDS = ("", "_triton", "_night", "_snapshot")
"""Ends of the names in the query that describe a side: `left`, `left_triton` and so on."""
_READ_ONE_BY_ONE = 100
"""Number of answers that are read one by one, before all answers up to a snapshot are read at once."""


@dataclass(frozen=True)
class Side:
    """One side of a comparison."""

    device: str
    triton: str | None = None
    """Only answers that were found with this version; None: those that serve."""
    night: int | None = None
    """Id of a retune, whose measurements are compared; None: stored answers."""
    snapshot: int | None = None
    """Id of the newest answer that counts; None: the newest one."""

    @property
    def label(self) -> str:
        """The side in words."""
        if self.night is not None:
            return f"night {self.night} on {self.device}"
        parts = [self.device, *([f"Triton {self.triton}"] if self.triton else [])]
        return ", ".join([*parts, *([f"as of answer {self.snapshot}"] if self.snapshot is not None else [])])

    def fields(self, side: str) -> Mapping[str, object]:
        """Return the names and values of a side in the query."""
        return dict(zip((f"{side}{end}" for end in FIELDS), vars(self).values(), strict=True))


def versions(site: Site) -> list[str]:
    """Return the versions of Triton that the answers were found with, the newest first."""

    def found() -> list[str]:
        known = {stored.provenance.environment.triton for table in site.view.tables.values() for stored in table}
        return sorted(known - {""}, key=release, reverse=True)

    return site.of_view(("versions",), found)


def side_of(site: Site, query: Query, side: str, usual: Side) -> Side:
    """Return the side that a query names.

    Raises:
        UsageError: a value is not understood.
        UnknownName: there is no such card, version or retune.
    """
    device, triton = query.text(side), query.text(f"{side}_triton")
    night, snapshot = query.whole(f"{side}_night") or None, _snapshot(site, query, f"{side}_snapshot")
    if night is not None and (snapshot is not None or triton is not None):
        raise UsageError("a night has measurements of its own; leave Triton and snapshot out beside it")
    if night is not None:
        return Side(_outline(site, night).device, night=night)
    if device is not None:
        device = site.view.lookup.resolve_device(device)
    if triton is not None and triton not in versions(site):
        raise UnknownName(f"no answer was found with Triton {triton[:40]!r}; there are {', '.join(versions(site))}")
    if (device, triton, snapshot) == (None, None, None):
        return usual
    return Side(device or usual.device, triton, None, snapshot)


def _outline(site: Site, id: int) -> RetuneOutline:
    found = site.store.overview.retunes(1, before=id + 1)
    if not found or found[0].id != id:
        raise UnknownName(f"there is no retune {id}; the page of nights lists them")
    return found[0]


def _snapshot(site: Site, query: Query, name: str) -> int | None:
    """Return the id of the newest answer of a snapshot, which is that number alone or has the store's id before it."""
    text, tip = query.text(name), site.view.tip
    if text is None:
        return None
    uuid, _, number = text.strip().rpartition(":")
    if uuid not in ("", tip.uuid):
        raise UsageError(f"{name} names a state of this store, which begins with {tip.uuid}, not {uuid[:40]!r}")
    if not (number.isascii() and number.isdigit() and len(number) <= 10 and int(number) <= tip.answer):
        raise UsageError(f"{name} is the id of an answer, up to {tip.answer}, not {number[:40]!r}")
    return int(number)


def entries(site: Site, op: str, side: Side) -> Mapping[str, Entry]:
    """Return the problems of a side, by text."""
    uuid = site.view.tip.uuid
    if side.night is not None:
        retune = site.store.retunes.get(side.night)
        if retune is None:
            return {}
        key = ("night", uuid, op, side.night, retune.status, len(retune.findings))
        return site.kept.get(key, lambda: entries_of_night(retune, op))
    if side.snapshot is not None:
        upto, device = side.snapshot, side.device

        def past() -> Mapping[str, Entry]:
            return entries_of(_answers_at(site, op, device, upto), side.triton)

        return site.kept.get(("past", uuid, op, device, side.triton, upto), past)
    if side.triton is not None:
        table = site.view.table(op, side.device)
        return site.of_view(("entries", op, side), lambda: entries_of(table, side.triton))
    served = [stored for stored, _ in today(site).of(op, side.device).answers]
    return site.of_view(("entries", op, side), lambda: entries_of(served))


def _answers_at(site: Site, op: str, device: str, upto: int) -> list[StoredAnswer]:
    """Return the answers of an op on a device that were in service at a snapshot."""
    forgotten = site.store.forgotten_between(upto, site.view.tip.answer)
    if len(forgotten) > _READ_ONE_BY_ONE:
        return site.store.answers_between(0, upto, op=op, device=device)
    kept = [stored for stored in site.view.table(op, device) if stored.id <= upto]
    since = [site.store.answer(id) for id in forgotten if id <= upto]
    return kept + [
        stored
        for stored in since
        if stored is not None and (stored.answer.problem.op, stored.provenance.device.id) == (op, device)
    ]


def usual_sides(site: Site, op: str | None) -> tuple[str, Side, Side]:
    """Return the op and the sides of a query that names none: empty texts if there are no answers.

    These are the two cards with the most problems in common; else the two newest versions of Triton with answers on one
    card; else the two newest nights of a card.
    """
    found = today(site)
    best = site.of_view(("usual sides", op), lambda: _best(site, found, op))
    if best is not None:
        return best
    nights = [each for each in site.store.overview.retunes(20) if each.measured]
    for newer in nights:
        older = next((each for each in nights if each.id < newer.id and each.device == newer.device), None)
        if older is not None:
            shown = op or next((of for of, device in found.served if device == newer.device), "")
            return shown, Side(older.device, night=older.id), Side(newer.device, night=newer.id)
    places = {place: len(served.answers) for place, served in found.served.items() if op in (None, place[0])}
    of, device = max(places, key=lambda place: places[place], default=(op or "", ""))
    return of, Side(device), Side(device)


def _best(site: Site, found: Today, op: str | None) -> tuple[str, Side, Side] | None:
    for candidates in (_cards(found, op), _versions(site, op)):
        common, sides = max(candidates, key=lambda each: each[0], default=(0, None))
        if common and sides is not None:
            return sides
    return None


def _cards(found: Today, op: str | None) -> Iterator[tuple[int, tuple[str, Side, Side]]]:
    """Yield pairs of cards with the number of problems that both have an answer to."""
    texts = {
        place: {stored.answer.problem.text for stored, _ in served.answers}
        for place, served in found.served.items()
        if op in (None, place[0])
    }
    for of in sorted({of for of, _ in texts}):
        devices = sorted(device for each, device in texts if each == of)
        for one, other in combinations(devices, 2):
            yield len(texts[of, one] & texts[of, other]), (of, Side(one), Side(other))


def _versions(site: Site, op: str | None) -> Iterator[tuple[int, tuple[str, Side, Side]]]:
    """Yield the two newest versions of Triton of each op and card, with the number of problems that both answer."""
    for (of, device), table in site.view.tables.items():
        if op not in (None, of):
            continue
        texts: dict[str, set[str]] = {}
        for stored in table:
            texts.setdefault(stored.provenance.environment.triton, set()).add(stored.answer.problem.text)
        newest: Sequence[str] = sorted(texts, key=release)[-2:]
        if len(newest) == 2:
            older, newer = newest
            side = Side(device)
            yield len(texts[older] & texts[newer]), (of, replace(side, triton=older), replace(side, triton=newer))
