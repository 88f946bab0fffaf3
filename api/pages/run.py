"""The page of one run: a search while it runs, or what it did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from markupsafe import Markup

from tuner.api.pages.answer_facts import address_of
from tuner.api.pages.links import Links
from tuner.api.pages.plots import Heading, best_so_far
from tuner.api.pages.run_facts import (
    MEANINGS,
    bests,
    duration_s,
    failures,
    levels,
    limits_of,
    outcomes,
    points,
    state_of,
    work_text,
)
from tuner.api.pages.site import Content, Query, Site
from tuner.api.pages.texts import ratio
from tuner.db.store import Store
from tuner.errors import UnknownName
from tuner.records import VENDOR, Comparison, StoredRun, median
from tuner.records.device import VERSION_NAMES
from tuner.records.progress import TrialOutline
from tuner.report.text import problem_text, seconds_text, short
from tuner.report.vendor import role_text

_BESTS, _CONTENDERS = 12, 12
"""Rows of improvements and of contenders, at most."""


class Trials:
    """The trials of a run, read once and then only those that are new."""

    def __init__(self, run: int) -> None:
        self._run, self._lock, self._since = run, Lock(), ""
        self._known: dict[str, TrialOutline] = {}

    def read(self, store: Store) -> Sequence[TrialOutline]:
        """Return all trials so far, in the order in which their configs were first measured."""
        with self._lock:
            for trial in store.progress.trials(self._run, self._since):
                self._known[trial.config] = trial
                self._since = max(self._since, trial.ended_at)
            return [*self._known.values()]


@dataclass(frozen=True)
class Contender:
    """A contender of the interleaved comparison."""

    name: str
    latency_us: float
    """Median over the rounds."""
    ratio: float
    """Its latency over that of the fastest."""


def contenders(found: Comparison | None, run: StoredRun) -> list[Contender]:
    """Return the contenders of the comparison of a run, the fastest first."""
    if found is None or not found.rounds:
        return []
    medians = {name: median(found.of(name)) for name in found.timed}
    fastest = min(medians.values(), default=1.0)
    names = {VENDOR: role_text(VENDOR, run), **{contender: name for name, contender in found.vendors.items()}}
    ordered = sorted(medians.items(), key=lambda each: each[1])
    return [Contender(names.get(name, name), value, value / fastest) for name, value in ordered]


def speed_note(best_us: float, default_us: float, *, is_live: bool) -> str:
    """Return how the best trial compares with the default's: `1.31 x the default's speed`."""
    if best_us >= default_us:
        return f"no config {'is' if is_live else 'was'} faster than the default{' yet' if is_live else ''}"
    return f"{ratio(default_us / best_us)} the default's speed"


def read(site: Site, query: Query, links: Links) -> Content:
    """Return the page of the run with an id."""
    number = query.only("id").needed_whole("id")
    run = site.store.run(number)
    if run is None:
        raise UnknownName(f"there is no run {number}")
    trials = site.kept.get(("trials", site.view.tip.uuid, number), lambda: Trials(number)).read(site.store)
    live = site.store.progress.of([number]).get(number) if run.status == "running" else None
    now = datetime.now(UTC)
    state = state_of(run, live, trials[-1].ended_at if trials else "", now)
    limits = limits_of(run.settings)
    seconds = duration_s(run.started_at, run.ended_at or now)
    found, level = bests(trials, run.started_at), levels(trials, run.settings.get("default"))
    values = {
        "run": run,
        "is_live": run.status == "running",
        "state": state,
        "live": live,
        "work": work_text(live) if state.is_running else "",
        "named": problem_text(run.problem),
        "card": run.provenance.device.id,
        "problem_address": address_of(run.problem, run.provenance.device.id),
        "limits": limits,
        "measured": len(trials) + limits.known,
        "own": len(trials),
        "failed": sum(trial.latency_us is None for trial in trials),
        "seconds": seconds,
        "left_s": None if limits.budget_s is None or run.ended_at else max(0.0, limits.budget_s - (seconds or 0.0)),
        "best": found[-1] if found else None,
        "bests": found[: -_BESTS - 1 : -1],
        "speed_note": speed_note(found[-1].latency_us, level[0].latency_us, is_live=state.is_running)
        if level and found
        else "",
        "plot": _plot(site, run, trials),
        "outcomes": outcomes(trials),
        "meanings": MEANINGS,
        "failures": failures(trials),
        "now": now.isoformat(timespec="seconds"),
        **_ended(site.store, run),
        "about": _about(run),
    }
    return Content("run.html", f"Run {number}: {short(run.problem)[:80]}", values)


def _plot(site: Site, run: StoredRun, trials: Sequence[TrialOutline]) -> Markup:
    """Return the plot of the best so far, which is drawn anew only if there are new trials."""

    def draw() -> Markup:
        made, x_label = points(trials, run.started_at)
        about = f"Latency of each of {len(trials):,} trials of run {run.id}, and the best so far."
        given = Heading("best", "Best so far", about)
        return best_so_far(given, made, x_label, levels(trials, run.settings.get("default")))

    newest = max((trial.ended_at for trial in trials), default="")
    return site.kept.get(("best so far", site.view.tip.uuid, run.id, len(trials), newest), draw)


def _ended(store: Store, run: StoredRun) -> Mapping[str, Any]:
    """Return the answers and the comparison of a run that has ended."""
    if run.status == "running":
        return {"answers": [], "contenders": [], "rounds": 0, "more_contenders": 0}
    compared = store.comparison(run.id)
    found = contenders(compared, run)
    return {
        "answers": store.answers_of(run.id),
        "contenders": found[:_CONTENDERS],
        "more_contenders": max(0, len(found) - _CONTENDERS),
        "rounds": 0 if compared is None else len(compared.rounds),
    }


def _about(run: StoredRun) -> list[tuple[str, str]]:
    """Return names and values of the settings and the software of a run."""
    settings, versions = run.settings, run.provenance.as_json()
    shown = {"sampler": "Sampler", "seed": "Seed", "trials": "Configs at most", "space": "Feasible configs"}
    rows = [(label, str(settings[name])) for name, label in shown.items() if settings.get(name) is not None]
    if (default := settings.get("default")) is not None:
        rows.append(("Default", str(default)))
    rows += [(label, str(versions[name])) for name, label in VERSION_NAMES.items() if versions.get(name)]
    rows += [("Policy", run.provenance.policy), ("Source hash", run.provenance.source)]
    if run.seconds:
        rows.append(("Time", seconds_text(run.seconds)))
    return rows
