"""The page that lists searches, the newest first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from tuner.api.pages.answer_facts import address_of
from tuner.api.pages.links import Links
from tuner.api.pages.run_facts import Limits, State, duration_s, limits_of, state_of
from tuner.api.pages.site import SETTINGS, Content, Query, Site
from tuner.db.store import Store
from tuner.records import StoredRun
from tuner.report.text import short


@dataclass(frozen=True)
class Row:
    """A run in the list."""

    run: StoredRun
    state: State
    limits: Limits
    seconds: float | None
    """Its duration so far."""

    @property
    def measured(self) -> int:
        """Number of configs that it knows: its own trials and those taken over."""
        return self.run.trials + self.limits.known


def rows_of(store: Store, runs: Sequence[StoredRun], now: datetime) -> list[Row]:
    """Return the rows of runs."""
    running = [run.id for run in runs if run.status == "running"]
    live = store.progress.of(running) if running else {}
    silent = [run for run in running if run not in live]
    last = {each.run.id: each.measured_at for each in store.overview.unfinished_runs(SETTINGS.rows)} if silent else {}
    return [
        Row(
            run,
            state_of(run, live.get(run.id), last.get(run.id) or "", now),
            limits_of(run.settings),
            None if run.stopped in ("imported", "rollback") else duration_s(run.started_at, run.ended_at or now),
        )
        for run in runs
    ]


def read(site: Site, query: Query, links: Links) -> Content:
    """Return a page of the list; `after` is the id of the run before."""
    after = query.only("after").whole("after") or None
    found = site.store.runs(SETTINGS.rows + 1, after)
    shown = found[: SETTINGS.rows]
    now = datetime.now(UTC)
    rows = rows_of(site.store, shown, now)
    values = {
        "rows": rows,
        "short": short,
        "address_of": address_of,
        "is_live": after is None,
        "first": after is None,
        "next": shown[-1].id if len(found) > len(shown) else None,
        "now": now.isoformat(timespec="seconds"),
    }
    return Content("runs.html", "Runs", values)
