"""The layout of HTML pages with figures. A page needs no network."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

import plotly.graph_objects as go

BLUE, ORANGE, GREEN, RED, GREY = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#8C8C8C"
"""Colours that colour-blind readers can distinguish: Okabe and Ito, "Color Universal Design", 2008."""
INK = "#222"
_FONT = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font-family: {font}; color: #222; max-width: 62rem; margin: 2.5rem auto; padding: 0 1.5rem; line-height: 1.5; }}
h1 {{ font-size: 1.5rem; margin: 0 0 .2rem; }}
h2 {{ font-size: 1.15rem; margin: 2.5rem 0 0; }}
p {{ margin: .2rem 0; color: #555; }}
table {{ border-collapse: collapse; margin: .8rem 0; font-size: .9rem; }}
th, td {{ text-align: left; padding: .15rem .9rem .15rem 0; border-bottom: 1px solid #E8E8E8; }}
code {{ font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: 1rem; color: #222; }}
</style>
</head>
<body>
<h1>{title}</h1>
{lead}
{sections}
</body>
</html>
"""


def html(title: str, lead: str, figures: Mapping[str, tuple[str, go.Figure]]) -> str:
    """Return an HTML page.

    Args:
        title: title of the page, as text.
        lead: HTML under the title.
        figures: for each heading, a sentence on the figure and the figure.
    """
    sections: list[str] = []
    for head, (words, figure) in figures.items():
        drawn = figure.to_html(full_html=False, include_plotlyjs=not sections, config={"displayModeBar": False})
        sections.append(f"<h2>{escape(head)}</h2>\n<p>{escape(words)}</p>\n{drawn}")
    return _PAGE.format(title=escape(title), font=_FONT, lead=lead, sections="\n".join(sections))


def blank(across: str, down: str) -> go.Figure:
    """Return an empty figure with named axes."""
    axis: Mapping[str, Any] = {"gridcolor": "#E8E8E8", "zeroline": False, "linecolor": "#BBB", "ticks": ""}
    return go.Figure(
        layout={
            "template": "plotly_white",
            "font": {"family": _FONT, "size": 14, "color": "#222"},
            "height": 420,
            "margin": {"l": 80, "r": 30, "t": 50, "b": 60},
            "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
            "xaxis": {**axis, "title": {"text": across}},
            "yaxis": {**axis, "title": {"text": down}},
        }
    )
