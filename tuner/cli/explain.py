"""`tuner explain OP`: the evidence for a stored answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from rich.markup import escape

from tuner.cli.best import find
from tuner.cli.drawing import needs_plotly, plot_option, write_page
from tuner.cli.grid import Output, print_lines
from tuner.cli.op_commands import OpCommands
from tuner.cli.ops import db_option, gpu_option, json_option, open_to_read
from tuner.cli.text import failure_lines, give, print_found, print_json
from tuner.db.database import Database
from tuner.db.store import Store
from tuner.errors import NothingFound
from tuner.kernels.spec import Problem, Signature
from tuner.measure import device
from tuner.records import IMPORTED, Measurement, RooflineLimits, StoredAnswer
from tuner.report.default import default_failure
from tuner.report.explain import explain
from tuner.report.explanation import Candidates, CardRange, Contender, Explanation, Outlook, Roofline
from tuner.report.importance import importances
from tuner.report.occupancy import Occupancy
from tuner.report.text import bytes_text, config_text, count_text, minute_text, seconds_text
from tuner.report.vendor import role_text, vendor_speedup
from tuner.tuning.outlook import outlook_of
from tuner.tuning.roofline import limits_for

_BAR = 24
"""Length of the bar of 100 %, in characters."""


def _explain(
    reference: str,
    signature: Signature,
    problem: Problem,
    *,
    device_id: str | None,
    gpu: str,
    plot: Path | None,
    db: Database | None,
    as_json: bool,
) -> int:
    store = open_to_read(db)
    found = find(store, reference, problem, here=device.choose(gpu), device_id=device_id)
    if found.stored is None:
        give(found, store, as_json)
        return 1
    if found.stored.answer.kind == IMPORTED:
        raise NothingFound(
            f"the answer is imported from {found.stored.imported_from} and nothing was compared here; {found.command}"
        )
    report, measurements, roofline_limits = _report(store, reference, found.stored)
    if plot is not None:
        _write_page(plot, report, measurements, roofline_limits)
    if as_json:
        print_json(found.as_json(store.snapshot) | report.as_json())
    else:
        console = Output()
        print_found(found, vendor_speedup(store, found.stored), console, default_failure(store, found.stored))
        print_lines(_lines(report), console)
    return 0


def _report(
    store: Store, reference: str, stored: StoredAnswer
) -> tuple[Explanation, list[Measurement], RooflineLimits | None]:
    run = store.run(stored.measured_in)
    assert run is not None  # an answer's run is a foreign key
    measurements = store.known_to(run)
    roofline_limits = limits_for(reference, stored.answer.problem, store.roofline_limits(stored.provenance.device))
    importance, missing = _importance(measurements)
    comparison = store.comparison(run.id)
    outlook = outlook_of(reference, stored, measurements, comparison, roofline_limits)
    report = explain(stored, run, comparison, measurements, roofline_limits, importance, missing, outlook)
    return report, measurements, roofline_limits


def _importance(measurements: Sequence[Measurement]) -> tuple[dict[str, float], str]:
    """Return the importance of each knob; if there is none, the reason."""
    try:
        return importances(measurements), ""
    except NothingFound as error:
        return {}, str(error)


def _write_page(
    file: Path, report: Explanation, measurements: Sequence[Measurement], roofline_limits: RooflineLimits | None
) -> None:
    with needs_plotly():
        from tuner.cli.plot import page
    write_page(file, page(report, measurements, roofline_limits))


def _lines(report: Explanation) -> Iterator[str]:
    yield from _comparison(report)
    yield from _candidates(report.candidates)
    yield from _importances(report)
    yield from _roofline(report.roofline)
    yield from _outlook(report.outlook)
    yield from _run(report)


def _head(title: str, about: str = "") -> str:
    return f"\n[bold]{title}[/]{f'  [dim]{escape(about)}[/]' if about else ''}"


def _comparison(report: Explanation) -> Iterator[str]:
    if not report.ladder:
        yield _head("Interleaved comparison", "its rounds are not stored")
        return
    yield _head(
        "Interleaved comparison", f"{report.rounds} rounds; latency, and the answer's speed-up over it, with intervals"
    )
    for number, contender in enumerate(report.ladder, 1):
        low, high = contender.interval_us
        least, most = contender.speedup_interval
        interval, ratios = f"{low:,.2f} - {high:,.2f}", f"{contender.speedup:.3f}  {least:.3f} - {most:.3f}"
        style = "bold green" if "answer" in contender.roles else "default"
        compared = "" if "answer" in contender.roles else ratios
        line = f"{number:3}  {contender.latency_us:9,.2f} us  {interval:>19}  {compared:20}"
        yield f"[{style}]{line}  {', '.join(role_text(role, report.run) for role in contender.roles)}[/]"
        for detail in _details(contender):
            yield f"     {escape(detail)}"
    if any(contender.occupancy for contender in report.ladder):
        yield "     [dim]resident blocks and share of warps per SM, and what limits them[/]"
    yield f"  chosen: {report.chosen}"


def _details(contender: Contender) -> Iterator[str]:
    if contender.measurement is None:
        return
    yield config_text(contender.measurement.config)
    measured, resident = contender.measurement, contender.occupancy
    if measured.registers is None or measured.shared_bytes is None:
        return
    spills = f", {measured.spills:,} B spilled" if measured.spills else ""
    held = "" if resident is None else f": {_held(resident)}"
    yield f"{measured.registers} registers{spills}, {bytes_text(measured.shared_bytes)} shared{held}"


def _held(resident: Occupancy) -> str:
    blocks = count_text(resident.blocks, "block")
    return f"{blocks}, {100 * resident.share:.3g} % of warps ({', '.join(resident.limited_by)})"


def _candidates(candidates: Candidates) -> Iterator[str]:
    if candidates.space is None:
        yield _head("Space", "its size is not stored")
    else:
        yield _head("Space", f"{candidates.space:,} configs")
    yield f"{candidates.comparison:7,}  in the interleaved comparison"
    yield f"{candidates.slower:7,}  measured, and slower"
    yield f"{candidates.beaten:7,}  dropped after one measurement, far slower"
    for failure in candidates.failures:
        yield from failure_lines(failure)
    if candidates.not_tried is not None:
        yield f"{candidates.not_tried:7,}  not tried"
    if candidates.outside:
        yield f"         {candidates.outside:,} of these are from earlier runs, outside this run's space"


def _importances(report: Explanation) -> Iterator[str]:
    if not report.importance:
        yield _head("Knob importance")
        yield f"  {escape(report.importance_missing)}"
        return
    yield _head("Knob importance", "for being among the fastest tenth")
    width = max(map(len, report.importance))
    for name, share in report.importance.items():
        yield f"  {name:{width}}  {100 * share:4.0f} %  [cyan]{'█' * round(_BAR * share)}[/]"


def _roofline(roofline: Roofline | None) -> Iterator[str]:
    yield _head("Roofline")
    if roofline is None:
        yield "  no share: the card's limits are not measured, or an operand is on the host"
        return
    yield (
        f"  {100 * roofline.share:.1f} % of the limit: the problem takes at least {roofline.floor_us:,.2f} us here, "
        f"bound by {roofline.bound}"
    )
    if roofline.missing:
        yield f"  {roofline.missing} is not measured, so it may take more"


def _outlook(outlook: Outlook | None) -> Iterator[str]:
    if outlook is None:
        return
    yield _head("Estimate", "corrected by what was measured")
    if outlook.config is None:
        yield "  no untried config is expected to be faster"
    else:
        yield f"  {100 * outlook.share:.1f} % of the best that seems possible, {outlook.best_us:,.2f} us with"
        yield f"  {escape(config_text(outlook.config))}"
    yield f"  held back by {outlook.limit}; in us, and overlapping:"
    yield f"  {', '.join(f'{name} {us:,.1f}' for name, us in outlook.parts.items())}"


def _run(report: Explanation) -> Iterator[str]:
    stopped = f", stopped by {report.run.stopped}" if report.run.stopped else ""
    yield _head("Run", f"{report.run.id}, started {minute_text(report.run.started_at)} UTC{stopped}")
    yield f"  time: {seconds_text(report.run.seconds)}"
    yield f"  card: {'its state was not recorded' if report.card is None else _card(report.card)}"


def _card(card: CardRange) -> str:
    parts = []
    if card.sm_mhz is not None:
        low, high = card.sm_mhz
        parts.append(f"{low:,} MHz" if low == high else f"{low:,} - {high:,} MHz")
    if card.temperature_c is not None:
        parts.append(f"up to {card.temperature_c} C")
    if card.power_w is not None:
        parts.append(f"up to {card.power_w:.0f} W")
    parts.append(f"clocks throttled by {', '.join(card.throttled)}" if card.throttled else "clocks not throttled")
    return "; ".join([", ".join(parts), *card.marks])


command = OpCommands(
    _explain,
    [
        click.Option(
            ["--device", "device_id"],
            metavar="ID",
            help="Device id.  [default: the GPU here, else the only device stored]",
        ),
        gpu_option,
        plot_option(),
        db_option,
        json_option,
    ],
    name="explain",
    help="Show why the stored config is the best: its comparison, search and roofline limits.",
)
