"""The page of `tuner bench --plot`: a suite compared with the vendor and with the card's roofline limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from types import MappingProxyType

import plotly.graph_objects as go

from tuner.cli.bench_rows import mean_lines, untuned_text
from tuner.cli.page import BLUE, GREEN, GREY, INK, ORANGE, blank, html
from tuner.kernels.spec import Dim
from tuner.report.text import short, times
from tuner.tuning.bench_row import Row, vendor_of
from tuner.tuning.bench_summary import summary
from tuner.tuning.spread import BARS, by_device, groups


def _default_us(row: Row) -> float | None:
    """Return the default's latency in us; None if it is the answer or did not run."""
    return row.default.latency_us if row.default is not None and row.kind == "tuned" else None


_SIDES: dict[str, tuple[str, Callable[[Row], float | None]]] = {
    "untuned": (GREY, lambda row: row.untuned()),
    "tuned": (BLUE, lambda row: row.tuned()),
}
"""Colour and speed-up over the fastest vendor, of the default and of the answer that a search found."""
_CONTENDERS: dict[str, tuple[str, str, Callable[[Row], float | None]]] = {
    "vendor": (GREEN, "diamond-open", lambda row: row.vendor.latency_us if row.vendor else None),
    "default": (ORANGE, "circle-open", _default_us),
    "answer": (BLUE, "circle", lambda row: row.latency_us),
}
"""Colour, symbol and latency of each contender; the last is drawn over the others."""


def page(name: str, rows: Sequence[Row], ranged: Mapping[str, Dim] = MappingProxyType({})) -> str:
    """Return an HTML page that needs no network.

    Args:
        ranged: the dim of each op by whose ranges its rows are grouped.
    """
    ran = [row for row in rows if row.ok]
    computing = [row for row in ran if row.flops]
    moving = [row for row in ran if not row.flops]
    figures = {f"Speed-up over {vendor_of(ran)}": (_vendor_words(ran), vendor_figure(ran))}
    if computing:
        words = "Answer, default and vendor of each problem under the card's copy bandwidth and matmul rate."
        figures["Roofline"] = (words, roofline_figure(computing))
    if moving:
        figures["Bandwidth"] = ("The problem's minimum of bytes over the latency.", bandwidth_figure(moving))
    devices = ", ".join(by_device(ran))
    return html(f"{name}  on {devices}", _lead(ran) + _means(ran, ranged), figures)


def vendor_figure(rows: Sequence[Row]) -> go.Figure:
    """Return a figure with two bars for each problem: the speed-ups of default and answer over the fastest vendor."""
    figure = blank(f"{times(vendor_of(rows))}: above 1, ours is faster", "")
    apart = len(by_device(rows)) > 1

    def name(row: Row) -> str:
        return f"{short(row.problem)} on {row.device}" if apart else short(row.problem)

    for side, (colour, speedup) in reversed(_SIDES.items()):  # the last bar of a group is the uppermost
        known = [(row, value) for row in rows if (value := speedup(row)) is not None]
        if not known:
            continue
        figure.add_bar(
            x=[value for _, value in known],
            y=[name(row) for row, _ in known],
            orientation="h",
            name=side,
            marker={"color": colour},
            text=[f"{value:.3f}" for _, value in known],
            textposition="inside",
            insidetextanchor="start",
            textfont={"color": "white"},
            customdata=[row.vendor_name for row, _ in known],
            hovertemplate=f"%{{y}}<br>{side} %{{x:.3f}} x %{{customdata}}<extra></extra>",
        )
    figure.add_vline(x=1, line={"color": INK, "dash": "dash", "width": 1})
    names = [name(row) for row in rows]
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1], showgrid=False, automargin=True)
    figure.update_layout(height=150 + 34 * len(rows), showlegend=True, legend_traceorder="reversed", bargap=0.3)
    figure.update_xaxes(rangemode="tozero")
    return figure


def roofline_figure(rows: Sequence[Row]) -> go.Figure:
    """Return a figure of TFLOP/s by FLOP per byte, on logarithmic axes."""
    figure = blank("arithmetic intensity, FLOP per byte", "TFLOP/s")
    intensities = [row.flops / row.bytes for row in rows]
    for row in {(row.roof.gb_per_s, row.roof.tflops): row for row in rows if row.roof is not None}.values():
        assert row.roof is not None
        peak, gb_per_s = row.roof.tflops, row.roof.gb_per_s
        ridge = max(intensities) if peak is None else 1e3 * peak / gb_per_s
        corners = [min([ridge, *intensities]) / 2, ridge, max([ridge, *intensities]) * 2]
        figure.add_scatter(
            x=corners,
            y=[least * gb_per_s / 1e3 for least in (corners[0], ridge, ridge)],
            mode="lines",
            name=f"{row.problem.dtype}: {'' if peak is None else f'{peak:,.0f} TFLOP/s, '}{gb_per_s:,.0f} GB/s",
            line={"color": INK, "width": 2},
            hoverinfo="skip",
        )
    _add_contenders(figure, rows, intensities, lambda row: row.flops / 1e6, "TFLOP/s")
    figure.update_xaxes(type="log", tickformat=",")
    figure.update_yaxes(type="log", tickformat=",")
    return figure


def bandwidth_figure(rows: Sequence[Row]) -> go.Figure:
    """Return a figure of GB/s by MB moved, for kernels that only move data."""
    figure = blank("MB moved", "GB/s")
    _add_contenders(figure, rows, [row.bytes / 1e6 for row in rows], lambda row: row.bytes / 1e3, "GB/s")
    for gb_per_s in {row.roof.gb_per_s for row in rows if row.roof is not None}:
        figure.add_hline(
            y=gb_per_s, line={"color": INK, "dash": "dash"}, annotation_text=f"device copy, {gb_per_s:,.0f} GB/s"
        )
    figure.update_xaxes(type="log", tickformat=",")
    figure.update_yaxes(rangemode="tozero", tickformat=",")
    return figure


def _add_contenders(
    figure: go.Figure, rows: Sequence[Row], across: Sequence[float], work: Callable[[Row], float], unit: str
) -> None:
    """Add a mark for each contender that ran, at its `work` over its latency in us."""
    for contender, (colour, symbol, latency_us) in _CONTENDERS.items():
        name = vendor_of(rows) if contender == "vendor" else contender
        drawn = [(x, row, taken) for x, row in zip(across, rows, strict=True) if (taken := latency_us(row))]
        figure.add_scatter(
            x=[x for x, _, _ in drawn],
            y=[work(row) / taken for _, row, taken in drawn],
            mode="markers",
            name=name,
            marker={"color": colour, "symbol": symbol, "size": 9, "line": {"color": colour, "width": 2}},
            text=[f"{escape(short(row.problem))}<br>{taken:,.2f} us" for _, row, taken in drawn],
            hovertemplate=f"{name}: %{{text}}, %{{y:,.4g}} {unit}<extra></extra>",
        )


def _vendor_words(rows: Sequence[Row]) -> str:
    if not any(row.vendor is not None for row in rows):
        return f"{vendor_of(rows)} is not measured."
    worst = "; ".join(map(untuned_text, summary(rows).worst_untuned))
    return f"Longer is faster. The worst untuned: {worst}." if worst else "Longer is faster."


def _means(rows: Sequence[Row], ranged: Mapping[str, Dim]) -> str:
    """Return an HTML table of the means of each card and op, of the op's ranges, and of all ops of the card."""
    lines = []
    for device, on_it in by_device(rows).items():
        for group, of_it in groups(on_it, ranged):
            for name, spread in mean_lines(summary(of_it)):
                speeds = (f"{speed:.3f}" for speed in (spread.mean, spread.tenth, spread.least))
                counts = map(str, spread.below.values())
                cells = (device, group, name, str(spread.problems), *speeds, *counts)
                lines.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
    if not lines:
        return ""
    heads = ("device", "op", "speed-ups", "of", "geometric mean", "10th percentile", "least")
    below = (f"below {bar:g}" for bar in BARS)
    lines.insert(0, "".join(f"<th>{head}</th>" for head in (*heads, *below)))
    return "\n<table>\n" + "\n".join(f"<tr>{line}</tr>" for line in lines) + "\n</table>"


def _lead(rows: Sequence[Row]) -> str:
    made = [row.measured_with for row in rows]
    lines = sorted({f"triton {m['triton']}, torch {m['torch']}, driver {m['driver']}" for m in made})
    if replayed := sorted({row.recorded for row in rows if row.recorded is not None}):
        lines.append(f"replayed from {', '.join(replayed)}: measured on that card, not here")
    return "\n".join(f"<p>{escape(line)}</p>" for line in lines)
