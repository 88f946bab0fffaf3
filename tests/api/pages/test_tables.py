"""Tables sorted and paged by the server, and their CSV."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from io import StringIO

import pytest
from stored import SCALE

from tuner.api.pages.csv_text import csv_bytes
from tuner.api.pages.site import Query
from tuner.api.pages.tables import Column, TablePage, has_words, sorted_rows, table_page
from tuner.errors import UsageError
from tuner.report.text import short

Row = tuple[str, float | None]
COLUMNS: tuple[Column[Row], ...] = (
    Column("name", "Name", lambda row: row[0]),
    Column("size", "Size", lambda row: row[1], True, "In metres"),
    Column("note", "Note"),
)
ROWS: list[Row] = [("b", 2.0), ("a", None), ("d", 1.0), ("c", 3.0), ("e", None)]


def page(size: int = 2, **given: str) -> TablePage[Row]:
    def href(changed: Mapping[str, object]) -> str:
        return "&".join(f"{name}={value}" for name, value in {**given, **changed}.items() if value is not None)

    return table_page(ROWS, COLUMNS, Query(given), href, size)


def names(**given: str) -> str:
    return "".join(name for name, _ in sorted_rows(ROWS, COLUMNS, Query(given)))


class TestOrder:
    def test_without_a_query_rows_stay_in_their_order(self) -> None:
        assert names() == "badce"

    def test_unknown_values_come_last_in_both_orders(self) -> None:
        assert names(sort="size") == "dbcae"
        assert names(sort="-size") == "cbdae"
        assert names(sort="-name") == "edcba"

    @pytest.mark.parametrize("sort", ["note", "other", "--size", "-"])
    def test_an_unknown_order_is_an_error(self, sort: str) -> None:
        with pytest.raises(UsageError, match="sort is one of"):
            names(sort=sort)


def test_a_problem_is_found_by_its_name_as_the_pages_show_it() -> None:
    known = SCALE.problem({"M": 16, "N": 4096})
    for words in ((), ("16", "x", "4096"), ("m=16", "scale"), tuple(short(known).split())):
        assert has_words(known, words), words
    assert not has_words(known, ("16", "5"))


class TestPage:
    def test_pages_follow_each_other(self) -> None:
        first, second, third = page(), page(after="2"), page(after="4", sort="size")
        assert (first.first, first.last, first.total, first.earlier, first.later) == (1, 2, 5, "", "after=2")
        assert (second.first, second.last, second.earlier, second.later) == (3, 4, "", "after=4")
        assert (third.rows, third.earlier, third.later) == ([("e", None)], "after=2&sort=size", "")

    def test_a_page_beyond_the_end_is_the_last_one(self) -> None:
        assert page(after="999").rows == page(after="4").rows

    def test_a_table_without_rows_has_no_pages(self) -> None:
        empty = table_page([], COLUMNS, Query({}), lambda changed: "x")
        assert (empty.first, empty.last, empty.total, empty.earlier, empty.later) == (0, 0, 0, "", "")

    def test_heads_sort_and_turn_the_order_round(self) -> None:
        name, size, note = page(after="2").heads
        assert (name.order, name.href) == ("none", "sort=name")
        assert (size.order, size.href, size.about) == ("none", "sort=-size", "In metres")  # numbers: the largest first
        assert (note.order, note.href) == ("none", "")
        assert [page(sort=sort).heads[1].href for sort in ("size", "-size")] == ["sort=-size", "sort=size"]
        assert [page(sort=sort).heads[1].order for sort in ("size", "-size")] == ["ascending", "descending"]


class TestCSV:
    @pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "=cmd|' /C calc'!A0"])
    def test_no_text_is_a_formula(self, text: str) -> None:
        (head, row) = csv.reader(StringIO(csv_bytes([text], [[text]]).decode(), newline=""))
        assert head == row == [f"'{text}"]

    def test_texts_are_quoted_and_numbers_are_not(self) -> None:
        found = csv_bytes(["a", "b"], [['x "y", z', -1.5], ["line\nbreak", None], ["\u202eש", 3], [True, "\0"]])
        assert found.startswith(b'a,b\r\n"x ""y"", z",-1.5\r\n')
        rows = list(csv.reader(StringIO(found.decode(), newline="")))
        assert rows[1:] == [['x "y", z', "-1.5"], ["line\nbreak", ""], ["\u202eש", "3"], ["True", "\ufffd"]]
