"""The page of one retune: its summary, its findings by cause, and the conditions then and now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from markupsafe import Markup

from tuner.api.pages.answer_facts import address_of
from tuner.api.pages.links import Links
from tuner.api.pages.nights import CAUSES, state_of
from tuner.api.pages.run_facts import duration_s, error_line, error_text
from tuner.api.pages.site import SETTINGS, Content, Query, Site
from tuner.db.store import Store
from tuner.errors import UnknownName
from tuner.records import VENDOR, VERSION_NAMES
from tuner.records.retune import Cause, Finding, Reading, Retune
from tuner.report.retune.points import points
from tuner.report.retune.summary import RetuneSummary, summarise
from tuner.report.retune.svg import plot
from tuner.report.retune.text import (
    cause_counts,
    change_cell,
    done_text,
    exit_text,
    left_text,
    moved,
    outcome,
    settings_text,
)
from tuner.report.text import short

_PLOTS = 6
"""Findings whose history is drawn, at most: those that moved, the most urgent first."""


@dataclass(frozen=True)
class Report:
    """A retune with what its page shows. Made once for a retune that has ended."""

    retune: Retune
    summary: RetuneSummary
    ordered: Sequence[Finding]
    """Findings that moved, the most urgent first, then the others."""
    plots: Mapping[int, Markup]
    """Histories of problems that moved, by id of the answer that was measured again."""


def report_of(store: Store, retune: Retune) -> Report:
    """Return the report of a retune."""
    first = moved(retune)
    urgent = {finding.answer_id for finding in first}
    calm = [finding for finding in retune.findings if finding.answer_id not in urgent]
    drawn = {finding.answer_id: svg for finding in first[:_PLOTS] if (svg := _history(store, retune, finding))}
    return Report(retune, summarise(retune), [*first, *calm], drawn)


def _history(store: Store, retune: Retune, finding: Finding) -> Markup | None:
    """Return the plot of the latencies of a finding's problem; None if it has fewer than two."""
    stored = store.answer(finding.answer_id)
    if stored is None:
        return None
    device = stored.provenance.device.id
    found = store.retunes.of_problem(finding.problem.text, device)
    earlier = [other for number, other in found if number < retune.id and other != finding]
    times = points(finding, store.history(finding.problem, device), earlier)
    if len(times) < 2:
        return None
    drawn = plot(short(finding.problem), str(finding.cause), times)
    return Markup(drawn.partition("?>\n")[2].replace("<svg ", '<svg class="history" ', 1))


def versions(retune: Retune) -> list[tuple[str, str, str]]:
    """Return the names of the versions with what the answers were stored with, and what they were measured with now."""
    then = [finding.then.provenance.as_json() for finding in retune.findings if finding.then is not None]
    rows = []
    for name, title in {**VERSION_NAMES, "policy": "Policy", "tuner": "Tuner"}.items():
        before = sorted({each[name] for each in then if each[name]})
        more = f" and {len(before) - 3} more" if len(before) > 3 else ""
        rows.append((title, ", ".join(before[:3]) + more, retune.environment.get(name, "")))
    return [row for row in rows if any(row[1:])]


def against_vendor(reading: Reading | None) -> float | None:
    """Return the vendor's latency over that of the answer's config; None if it was not timed."""
    return None if reading is None or VENDOR not in reading.contenders else reading.contenders[VENDOR].ratio


def read(site: Site, query: Query, links: Links) -> Content:
    """Return the page of the retune with an id: `cause` filters its findings, `from` is the place of the first."""
    query = query.only("id", "cause", "from")
    number, cause, start = query.needed_whole("id"), query.choice("cause", ("", *Cause)), query.whole("from")
    outline = site.store.overview.retunes(1, number + 1)
    if not outline or outline[0].id != number:
        raise UnknownName(f"there is no retune {number}")
    found = sum(outline[0].causes.values())
    retune_key = ("retune", site.view.tip.uuid, number, outline[0].status, found)
    report = site.kept.get(retune_key, lambda: _read(site.store, number))
    retune, summary = report.retune, report.summary
    of_cause = [finding for finding in report.ordered if cause in ("", finding.cause)]
    shown = of_cause[start : start + SETTINGS.rows]
    last = site.store.work.last_findings([number]).get(number, "")
    state = state_of(retune.status, retune.started_at, last, datetime.now(UTC))
    values = {
        "retune": retune,
        "summary": summary,
        "state": state,
        "seconds": duration_s(retune.started_at, retune.ended_at or last or retune.started_at),
        "outcome": outcome(summary),
        "sentences": [
            text
            for text in (
                f"{cause_counts(summary)}."
                if summary.causes
                else ("Nothing was measured yet." if state.is_running else "Nothing was measured."),
                left_text(retune, summary) if summary.left else "",
                exit_text(summary),
            )
            if text
        ],
        "settings": settings_text(retune),
        "causes": [(each, count, CAUSES.get(each, "plain")) for each, count in summary.causes.items()],
        "kinds": CAUSES,
        "cause": cause,
        "shown": shown,
        "count": len(of_cause),
        "start": start,
        "rows": SETTINGS.rows,
        "plots": report.plots,
        "versions": versions(retune),
        "short": short,
        "address_of": address_of,
        "change": change_cell,
        "done": done_text,
        "against_vendor": against_vendor,
        "error_line": error_line,
        "error_text": error_text,
    }
    return Content("night.html", f"Retune {number}", values)


def _read(store: Store, number: int) -> Report:
    retune = store.retunes.get(number)
    if retune is None:
        raise UnknownName(f"retune {number} is in the database and cannot be read; the log names what is wrong")
    return report_of(store, retune)
