"""SVG elements as text. Each text and attribute is escaped, and each coordinate is finite."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from markupsafe import Markup, escape

from tuner.report.retune.escapes import plain_text

MAX_TITLE = 400
"""Longest text of a tooltip, in characters."""

Attribute = str | float | None


def element(name: str, *children: str, **attributes: Attribute) -> Markup:
    """Return an element with its children.

    Args:
        name: Name of the element.
        children: Markup, or texts that are escaped.
        attributes: By name: `class_` is `class` and `stroke_width` is `stroke-width`. None leaves one out.

    Raises:
        ValueError: A number is not finite.
    """
    stated = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_attribute(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    if not children:
        return Markup(f"<{name}{stated}/>")
    return Markup(f"<{name}{stated}>{''.join(map(content, children))}</{name}>")


def content(text: str) -> str:
    """Return a text escaped and without control characters. Markup is returned as it is."""
    return text if isinstance(text, Markup) else str(escape(plain_text(text)))


def joined(parts: Iterable[str]) -> Markup:
    """Return several elements or texts as one markup."""
    return Markup("".join(map(content, parts)))


def title(text: str) -> Markup:
    """Return the tooltip of a mark, cut to `MAX_TITLE` characters."""
    return element("title", cut(text, MAX_TITLE))


def link(href: str, *children: str, **attributes: Attribute) -> Markup:
    """Return the children in a link, or in a group if there is no address."""
    if not href:
        return element("g", *children, **attributes)
    return element("a", *children, href=href, **attributes)


def words(x: float, y: float, text: str, class_: str | None = None, anchor: str | None = None) -> Markup:
    """Return a text at a position. `anchor`: `middle` or `end`, else the text begins there."""
    return element("text", text, x=x, y=y, class_=class_, text_anchor=anchor)


def cut(text: str, characters: int) -> str:
    """Return a text of at most `characters`, with an ellipsis in the middle if it is longer."""
    if len(text) <= characters:
        return text
    head = (characters - 1 + 1) // 2
    tail = characters - 1 - head
    return f"{text[:head]}…{text[len(text) - tail :]}"


def number(value: float) -> str:
    """Return a coordinate with one decimal at most.

    Raises:
        ValueError: The coordinate is not finite.
    """
    if not isfinite(value):
        raise ValueError(f"a coordinate is finite, not {value}")
    return f"{value:.1f}".removesuffix(".0")


def _attribute(value: str | float) -> str:
    return str(escape(plain_text(value))) if isinstance(value, str) else number(value)
