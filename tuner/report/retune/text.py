"""Short texts of findings, shared by the terminal and the report files."""

from __future__ import annotations

from typing import Any

from tuner.kernels.spec import Config
from tuner.records.retune import Action, Cause, Contender, Finding, Reading, Retune
from tuner.report.retune.escapes import one_line
from tuner.report.retune.summary import RetuneSummary, change
from tuner.report.text import config_text, count_text, interval_text, ratio_text, us_text

_ORDER = (
    Cause.BROKEN,
    Cause.SLOWER_CODE,
    Cause.SLOWER_MACHINE,
    Cause.ORDER,
    Cause.FASTER_CODE,
    Cause.FASTER_MACHINE,
    Cause.METHOD,
    Cause.UNCHANGED,
    Cause.NOT_MEASURED,
)
"""Causes, the most urgent first."""
_COUNT_ORDER = (*_ORDER[-2::-1], Cause.NOT_MEASURED)
"""Causes in the order in which they are counted."""


def moved(retune: Retune) -> list[Finding]:
    """Return the findings to show one by one, the most urgent first: see `is_moved`."""
    return sorted(filter(is_moved, retune.findings), key=lambda finding: _ORDER.index(finding.cause))


def is_moved(finding: Finding) -> bool:
    """Return whether a finding is shown by itself, since a change was found or made. Others are only counted."""
    is_calm = finding.cause in (Cause.UNCHANGED, Cause.METHOD, Cause.NOT_MEASURED)
    return not is_calm or finding.action in (Action.REPLACED, Action.RETIRED)


def cause_counts(summary: RetuneSummary) -> str:
    """Return `52 unchanged, 2 slower (kernel or compiler), 1 broken`."""
    return ", ".join(f"{summary.causes[cause]:,} {_of(cause)}" for cause in _COUNT_ORDER if cause in summary.causes)


def action_counts(summary: RetuneSummary) -> str:
    """Return `2 replaced (1.043 x as fast on average), 3 confirmed`; empty if all were kept."""
    parts = []
    for action in (Action.REPLACED, Action.RETIRED, Action.CONFIRMED):
        if count := summary.actions.get(action, 0):
            gain = action is Action.REPLACED and summary.gain is not None
            average = " on average" if count > 1 else ""
            parts.append(f"{count:,} {action}" + (f" ({summary.gain:.3f} x as fast{average})" if gain else ""))
    return ", ".join(parts)


def _of(cause: Cause) -> str:
    head, _, why = cause.partition(": ")
    return f"{head} ({why})" if why else head


def outcome(summary: RetuneSummary) -> str:
    """Return the outcome of a retune in a few words, for a heading."""
    failed = len(summary.not_measured)
    parts = [count_text(len(summary.regressions), "regression")] if summary.regressions else []
    parts += [f"{failed:,} not measured"] * bool(failed)
    parts += [summary.status] * (summary.status in ("interrupted", "failed", "running"))
    return ", ".join(parts) or "no regressions"


def exit_text(summary: RetuneSummary) -> str:
    """Return the exit code with its meaning, as a sentence."""
    if summary.status == "interrupted":
        return "Interrupted (exit code 130): the same command continues from here."
    if summary.status == "failed" and not summary.regressions:
        return "The retune failed before its end; no regressions were found so far."
    match summary.exit_code:
        case 0:
            return "No regressions (exit code 0)."
        case 1:
            return "Something could not be measured, and no regressions were found (exit code 1)."
    found = f"{count_text(len(summary.regressions), 'regression')} found (exit code {summary.exit_code})"
    return f"{found}, {f'{len(summary.unrepaired):,} not' if summary.unrepaired else 'all'} repaired."


def machine_text(summary: RetuneSummary) -> str:
    """Return a sentence on the median of all latencies, of the vendor if it was timed; empty if it is not known."""
    if summary.machine is None:
        return ""
    return f"Latencies on this card are {summary.machine:.3f} x those stored (median)."


def left_text(retune: Retune, summary: RetuneSummary) -> str:
    """Return a sentence on the answers that are planned and have no finding."""
    if retune.status in ("interrupted", "running"):
        return f"{summary.left:,} not reached: the same command continues with them within 24 hours."
    why = "the retune failed" if retune.status == "failed" else "the budget was spent"
    return f"{summary.left:,} not reached, since {why}: the least valuable ones."


def settings_text(retune: Retune) -> str:
    """Return the settings that are on, `stale, threshold 0.02, budget 1200`; empty without any."""
    shown = {name: value for name, value in retune.settings.items() if value not in (None, False, "", 0, [], ())}
    return one_line(", ".join(map(_setting, shown, shown.values())))


def _setting(name: str, value: Any) -> str:
    words, unit = (name[:-2], " s") if name.endswith("_s") else (name, "")
    text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
    return words.replace("_", " ") + ("" if value is True else f" {text}{unit}")


def latency_cell(reading: Reading | None) -> str:
    """Return `179.20 us (178.80 - 179.90)`, with the marks of the rounds; empty without a reading."""
    if reading is None:
        return ""
    marks = f", {', '.join(reading.marks)}" if reading.marks else ""
    return f"{us_text(reading.latency_us)} ({interval_text(reading.interval_us, 2)}){marks}"


def change_cell(finding: Finding) -> str:
    """Return `+11.2 %`, the change of the latency; empty if it cannot be compared."""
    factor = change(finding)
    return "" if factor is None else f"{100 * (factor - 1):+.1f} %"


def ratio_cell(contender: Contender | None) -> str:
    """Return `1.102 (1.100 - 1.104)`; empty without a contender."""
    if contender is None:
        return ""
    return ratio_text(contender.ratio, contender.interval)


def done_text(finding: Finding, *, short: bool = False) -> str:
    """Return what was done: `replaced by answer 42, 1.043 x as fast (1.040 - 1.046)`; without the interval if short."""
    interval = None if short else finding.gain_interval
    gain = "" if finding.gain is None else ratio_text(finding.gain, interval, "x as fast")
    match finding.action:
        case Action.REPLACED:
            by = "" if finding.new_answer_id is None else f" by answer {finding.new_answer_id}"
            return f"replaced{by}{', ' if gain else ''}{gain}"
        case Action.CONFIRMED:
            return "confirmed" + ("" if finding.new_answer_id is None else f" as answer {finding.new_answer_id}")
        case Action.RETIRED:
            return "retired: no config works"
    pinned = ", pinned" if finding.pinned else ""
    if not finding.searched:
        return f"kept{pinned}"
    found = f"the fastest of {finding.searched:,} configs is {gain}" if gain else f"{finding.searched:,} configs tried"
    return f"kept{pinned}; {found}"


def config_line(config: Config | None) -> str:
    """Return a config on one line with single spaces; empty for None."""
    return "" if config is None else " ".join(config_text(config).split())
