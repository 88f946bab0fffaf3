"""The compare page: two cards, two versions of Triton, two nights or two snapshots, problem by problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from tuner.api.pages.answer_facts import address_of
from tuner.api.pages.compared import Entry, Pair, Summary, Verdict, pairs_of
from tuner.api.pages.csv_text import csv_bytes
from tuner.api.pages.links import Links
from tuner.api.pages.plots import Heading, Ratio, live_plot, ratio_points, scatter_ratio
from tuner.api.pages.served import today
from tuner.api.pages.sides import FIELDS, LEFT, RIGHT, Side, entries, side_of, usual_sides, versions
from tuner.api.pages.site import Content, Data, Query, Site
from tuner.api.pages.tables import Column, has_words, in_table, sorted_rows, table_page
from tuner.api.query import parse_signatures
from tuner.report.text import config_text, short

_NAMES = ("op", *(f"{side}{end}" for side in (LEFT, RIGHT) for end in FIELDS), "show", "find", "sort", "after")
_MOVED = "moved"
_SHOWN = ("both", _MOVED, *map(str, Verdict))


@dataclass(frozen=True)
class CompareSettings:
    """Limits of the compare page."""

    marks: int = 500
    """Most points that the page has itself; a plot of more fetches them."""
    nights: int = 50
    """Newest retunes that are offered."""


SETTINGS = CompareSettings()


@dataclass(frozen=True)
class Choice:
    """The op and the sides that the page compares, and the filters of its table."""

    op: str
    left: Side
    right: Side
    show: str
    words: tuple[str, ...]

    def has(self, pair: Pair) -> bool:
        """Return whether the table shows a pair."""
        if not has_words(pair.problem, self.words):
            return False
        if self.show == "both":
            return pair.left is not None and pair.right is not None
        return pair.is_moved if self.show == _MOVED else pair.verdict == self.show


@dataclass(frozen=True)
class Compared:
    """All problems of both sides."""

    pairs: Sequence[Pair]
    summary: Summary

    @staticmethod
    def of(left: Mapping[str, Entry], right: Mapping[str, Entry]) -> Compared:
        pairs = sorted(pairs_of(left, right), key=lambda pair: (pair.problem.sizes, pair.problem.text))
        return Compared(pairs, Summary.of(pairs))


def read(site: Site, query: Query, links: Links) -> Content:
    """Return the compare page."""
    choice = _choice(site, query)
    nights = site.store.overview.retunes(SETTINGS.nights)
    offered = {"ops": today(site).ops(), "devices": today(site).devices(), "tritons": versions(site), "nights": nights}
    if not choice.op:
        return Content("compare.html", "Compare", {"choice": choice, **offered})
    found = _compared(site, choice)
    fixed = {"op": choice.op, **choice.left.fields(LEFT), **choice.right.fields(RIGHT)}

    def href(changed: Mapping[str, object]) -> str:
        return links.to("compare", **{**query.given, **fixed, **changed})

    def to_problem(pair: Pair) -> str:
        side = choice.left if pair.right is None else choice.right
        return links.to("problem", **address_of(pair.problem, side.device))

    listed = [pair for pair in found.pairs if choice.has(pair)]
    page = table_page(listed, COLUMNS, query, lambda changed: in_table(href(changed)))
    described = {name: value for name, value in {**query.given, **fixed}.items() if value and name != "after"}
    values = {
        "fixed": fixed,
        "summary": found.summary,
        "plot": _plot(site, choice, found, links, described, to_problem),
        "table": page,
        "href": href,
        "swapped": href({**choice.left.fields(RIGHT), **choice.right.fields(LEFT), "after": None}),
        "to_problem": to_problem,
        "given": query.given,
        "shown": _SHOWN,
        "short": short,
        "csv": links.to("compare.csv", **described) if links.is_live else "",
    }
    return Content("compare.html", f"Compare {choice.op}", {"choice": choice, **offered, **values})


def read_csv(site: Site, query: Query) -> Data:
    """Return the problems that the page lists, all pages of them, as CSV."""
    choice = _choice(site, query)
    listed = [pair for pair in _compared(site, choice).pairs if choice.has(pair)] if choice.op else []
    rows = sorted_rows(listed, COLUMNS, query)
    names = list(dict.fromkeys(name for pair in rows for name in pair.problem.values))
    heads = ("op", *names, "left", *_heads("left"), "right", *_heads("right"), "ratio", "ratio_low", "ratio_high")
    table = [
        [
            pair.problem.op,
            *(pair.problem.values.get(name) for name in names),
            choice.left.label,
            *_fields(pair.left),
            choice.right.label,
            *_fields(pair.right),
            pair.ratio,
            *(pair.interval or (None, None)),
            str(pair.verdict),
        ]
        for pair in rows
    ]
    return Data(csv_bytes([*heads, "verdict"], table), "text/csv", f"compare-{choice.op or 'nothing'}.csv")


def read_points(site: Site, query: Query) -> Data:
    """Return the points of the plot."""
    choice = _choice(site, query)
    pairs = _compared(site, choice).pairs if choice.op else []
    return Data(ratio_points(_ratios(pairs)), "application/json")


def _heads(side: str) -> list[str]:
    return [f"{side}_{name}" for name in ("latency_us", "low_us", "high_us", "policy", "config")]


def _fields(entry: Entry | None) -> list[object]:
    if entry is None:
        return [None] * 5
    low, high = entry.interval_us or (None, None)
    return [entry.latency_us, low, high, entry.policy, config_text(entry.config)]


COLUMNS: Sequence[Column[Pair]] = (
    Column("problem", "Problem", lambda pair: (pair.problem.sizes, pair.problem.text)),
    Column("left", "Left", lambda pair: pair.left_us, True, "Latency on the left"),
    Column("right", "Right", lambda pair: pair.right_us, True, "Latency on the right"),
    Column("ratio", "Ratio", lambda pair: pair.ratio, True, "Latency on the left over that on the right"),
    Column("verdict", "Right side is", lambda pair: list(Verdict).index(pair.verdict)),
    Column("moved", "Config", lambda pair: len(pair.moved)),
)


def _choice(site: Site, query: Query) -> Choice:
    """Return what a query compares. Raises UsageError or UnknownName if a value is not understood or not known."""
    query.only(*_NAMES)
    if (op := query.text("op")) is not None:
        parse_signatures({"op": op}, site.view)
    op, left, right = usual_sides(site, op)
    left, right = side_of(site, query, LEFT, left), side_of(site, query, RIGHT, right)
    return Choice(op, left, right, query.choice("show", _SHOWN), query.words("find"))


def _compared(site: Site, choice: Choice) -> Compared:
    left, right = entries(site, choice.op, choice.left), entries(site, choice.op, choice.right)
    sizes = len(left), len(right)  # of a night that is still measured, findings are added
    key = ("compared", choice.op, choice.left, choice.right, sizes)
    return site.of_view(key, lambda: Compared.of(left, right))


def _ratios(pairs: Sequence[Pair], to_problem: Callable[[Pair], str] = lambda pair: "") -> list[Ratio]:
    return [
        Ratio(short(pair.problem), pair.ratio, pair.interval, to_problem(pair))
        for pair in pairs
        if pair.ratio is not None
    ]


def _plot(
    site: Site,
    choice: Choice,
    found: Compared,
    links: Links,
    described: Mapping[str, object],
    to_problem: Callable[[Pair], str],
) -> Markup | None:
    """Return the plot of the ratios; None if there are none."""
    count = found.summary.compared
    if not count:
        return None
    sides = f"{choice.left.label} over that of {choice.right.label}"
    about = f"Latency of {sides}, problem by problem: above 1, the right is faster."
    heading = Heading("ratios", f"Ratios of {choice.op}", about)

    def make() -> Markup:
        if count <= SETTINGS.marks:
            return scatter_ratio(heading, _ratios(found.pairs, to_problem))
        fallback = scatter_ratio(heading, _ratios(found.pairs))
        given = {name: value for name, value in described.items() if name not in ("show", "find", "sort")}
        source = links.to("compare.json", **given) if links.is_live else ""
        caption = f"Of {count:,} problems, {SETTINGS.marks} are shown, evenly by their ratio."
        return live_plot(heading, source, fallback, caption)

    return site.of_view(("ratios", choice.op, choice.left, choice.right, count, type(links)), make)
