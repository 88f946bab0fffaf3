"""The page of `tuner bench --plot`: a suite compared with the vendor and with the card's roofline limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

import plotly.graph_objects as go

from tuner.cli.page import BLUE, GREEN, GREY, INK, ORANGE, blank, html
from tuner.report.text import short, speed_text, times
from tuner.tuning.bench_row import Row, Summary, by_device, summary, vendor_of


def _default_us(row: Row) -> float | None:
    """Return the default's latency in us; None if it is the answer or did not run."""
    return row.default.latency_us if row.default is not None and row.kind == "tuned" else None


_KINDS = {"tuned": BLUE, "default": ORANGE, "untuned": GREY}
_CONTENDERS: dict[str, tuple[str, str, Callable[[Row], float | None]]] = {
    "vendor": (GREEN, "diamond-open", lambda row: row.vendor.latency_us if row.vendor else None),
    "default": (ORANGE, "circle-open", _default_us),
    "answer": (BLUE, "circle", lambda row: row.latency_us),
}
"""Colour, symbol and latency of each contender; the last is drawn over the others."""


def page(name: str, rows: Sequence[Row]) -> str:
    """Return an HTML page that needs no network."""
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
    return html(f"{name}  on {devices}", _lead(ran), figures)


def vendor_figure(rows: Sequence[Row]) -> go.Figure:
    """Return a figure with a bar for each problem: the answer's speed-up over the vendor."""
    figure = blank(f"{times(vendor_of(rows))}: above 1, the answer is faster", "")
    apart = len(by_device(rows)) > 1

    def name(row: Row) -> str:
        return f"{short(row.problem)} on {row.device}" if apart else short(row.problem)

    for kind, colour in _KINDS.items():
        of_kind = [(row, row.vendor) for row in rows if row.kind == kind and row.vendor is not None]
        if not of_kind:
            continue
        figure.add_bar(
            x=[vendor.speedup for _, vendor in of_kind],
            y=[name(row) for row, _ in of_kind],
            orientation="h",
            name=kind,
            marker={"color": colour},
            text=[f"{vendor.speedup:.3f}" for _, vendor in of_kind],
            textposition="inside",
            insidetextanchor="start",
            textfont={"color": "white"},
            customdata=[vendor.speedup_interval for _, vendor in of_kind],
            hovertemplate="%{y}<br>%{x:.3f} (%{customdata[0]:.3f} to %{customdata[1]:.3f})<extra></extra>",
        )
    figure.add_vline(x=1, line={"color": INK, "dash": "dash", "width": 1})
    names = [name(row) for row in rows]
    figure.update_yaxes(categoryorder="array", categoryarray=names[::-1], showgrid=False, automargin=True)
    figure.update_layout(height=150 + 24 * len(rows), showlegend=True, bargap=0.3)
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
    summaries = {device: summary(of_it) for device, of_it in by_device(rows).items()}
    vendor = vendor_of(rows)
    means = [
        f"The geometric mean{f' on {device}' if len(summaries) > 1 else ''} is {', '.join(_speeds(each, vendor))}."
        for device, each in summaries.items()
        if each.vendor_speedup is not None
    ]
    return " ".join(["Longer is faster.", *means]) if means else f"{vendor} is not measured."


def _speeds(totals: Summary, vendor: str) -> list[str]:
    means = {vendor: totals.vendor_speedup, "default": totals.speedup}
    return [speed_text(mean, name) for name, mean in means.items() if mean is not None]


def _lead(rows: Sequence[Row]) -> str:
    made = [row.measured_with for row in rows]
    lines = sorted({f"triton {m['triton']}, torch {m['torch']}, driver {m['driver']}" for m in made})
    if replayed := sorted({row.recorded for row in rows if row.recorded is not None}):
        lines.append(f"replayed from {', '.join(replayed)}: measured on that card, not here")
    return "\n".join(f"<p>{escape(line)}</p>" for line in lines)
