"""The coverage page: which problems of an op have an answer on a card, over two dims."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from markupsafe import Markup

from tuner.api.pages.answer_facts import address_of
from tuner.api.pages.coverage_map import Choice, coverage_map
from tuner.api.pages.covered import (
    ABOUT,
    CONCERN,
    Colour,
    Figures,
    Part,
    Row,
    Wanted,
    axes_of,
    by_concern,
    colours_of,
    parts_of,
    rows_of,
    vendor_by_medians,
    vendor_of,
)
from tuner.api.pages.links import Links
from tuner.api.pages.missed import missed
from tuner.api.pages.plots import State
from tuner.api.pages.served import Today, today
from tuner.api.pages.site import Content, Query, Site
from tuner.api.pages.tables import Column, in_table, table_page
from tuner.api.query import parse_signatures
from tuner.errors import UsageError
from tuner.report.text import short
from tuner.report.vendor import VendorSpeedup, vendor_speedup

_ONLY = "only."
"""Prefix of the filters by dim, dtype or attribute in the query: `only.dtype=bf16`."""
_NAMES = ("op", "device", "x", "y", "colour", "sizes", "state", "find", "sort", "after", "x_range", "y_range")


@dataclass(frozen=True)
class CoverageSettings:
    """Limits of the coverage page."""

    missed: int = 500
    """Missed problems of an op and card that are shown at most, the most frequent ones."""
    paired: int = 500
    """Number of problems up to which all are coloured and ordered by the vendor's speed over paired rounds, as they are
    shown. With more it is by median latencies, since the rounds of an answer take 1 ms to read."""
    choices: int = 60
    """Values of a dim or attribute that a list offers; with more, it is a text field."""


SETTINGS = CoverageSettings()


@dataclass(frozen=True)
class _Known:
    """The problems of an op on a card, and what the forms of the page offer."""

    rows: Sequence[Row]
    parts: Sequence[Part]
    vendor: str

    @staticmethod
    def of(rows: Sequence[Row]) -> _Known:
        return _Known(rows, parts_of(rows), vendor_of(rows))


@dataclass(frozen=True)
class _Shown:
    """The map and the rows that a query shows, but for the order of the table."""

    map: Markup | None
    """None if the problems have no dims."""
    counts: Sequence[tuple[State, int]]
    listed: Sequence[Row]


def read(site: Site, query: Query, links: Links) -> Content:
    """Return the coverage page."""
    found = today(site)
    op, device = _place(site, query, found)
    if not op:
        return Content("coverage.html", "Coverage", {"op": "", "ops": [], "devices": []})
    requests = site.store.requests(SETTINGS.missed, op=op, device=device)
    asked = missed(site, requests)
    key = (op, device, tuple((one.problem.text, one.count) for one in asked))
    known = site.of_view(("rows", *key), lambda: _Known.of(rows_of(found.of(op, device), asked)))
    values: dict[str, Any] = {"op": op, "device": device, "ops": _ops(found, op), "devices": _devices(found, device)}
    values["most_missed"] = SETTINGS.missed if len(requests) == SETTINGS.missed else None
    values |= {"rows": known.rows, **(_values(site, query, links, known, key) if known.rows else {})}
    return Content("coverage.html", f"Coverage of {op}", values)


def _values(site: Site, query: Query, links: Links, known: _Known, key: tuple[Any, ...]) -> dict[str, Any]:
    """Return what the template shows of the problems.

    Args:
        key: op, device, and the missed problems, by which results are kept.
    """
    query.only(*_NAMES, *(f"{_ONLY}{part.name}" for part in known.parts))
    op, device = key[:2]
    now, newest = datetime.now(UTC), today(site).newest
    speedups = site.of_view(("speedups",), dict[int, VendorSpeedup | None])
    figures = Figures(site.store.roofline_limits, now, lambda stored: vendor_speedup(site.store, stored), speedups)
    by_medians = vendor_by_medians if len(known.rows) > SETTINGS.paired else None
    colours = colours_of(figures, known.vendor, by_medians)
    choice = _choice(query, known.parts, colours, op, device)

    def href(changed: Mapping[str, object]) -> str:
        return links.to("coverage", **{**query.given, "op": op, "device": device, **changed})

    def make() -> _Shown:
        in_map = [row for row in known.rows if choice.wanted.has(row)]
        listed = sorted((row for row in in_map if choice.shown.has(row)), key=by_concern)
        return _Shown(coverage_map(in_map, choice, query, links), _counts(in_map), listed)

    asked_for = frozenset(item for item in query.given.items() if item[0] not in ("sort", "after"))
    hour = now.isoformat(timespec="hours")  # ages are shown as of now
    shown = site.of_view(("coverage", *key, asked_for, type(links), hour), make)
    page = table_page(shown.listed, _columns(figures, colours), query, lambda changed: in_table(href(changed)))
    return {
        "parts": [part for part in known.parts if part.name not in (choice.x, choice.y) and len(part.values) > 1],
        "dims": [part.name for part in known.parts if part.is_dim],
        "choice": choice,
        "colours": colours,
        "counts": shown.counts,
        "about": ABOUT,
        "given": query.given,
        "map": shown.map,
        "is_coloured": any(choice.colour.value(row) is not None for row in shown.listed),
        "table": page,
        "figures": figures,
        "why_stale": lambda row: () if row.stored is None else newest.stale(row.stored),
        "href": href,
        "in_table": in_table,
        "to_problem": lambda row: links.to("problem", **address_of(row.problem, device)),
        "short": short,
        "most_choices": SETTINGS.choices,
    }


def _place(site: Site, query: Query, found: Today) -> tuple[str, str]:
    """Return the op and the device of a query; those with the most answers if it names none, empty if there are none.

    Raises:
        UnknownName: no op, no card and no answer has the name.
    """
    op, device = query.text("op"), query.text("device")
    if op is not None:
        parse_signatures({"op": op}, site.view)
    if device is not None:
        asked_on = {row["device"] for row in site.store.requests(1, device=device)}
        device = site.view.lookup.resolve_device(device, known=asked_on)
    places = [place for place in found.served if op in (None, place[0]) and device in (None, place[1])]
    best = max(places, key=lambda place: (len(found.served[place].answers), place), default=("", ""))
    op = op or best[0] or _asked_op(site, device)
    return op, device or best[1] or _asked_device(site, op)


def _asked_op(site: Site, device: str | None) -> str:
    return next((str(row["op"]) for row in site.store.requests(1, device=device)), "")


def _asked_device(site: Site, op: str) -> str:
    devices = site.view.devices()
    return next((str(row["device"]) for row in site.store.requests(1, op=op)), devices[0] if devices else "")


def _ops(found: Today, op: str) -> list[str]:
    """Return the ops that the page offers: those with answers, and the one that it shows."""
    return sorted({*found.ops(), op})


def _devices(found: Today, device: str) -> list[str]:
    return sorted({*found.devices(), device} - {""})


def _choice(query: Query, parts: Sequence[Part], colours: Mapping[str, Colour], op: str, device: str) -> Choice:
    """Return what the page shows.

    Raises:
        UsageError: a value of the query is not understood.
    """
    dims = tuple(part.name for part in parts if part.is_dim)
    x, y = _axes(query, parts, dims)
    only = {name.removeprefix(_ONLY): value for name, value in query.given.items() if name.startswith(_ONLY) and value}
    state = query.choice("state", ("", *State))
    wanted = Wanted(only, query.words("find"), State(state) if state else None)
    ranges = {dim: _range(query, name) for dim, name in ((x, "x_range"), (y, "y_range")) if dim and query.text(name)}
    colour = colours[query.choice("colour", tuple(colours))]
    return Choice(op, device, x, y, colour, wanted, replace(wanted, ranges=ranges))


def _axes(query: Query, parts: Sequence[Part], dims: tuple[str, ...]) -> tuple[str | None, str | None]:
    """Return the dims of the map: those that are named, else those with the most sizes. None if there are too few."""
    usual = tuple(dim for dim in axes_of(parts) if dim is not None)
    if not dims:
        return None, None
    x = query.choice("x", tuple(dict.fromkeys((*usual, *dims))))
    others = tuple(dict.fromkeys(dim for dim in (*reversed(usual), *dims) if dim != x))
    if not others:
        return x, None
    return x, others[0] if query.text("y") == x else query.choice("y", others)


def _range(query: Query, name: str) -> tuple[int, int]:
    """Return the sizes of `16-31`. Raises UsageError if the text is not understood."""
    low, _, high = query.needed(name).partition("-")
    if not all(end.isascii() and end.isdigit() and len(end) <= 10 for end in (low, high)):
        raise UsageError(f"{name} is two sizes like 16-31, not {query.needed(name)[:40]!r}")
    return int(low), int(high)


def _counts(rows: Sequence[Row]) -> list[tuple[State, int]]:
    """Return the number of problems in each state that some problem has."""
    counts = Counter(row.state for row in rows)
    return [(state, counts[state]) for state in State if counts[state]]


def _columns(figures: Figures, colours: Mapping[str, Colour]) -> list[Column[Row]]:
    vendor = colours["vendor"]
    about = "Over paired rounds" if vendor.value == figures.vendor else "Over paired rounds; in order of the medians"
    return [
        Column("problem", "Problem", lambda row: (row.problem.sizes, row.problem.text)),
        Column("state", "State", lambda row: CONCERN[row.state]),
        Column("latency", "Latency", lambda row: row.latency_us, True),
        Column("gain", "Speed-up over default", lambda row: row.gain, True),
        Column("vendor", vendor.label, vendor.value, True, about),
        Column("roofline", "Share of roofline", figures.share, True, "Least possible latency, by the card's limits"),
        Column("age", "Age", figures.age_days, True),
        Column("asked", "Missed", lambda row: row.asked, True, "Number of lookups that found no answer of its own"),
    ]
