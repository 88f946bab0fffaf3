"""Facts of a search, running or ended: its state, its limits, its best so far and its failures. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from tuner.api.pages.plots import Level, TrialPoint
from tuner.db.overview import UnfinishedRun
from tuner.db.settings import SETTINGS as STORE_SETTINGS
from tuner.records import Outcome, StoredRun
from tuner.records.progress import COMPARING, WAITING, LiveRun, TrialOutline
from tuner.report.retune.escapes import plain_text
from tuner.report.text import count_text, first_line


@dataclass(frozen=True)
class RunFactSettings:
    """Limits of what is said of a run."""

    failures: int = 20
    """Kinds of failures that are listed."""
    by_time_s: float = 5.0
    """Duration from which trials are plotted against time; those of a shorter run against their number."""


SETTINGS = RunFactSettings()
LONGEST_ERROR = 10_000
"""Characters of an error that a page shows."""
_STATUSES = {
    "done": ("done", "good"),
    "failed": ("failed", "bad"),
    "interrupted": ("interrupted", "warn"),
}
_STOPPED = {
    "trials": "It measured all configs of its effort.",
    "budget": "Its time was up.",
    "converged": "A better config was not to be expected.",
    "exhausted": "It measured all feasible configs.",
    "interrupted": "It was stopped by hand; its trials are kept.",
    "error": "An error ended it; the log of its process has the text.",
    "contended": "Other processes used the card, so the stored answer is kept.",
    "pinned": "The answer is pinned, so what was found is not stored.",
    "imported": "Its answer was imported; nothing was measured.",
    "rollback": "A rollback restored an earlier answer; nothing was measured.",
    "confirmed": "A retune confirmed the answer.",
}
MEANINGS: Mapping[str, str] = {
    Outcome.OK: "ran, and its outputs are right",
    Outcome.INFEASIBLE: "compiled, and does not fit the card",
    Outcome.COMPILE_ERROR: "did not compile",
    Outcome.OUT_OF_RESOURCES: "the driver refused the launch",
    Outcome.OUT_OF_MEMORY: "device memory was exhausted",
    Outcome.CRASHED: "its process or the CUDA context died",
    Outcome.TIMEOUT: "took too long",
    Outcome.WRONG_RESULT: "its outputs are wrong",
    Outcome.ERROR: "another exception",
}
"""Meaning of each outcome."""


@dataclass(frozen=True)
class State:
    """State of a run, as a badge shows it."""

    text: str
    kind: str
    """`good`, `bad`, `warn` or `plain`."""
    about: str = ""
    """Meaning, as a sentence."""
    is_running: bool = False
    """True if the search is alive, as far as is known."""


def state_of(run: StoredRun, live: LiveRun | None, measured_at: str, now: datetime) -> State:
    """Return the state of a run.

    Args:
        live: its last sign of life; None if there is none.
        measured_at: time of its last trial, empty without one.
        now: time of this host, for runs without a sign of life.
    """
    if run.status != "running":
        text, kind = _STATUSES.get(run.status, (run.status, "plain"))
        return State(text, kind, _STOPPED.get(run.stopped or "", f"stopped by {run.stopped}" if run.stopped else ""))
    if UnfinishedRun(run, measured_at or None, live).is_silent(now):
        return State("no sign of life", "bad", "Its process was probably killed. Its trials are kept.")
    return State("running", "plain", is_running=True)


def seconds_between(then: str, now: datetime | str) -> float:
    """Return the seconds from a time (UTC, ISO 8601) to another; infinite if one cannot be read."""
    try:
        end = datetime.fromisoformat(now) if isinstance(now, str) else now
        return (end - datetime.fromisoformat(then)).total_seconds()
    except (ValueError, TypeError):
        return float("inf")


def duration_s(then: str, now: datetime | str) -> float | None:
    """Return the seconds from a time to another, or None if they are not known or below 0."""
    seconds = seconds_between(then, now)
    return seconds if 0 <= seconds < float("inf") else None


@dataclass(frozen=True)
class Limits:
    """Limits of a search."""

    planned: int | None
    """Number of configs that it measures at most, known ones included; None if it is not stated."""
    space: int | None
    """Number of feasible configs."""
    known: int
    """Number of configs that were measured by earlier runs."""
    budget_s: float | None
    """Time limit in seconds; None if it has none."""


def limits_of(settings: Mapping[str, Any]) -> Limits:
    """Return the limits that the settings of a run state."""
    whole = {name: value for name, value in settings.items() if type(value) is int and value >= 0}
    space, trials = whole.get("space"), whole.get("trials")
    free = whole.get("known_jointly", 0) + whole.get("known_elsewhere", 0)
    most = [number for number in (space, None if trials is None else trials + free) if number is not None]
    budget = settings.get("budget_s")
    seconds = float(budget) if isinstance(budget, int | float) and budget > 0 else None
    return Limits(min(most, default=None), space, whole.get("known", 0), seconds)


def work_text(live: LiveRun | None) -> str:
    """Return what a running search does now, as a sentence."""
    if live is None:
        return "It has not reported what it does yet."
    state = live.state
    if state.stage == COMPARING:
        rounds = count_text(state.rounds, "round")
        return f"It compares the finalists: {rounds} so far, {count_text(state.contenders, 'config')} left."
    compiling = f"{count_text(state.compiling, 'config')} compiling, {state.compiled:,} compiled"
    if state.stage == WAITING:
        return f"It waits for the card, which another search uses: {compiling}."
    return f"It measures: {compiling} and waiting for the card."


def stage_text(live: LiveRun) -> str:
    """Return what a running search does now, in a few words."""
    state = live.state
    if live.age_s > STORE_SETTINGS.silent_s:
        return "no sign of life"
    if state.stage == COMPARING:
        return f"compares finalists, {count_text(state.rounds, 'round')}"
    return "waits for the card" if state.stage == WAITING else "measures"


@dataclass(frozen=True)
class Best:
    """A config that was the fastest so far when it was measured."""

    after_s: float | None
    """Seconds since the run began."""
    number: int
    """Number of trials up to it."""
    latency_us: float
    config: str


def bests(trials: Sequence[TrialOutline], started_at: str) -> list[Best]:
    """Return each improvement, in order."""
    found: list[Best] = []
    for number, trial in enumerate(trials, 1):
        latency_us = trial.latency_us
        if latency_us is not None and latency_us > 0 and (not found or latency_us < found[-1].latency_us):
            found.append(Best(duration_s(started_at, trial.ended_at), number, latency_us, trial.config))
    return found


def outcomes(trials: Sequence[TrialOutline]) -> list[tuple[str, int]]:
    """Return the number of trials of each outcome: `ok` first, then the most frequent."""
    counts = Counter(trial.outcome for trial in trials)
    return sorted(counts.items(), key=lambda each: (each[0] != Outcome.OK, -each[1], each[0]))


@dataclass(frozen=True)
class Failure:
    """Trials that failed in the same way."""

    outcome: str
    stage: str
    count: int
    config: str
    """Canonical text of the newest of them."""
    line: str
    """First line of its error."""
    text: str
    """The error without control characters; empty if the line says all."""

    @property
    def id(self) -> str:
        """Id of its element."""
        return f"failure-{sha256(f'{self.outcome} {self.line}'.encode('utf-8', 'replace')).hexdigest()[:10]}"


def failures(trials: Sequence[TrialOutline], most: int = SETTINGS.failures) -> list[Failure]:
    """Return the failures by outcome and first line of their error, the most frequent first."""
    found: dict[tuple[str, str], tuple[int, TrialOutline]] = {}
    for trial in trials:
        if trial.outcome != Outcome.OK:
            key = trial.outcome, _line(trial.error)
            found[key] = found.get(key, (0, trial))[0] + 1, trial
    ordered = sorted(found.items(), key=lambda each: (-each[1][0], each[0]))
    return [
        Failure(outcome, trial.stage, count, trial.config, line, error_text(trial.error))
        for (outcome, line), (count, trial) in ordered[:most]
    ]


def _line(error: str) -> str:
    return first_line(plain_text(error[:LONGEST_ERROR]).replace("\t", " "), 160)


def error_line(error: str | None) -> str:
    """Return the first line of an error without control characters."""
    return _line(error or "")


def error_text(error: str | None) -> str:
    """Return an error without control characters, cut; an empty text if its first line says all."""
    text = plain_text((error or "")[:LONGEST_ERROR]).strip()
    return "" if text == _line(error or "") else text


def points(trials: Sequence[TrialOutline], started_at: str) -> tuple[list[TrialPoint], str]:
    """Return the points of the plot of the best so far, and the name of its x axis."""
    seconds = [duration_s(started_at, trial.ended_at) or 0.0 for trial in trials]
    by_time = bool(seconds) and max(seconds) >= SETTINGS.by_time_s
    at = seconds if by_time else [float(number) for number in range(1, len(trials) + 1)]
    made = [TrialPoint(x, trial.latency_us, trial.outcome, trial.config) for x, trial in zip(at, trials, strict=True)]
    return made, "seconds" if by_time else "trial"


def levels(trials: Sequence[TrialOutline], default: object) -> list[Level]:
    """Return the latency of the default, if it ran in this run.

    Args:
        default: canonical text of the default's config, as the settings state it.
    """
    return [Level("default", each.latency_us) for each in trials if each.config == default and each.latency_us]
