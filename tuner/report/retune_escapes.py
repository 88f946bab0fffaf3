"""Texts of others in Markdown, where nothing in them is read as Markdown or HTML."""

from __future__ import annotations

import re

from tuner.report.retune_text import plain_text

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|~#$&])")
"""Characters that Markdown, its tables or its formulas would read."""


def escaped(text: str) -> str:
    """Return a text on one line in which Markdown reads nothing, and no name is called by an `@`."""
    line = " ".join(plain_text(text).split())
    return _SPECIAL.sub(r"\\\1", line).replace("@", "@\u200b")


def code(text: str) -> str:
    """Return a text as a code span, also in a table: there a bar is escaped even in code."""
    line = " ".join(plain_text(text).split()).replace("|", "\\|")
    if "`" not in line:
        return f"`{line}`"
    ticks = "`" * (1 + max(len(run) for run in re.findall("`+", line)))
    return f"{ticks} {line} {ticks}"


def html(text: str) -> str:
    """Return a text on one line for HTML."""
    line = " ".join(plain_text(text).split())
    return line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def block(text: str, most: int) -> list[str]:
    """Return a text as a block of code with a fence that it does not hold."""
    cut = text if len(text) <= most else f"{text[:most]}\n..."
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", cut)), default=0))
    return [f"{fence}text", cut, fence]
