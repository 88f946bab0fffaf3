"""The page that lists retunes, the newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tuner.api.pages.links import Links
from tuner.api.pages.run_facts import State, duration_s, seconds_between
from tuner.api.pages.site import SETTINGS, Content, Query, Site
from tuner.db.overview import RetuneOutline
from tuner.db.settings import SETTINGS as STORE_SETTINGS
from tuner.records.retune import Action, Cause

_STATUSES = {"done": "good", "failed": "bad", "interrupted": "warn"}
CAUSES: Mapping[Cause, str] = {
    Cause.BROKEN: "bad",
    Cause.SLOWER_CODE: "bad",
    Cause.SLOWER_MACHINE: "bad",
    Cause.ORDER: "warn",
    Cause.NOT_MEASURED: "warn",
    Cause.FASTER_CODE: "good",
    Cause.FASTER_MACHINE: "good",
}
"""Kinds of badges by cause; the other causes are plain."""


@dataclass(frozen=True)
class Row:
    """A retune in the list."""

    about: RetuneOutline
    state: State
    seconds: float | None
    """Its duration so far."""

    @property
    def causes(self) -> list[tuple[Cause, int, str]]:
        """Causes that are no calm ones, each with its number and its kind of badge."""
        return [(cause, count, CAUSES[cause]) for cause in CAUSES if (count := self.about.causes.get(cause, 0))]

    @property
    def retired(self) -> int:
        """Number of answers that were retired."""
        return self.about.actions.get(Action.RETIRED, 0)


def state_of(status: str, started_at: str, last_at: str, now: datetime) -> State:
    """Return the state of a retune.

    Args:
        last_at: time of its last finding; empty without one.
    """
    if status != "running":
        return State(status, _STATUSES.get(status, "plain"))
    if seconds_between(max(started_at, last_at), now) > STORE_SETTINGS.abandoned_min * 60:
        minutes = f"{STORE_SETTINGS.abandoned_min:g} minutes"
        return State("no sign of life", "bad", f"It wrote no finding for {minutes}; its process was probably killed.")
    return State("running", "plain", is_running=True)


def rows_of(outlines: Sequence[RetuneOutline], last: Mapping[int, str], now: datetime) -> list[Row]:
    """Return the rows of retunes.

    Args:
        last: times of their last findings, by id.
    """
    rows = []
    for each in outlines:
        state = state_of(each.status, each.started_at, last.get(each.id, ""), now)
        end = each.ended_at or (now if state.is_running else last.get(each.id, each.started_at))
        rows.append(Row(each, state, duration_s(each.started_at, end)))
    return rows


def read(site: Site, query: Query, links: Links) -> Content:
    """Return a page of the list; `after` is the id of the retune before."""
    after = query.only("after").whole("after") or None
    found = site.store.overview.retunes(SETTINGS.rows + 1, after)
    shown = found[: SETTINGS.rows]
    running = [each.id for each in shown if each.status == "running"]
    last = site.store.work.last_findings(running) if running else {}
    values = {
        "rows": rows_of(shown, last, datetime.now(UTC)),
        "first": after is None,
        "next": shown[-1].id if len(found) > len(shown) else None,
    }
    return Content("nights.html", "Nights", values)
