"""Plots read back as XML, for tests."""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, fromstring

from markupsafe import Markup

SVG = "{http://www.w3.org/2000/svg}"


def read(plot: Markup) -> Element:
    """Return the element of a plot, after checks that hold for each: escaped, finite, named, without scripts."""
    root = fromstring(plot)
    assert not re.search(r"\b(nan|inf|None)\b", " ".join(filter(None, _geometry(root))))
    assert not any(key.startswith("on") or key == "style" for node in root.iter() for key in node.attrib)
    names = {node.get("id") for node in root.iter() if node.get("id")}
    for svg in root.iter(f"{SVG}svg"):
        assert set((svg.get("aria-labelledby") or "").split()) <= names
        assert [child.tag for child in svg][:2] == [f"{SVG}title", f"{SVG}desc"]
        assert svg.get("role") == ("group" if svg.find(f".//{SVG}a") is not None else "img")
    return root


def marks(root: Element, css: str) -> list[Element]:
    """Return the elements with a class."""
    return [node for node in root.iter() if css in (node.get("class") or "").split()]


def tooltips(root: Element) -> list[str]:
    """Return the texts of all tooltips."""
    return [node.text or "" for node in root.iter(f"{SVG}title") if not node.get("id")]


def texts(root: Element) -> list[str]:
    """Return all labels."""
    return [node.text or "" for node in root.iter(f"{SVG}text")]


def _geometry(root: Element) -> list[str | None]:
    names = ("d", "x", "y", "cx", "cy", "r", "width", "height", "transform", "viewBox")
    return [node.get(name) for node in root.iter() for name in names]
