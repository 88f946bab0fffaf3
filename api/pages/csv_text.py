"""Rows as CSV that spreadsheets open without running anything."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from io import StringIO

_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")
"""Characters at the beginning of a text by which a spreadsheet takes it for a formula."""


def csv_bytes(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> bytes:
    """Return a table as CSV in UTF-8, by RFC 4180. None is an empty field.

    A text that a spreadsheet would take for a formula gets an apostrophe before it.
    """
    text = StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(map(_cell, heads))
    writer.writerows([_cell(value) for value in row] for row in rows)
    return text.getvalue().encode("utf-8", "replace")


def _cell(value: object) -> object:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return "" if value is None else value
    text = str(value).replace("\0", "\N{REPLACEMENT CHARACTER}")
    return f"'{text}" if text.startswith(_FORMULAS) else text
