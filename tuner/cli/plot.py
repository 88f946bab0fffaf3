"""The page of `tuner explain --plot`, with figures of the search, the landscape and the roofline."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import accumulate

import plotly.graph_objects as go

from tuner.cli.page import BLUE, GREEN, GREY, ORANGE, RED, blank, html
from tuner.kernels.spec import Config, Value
from tuner.kernels.values import ordering
from tuner.records import Measurement, RooflineLimits
from tuner.report.explanation import Contender, Explanation
from tuner.report.text import basis_text, config_text, first_line, latency_text, problem_text, speed_text
from tuner.report.vendor import role_text

_ROLES = {"answer": BLUE, "default": ORANGE, "vendor": GREEN}
_MIN_SPAN, _MAX_SPAN = 1.2, 3.0
"""Limits of the landscape's slowest colour, as latency over the best."""
_NARROW = 6.0
"""Largest ratio of latencies for which the logarithmic axis has a label at every digit, not only at 1, 2 and 5."""


def page(report: Explanation, measurements: Sequence[Measurement], roofline_limits: RooflineLimits | None) -> str:
    """Return an HTML page that needs no network."""
    figures = {
        "The search": (_search_words(report), search_figure(report, measurements)),
        "The landscape": (_landscape_words(report), landscape_figure(report, measurements)),
        "The card's limits": (_limits_words(report, roofline_limits), limits_figure(report, roofline_limits)),
    }
    title = f"{problem_text(report.answer.problem)}  on {report.run.provenance.device.name}"
    return html(title, _lead(report), figures)


def search_figure(report: Explanation, measurements: Sequence[Measurement]) -> go.Figure:
    """Return a figure of the latency of each config in the order of measuring, the best so far, and failures."""
    numbered = list(enumerate(measurements, 1))
    ran = [(number, measurement) for number, measurement in numbered if measurement.ok]
    failed = [(number, measurement) for number, measurement in numbered if not measurement.ok]
    figure = blank("config, in the order of measuring", "latency, us")
    figure.add_scatter(
        x=[number for number, _ in ran],
        y=[measurement.latency_us for _, measurement in ran],
        mode="markers",
        name="a config",
        marker={"color": GREY, "size": 6, "opacity": 0.6},
        text=[_knobs(measurement.config) for _, measurement in ran],
        hovertemplate="%{y:,.2f} us<br>%{text}<extra></extra>",
    )
    best = list(accumulate((measurement.latency_us for _, measurement in numbered), min))
    first = next((index for index, latency_us in enumerate(best) if latency_us < float("inf")), len(best))
    figure.add_scatter(
        x=[number for number, _ in numbered][first:],
        y=best[first:],
        mode="lines",
        name="best so far",
        line={"color": BLUE, "width": 3, "shape": "hv"},
        hovertemplate="best of %{x}: %{y:,.2f} us<extra></extra>",
    )
    if failed:
        slowest = max((measurement.latency_us for _, measurement in ran), default=1.0)
        figure.add_scatter(
            x=[number for number, _ in failed],
            y=[1.15 * slowest] * len(failed),
            mode="markers",
            name="failed",
            marker={"color": RED, "size": 8, "symbol": "x"},
            text=[f"{m.outcome}: {escape(first_line(m.error))}<br>{_knobs(m.config)}" for _, m in failed],
            hovertemplate="%{text}<extra></extra>",
        )
    taken_over = len(measurements) - report.run.trials
    if 0 < taken_over < len(measurements):
        figure.add_vline(
            x=taken_over + 0.5, line={"color": GREY, "dash": "dot"}, annotation_text="measured by this run"
        )
    latencies = [measurement.latency_us for _, measurement in ran]
    narrow = not latencies or max(latencies) < _NARROW * min(latencies)
    figure.update_yaxes(type="log", dtick="D1" if narrow else "D2", tickformat=",")
    return figure


def landscape_figure(report: Explanation, measurements: Sequence[Measurement]) -> go.Figure:
    """Return a figure of the best latency by the two most important knobs."""
    across, down = knobs_drawn(report)
    best: dict[tuple[Value, Value], Measurement] = {}
    for measurement in sorted((m for m in measurements if m.ok), key=lambda m: -m.latency_us):
        best[measurement.config[across], measurement.config[down]] = measurement
    columns = sorted({column for column, _ in best}, key=ordering)
    rows = sorted({row for _, row in best}, key=ordering)
    fastest = min((measurement.latency_us for measurement in best.values()), default=1.0)
    slownesses = [measurement.latency_us / fastest for measurement in best.values()]
    found = [[best.get((column, row)) for column in columns] for row in rows]
    figure = blank(across, down)
    figure.add_heatmap(
        x=list(map(str, columns)),
        y=list(map(str, rows)),
        z=[[None if m is None else m.latency_us / fastest for m in line] for line in found],
        text=[["" if m is None else f"{m.latency_us:,.4g}" for m in line] for line in found],
        customdata=[["" if m is None else _knobs(m.config) for m in line] for line in found],
        texttemplate="%{text}",
        hovertemplate="%{text} us, %{z:.2f} times the best<br>%{customdata}<extra></extra>",
        hoverongaps=False,
        colorscale="Cividis",
        reversescale=True,
        zmin=1,
        zmax=min(_MAX_SPAN, max([_MIN_SPAN, *slownesses])),
        xgap=2,
        ygap=2,
        colorbar={"title": {"text": "times<br>the best"}, "outlinewidth": 0, "thickness": 14},
    )
    figure.update_xaxes(type="category", showgrid=False)
    figure.update_yaxes(type="category", showgrid=False)
    return figure


def limits_figure(report: Explanation, roofline_limits: RooflineLimits | None) -> go.Figure:
    """Return a roofline if the problem has FLOP, else bars of bandwidth beside the card's copy."""
    answer = report.answer
    peak = None if roofline_limits is None else roofline_limits.tflops.get(roofline_limits.arithmetic(answer.problem))
    if answer.flops and roofline_limits is not None and peak is not None:
        return _roofline(report, roofline_limits, peak)
    work, unit = (answer.flops / 1e6, "TFLOP/s") if answer.flops else (answer.bytes / 1e3, "GB/s")
    shown = _drawn(report)
    figure = blank(unit, "")
    figure.add_bar(
        x=[work / contender.latency_us for contender in shown.values()],
        y=[role_text(role, report.run) for role in shown],
        orientation="h",
        marker={"color": [_ROLES[role] for role in shown]},
        text=[f"{work / contender.latency_us:,.4g} {unit}" for contender in shown.values()],
        width=0.55,
        hovertemplate="%{text}<extra></extra>",
        showlegend=False,
    )
    if roofline_limits is not None and not answer.flops:
        figure.add_vline(
            x=roofline_limits.copy_gb_per_s,
            line={"color": "#222", "dash": "dash"},
            annotation_text=f"device copy, {roofline_limits.copy_gb_per_s:,.0f} GB/s",
        )
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(rangemode="tozero", tickformat=",")
    return figure


def knobs_drawn(report: Explanation) -> tuple[str, str]:
    """Return the two most important knobs, or the signature's first two if importance is unknown."""
    across, down = [*report.importance, *(knob.name for knob in report.run.signature.knobs)][:2]
    if across == down:  # only one knob has two values
        down = next(knob.name for knob in report.run.signature.knobs if knob.name != across)
    return across, down


def _roofline(report: Explanation, roofline_limits: RooflineLimits, peak: float) -> go.Figure:
    answer = report.answer
    intensity, ridge = answer.flops / answer.bytes, 1e3 * peak / roofline_limits.copy_gb_per_s
    left, right = min(intensity, ridge) / 4, max(intensity, ridge) * 4
    figure = blank("arithmetic intensity, FLOP per byte", "TFLOP/s")
    figure.add_scatter(
        x=[left, ridge, right],
        y=[left * roofline_limits.copy_gb_per_s / 1e3, peak, peak],
        mode="lines",
        name=f"the card: {peak:,.0f} TFLOP/s, {roofline_limits.copy_gb_per_s:,.0f} GB/s",
        line={"color": "#222", "width": 2},
        hoverinfo="skip",
    )
    for role, contender in _drawn(report).items():
        reached = answer.flops / contender.latency_us / 1e6
        figure.add_scatter(
            x=[intensity],
            y=[reached],
            mode="markers",
            name=f"{role_text(role, report.run)}: {reached:,.4g} TFLOP/s",
            marker={"symbol": "line-ew", "size": 24, "line": {"color": _ROLES[role], "width": 3}},
            hovertemplate=f"{role_text(role, report.run)}<br>%{{y:,.4g}} TFLOP/s<extra></extra>",
        )
    figure.update_xaxes(type="log", dtick="D2" if right / left < 1000 else 1, tickformat=",")
    figure.update_yaxes(type="log", dtick="D2", tickformat=",")
    return figure


def _drawn(report: Explanation) -> dict[str, Contender]:
    """Return answer, default and vendor by role, as far as compared; a default that is the answer is the answer."""
    named: dict[str, Contender] = {}
    for role in _ROLES:
        for contender in report.ladder:
            if role in contender.roles and contender not in named.values():
                named[role] = contender
    return named


def _lead(report: Explanation) -> str:
    answer, recorded = report.answer, report.run.provenance.recorded
    kind = "the kernel's default" if answer.kind == "default" else answer.kind
    faster = ""
    if answer.kind != "default" and answer.speedup is not None:
        faster = f", {speed_text(answer.speedup, 'default')}"
    lines = [
        f"<code>{escape(config_text(answer.config))}</code>",
        f"{kind}, {latency_text(answer)}{faster}",
    ]
    if basis := basis_text(answer):
        lines.append(f"{basis}: the outputs are equal to those of other configs; there is no reference")
    if recorded is not None:
        lines.append(escape(f"replayed from {recorded}: measured on {report.run.provenance.device.name}, not here"))
    return "\n".join(f"<p>{line}</p>" for line in lines)


def _search_words(report: Explanation) -> str:
    known, space = report.candidates, report.candidates.space
    tried = known.comparison + known.slower + known.beaten + known.failed
    failed = f"; {known.failed:,} failed" if known.failed else ""
    return f"{tried:,} configs{f' of {space:,}' if space else ''} were tried{failed}."


def _landscape_words(report: Explanation) -> str:
    across, down = knobs_drawn(report)
    chosen = "the two most important knobs" if report.importance else "two knobs"
    return f"Latency in us by {across} and {down}, {chosen}. Each cell has the best measurement over all other knobs."


def _limits_words(report: Explanation, roofline_limits: RooflineLimits | None) -> str:
    if roofline_limits is None or report.roofline is None:
        return "The roofline limits of the card are not measured, or an operand is on the host."
    roofline = report.roofline
    return f"The answer reaches {100 * roofline.share:.1f} % of what the card's {roofline.bound} allows."


def _knobs(config: Config) -> str:
    return escape(config_text(config).replace("  ", ", "))
