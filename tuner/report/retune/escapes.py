"""Texts of others, such as errors of compilers, without control characters, and escaped for Markdown and HTML."""

from __future__ import annotations

import re
from html import escape

from tuner.report.text import first_line

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
"""Escape sequences of terminals: ECMA-48, and the texts that begin with `ESC ]`."""
_CONTROLS = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
"""Characters that no report file shows: controls, marks that reverse a line, and those that XML does not allow."""
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#$&])")
"""Characters that Markdown, its tables or its formulas would read."""


def plain_text(text: str) -> str:
    """Return a text, such as a compiler's error, without colours and other control characters."""
    return _CONTROLS.sub("", _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def one_line(text: str, longest: int = 300) -> str:
    """Return the first line of a text without control characters."""
    return first_line(plain_text(text).replace("\t", " "), longest)


def joined_lines(text: str) -> str:
    """Return all lines of a text as one, without control characters."""
    return " ".join(plain_text(text).split())


def escaped(text: str) -> str:
    """Return a text on one line, escaped for Markdown and its tables; an `@` is no mention."""
    return _SPECIAL.sub(r"\\\1", joined_lines(text)).replace("@", "@\u200b")


def code(text: str) -> str:
    """Return a text as a code span, also in a table: there a bar is escaped even in code."""
    line = joined_lines(text).replace("|", "\\|")
    if "`" not in line:
        return f"`{line}`"
    ticks = "`" * (1 + max(len(run) for run in re.findall("`+", line)))
    return f"{ticks} {line} {ticks}"


def html(text: str) -> str:
    """Return a text on one line, escaped for HTML."""
    return escape(joined_lines(text), quote=False)


def block(text: str, most: int) -> list[str]:
    """Return a text, cut to `most` characters, as lines of a code block whose fence is longer than any in it."""
    cut = text if len(text) <= most else f"{text[:most]}\n..."
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", cut)), default=0))
    return [f"{fence}text", cut, fence]
