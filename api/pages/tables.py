"""Tables that are sorted and paged by the server, so that they need no script."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tuner.api.pages.site import SETTINGS, Query
from tuner.kernels.spec import Problem
from tuner.report.text import short

R = TypeVar("R")
Href = Callable[[Mapping[str, object]], str]
"""Return the address of the page with some values of its query replaced; None leaves one out."""


@dataclass(frozen=True)
class Column(Generic[R]):
    """A column of a table."""

    key: str
    """Name in the query."""
    label: str
    value: Callable[[R], Any] | None = None
    """Return what rows are sorted by, None if it is not known; without it, the column cannot be sorted."""
    is_number: bool = False
    about: str = ""
    """Meaning, as a sentence."""


@dataclass(frozen=True)
class Head:
    """The head of a column as it is shown."""

    label: str
    is_number: bool
    about: str
    href: str
    """Address of the table sorted by the column, or the other way round; empty if it cannot be sorted."""
    order: str
    """Value of `aria-sort`: `ascending`, `descending` or `none`."""


@dataclass(frozen=True)
class TablePage(Generic[R]):
    """A page of a sorted table."""

    rows: Sequence[R]
    heads: Sequence[Head]
    first: int
    """Number of the first row on the page, from 1; 0 if there are none."""
    total: int
    earlier: str
    """Address of the page before; empty if there is none."""
    later: str

    @property
    def last(self) -> int:
        """Number of the last row on the page."""
        return self.first + len(self.rows) - 1 if self.rows else 0


def sorted_rows(rows: Iterable[R], columns: Sequence[Column[R]], query: Query) -> list[R]:
    """Return all rows in the order that a query asks for: the rows of all pages.

    Rows whose value is not known come last in either order; rows of equal value stay in theirs.

    Args:
        query: `sort` is the key of a column, with a dash before it for descending order.

    Raises:
        UsageError: `sort` is none of the columns.
    """
    key, is_descending = _order(columns, query)
    by = next((column.value for column in columns if column.key == key), None)
    return list(rows) if by is None else _sorted(list(rows), by, is_descending)


def table_page(
    rows: Iterable[R], columns: Sequence[Column[R]], query: Query, href: Href, size: int = SETTINGS.rows
) -> TablePage[R]:
    """Return the page of a table that a query asks for.

    Args:
        query: `sort`, as for `sorted_rows`; `after` is the number of rows before the page.

    Raises:
        UsageError: `sort` is none of the columns, or `after` is no whole number.
    """
    ordered, (key, is_descending) = sorted_rows(rows, columns, query), _order(columns, query)
    after = min(query.whole("after"), max(0, (len(ordered) - 1) // size * size))
    shown = ordered[after : after + size]
    return TablePage(
        shown,
        [_head(column, key, is_descending, href) for column in columns],
        after + 1 if shown else 0,
        len(ordered),
        href({"after": max(0, after - size) or None}) if after else "",
        href({"after": after + size}) if after + size < len(ordered) else "",
    )


def in_table(address: str) -> str:
    """Return the address of the table of problems on a page; empty if the address is, as in a report without it."""
    return address and f"{address}#problems"


def has_words(problem: Problem, words: Sequence[str]) -> bool:
    """Return whether a problem has all words, which are in lower case, in its canonical text or in its short one."""
    if not words:
        return True
    text = f"{problem.text} {short(problem)}".lower()
    return all(word in text for word in words)


def _order(columns: Sequence[Column[R]], query: Query) -> tuple[str, bool]:
    """Return the key of the column by which rows are sorted, and whether descending. The key may be empty."""
    keys = [column.key for column in columns if column.value is not None]
    given = query.choice("sort", ("", *keys, *(f"-{key}" for key in keys)))
    return given.removeprefix("-"), given.startswith("-")


def _sorted(rows: Sequence[R], by: Callable[[R], Any], is_descending: bool) -> list[R]:
    pairs = [(by(row), row) for row in rows]
    known = sorted((pair for pair in pairs if pair[0] is not None), key=lambda pair: pair[0], reverse=is_descending)
    return [row for _, row in (*known, *(pair for pair in pairs if pair[0] is None))]


def _head(column: Column[R], key: str, is_descending: bool, href: Href) -> Head:
    is_sorted = column.key == key
    order = ("descending" if is_descending else "ascending") if is_sorted else "none"
    descends = not is_descending if is_sorted else column.is_number  # numbers begin with the largest
    address = href({"sort": f"{'-' if descends else ''}{column.key}", "after": None}) if column.value else ""
    return Head(column.label, column.is_number, column.about, address, order)
