"""States of the searches that run: each writes its own while it runs, and removes it at its end.

The state of a search that was killed stays. Its age shows that it is not written any more.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, select

from tuner.db import schema
from tuner.db.opening import OpenDatabase
from tuner.db.unreadable import UnreadableRows
from tuner.db.writes import INSERTS
from tuner.errors import UsageError
from tuner.records.progress import STAGES, LiveRun, RunState, TrialOutline
from tuner.records.strict import JsonObject


class Progress:
    """The states of the searches of a store, which makes it.

    Args:
        unreadable: Is given the rows that cannot be read.
    """

    def __init__(self, opened: OpenDatabase, unreadable: UnreadableRows) -> None:
        self._read, self._put, self._unreadable = opened.read, opened.put, unreadable
        self._now, self._insert = opened.database.text_of_now, INSERTS[opened.engine.dialect.name]

    def write(self, runs: Collection[int], host: str, state: RunState) -> None:
        """Write the state of runs that one search belongs to, in place of that before."""
        row = schema.RunStateRow
        about = {"host": host, "state": asdict(state), "at": self._now()}
        put = self._insert(row).values([{"run_id": run, **about} for run in runs])
        changed = {name: put.excluded[name] for name in about}
        self._put(put.on_conflict_do_update(index_elements=["run_id"], set_=changed))

    def remove(self, runs: Collection[int]) -> None:
        """Remove the state of runs that end."""
        self._put(delete(schema.RunStateRow).where(schema.RunStateRow.run_id.in_(runs)))

    def of(self, runs: Collection[int]) -> dict[int, LiveRun]:
        """Return the last signs of life of those of these runs that have one, by run."""
        row = schema.RunStateRow
        query = select(row.id, row.run_id, row.host, row.state, row.at, self._now().label("now"))
        with self._read() as connection:
            rows: Iterable[Row[Any]] = connection.execute(query.where(row.run_id.in_(runs)))
            found = self._unreadable.read("run_states", rows, _live_run)
        return {live.run: live for live in found}

    def trials(self, run: int, since: str = "") -> Sequence[TrialOutline]:
        """Return the trials of a run in order, those that ended at a time or later if it is given.

        Args:
            since: UTC, ISO 8601.
        """
        row = schema.TrialRow
        columns = (row.id, row.config_text, row.outcome, row.stage, row.error, row.latency_us, row.ended_at)
        query = select(*columns).where(row.run_id == run, row.ended_at >= since).order_by(row.ended_at, row.id)
        with self._read() as connection:
            rows: Iterable[Row[Any]] = connection.execute(query)
            return self._unreadable.read("trials", rows, _outline)


def _live_run(row: Row[Any]) -> LiveRun:
    """Return the state of a row of `run_states`. Raises UsageError if it cannot be read."""
    given = JsonObject(dict(row._mapping), "a state")
    state, at = given.object("state"), given.text("at")
    if (stage := state.text("stage")) not in STAGES:
        raise UsageError(f"the stage of a search is {', '.join(STAGES)}, not {stage[:40]!r}")
    age = datetime.fromisoformat(given.text("now")) - datetime.fromisoformat(at)
    counts = {name: state.whole(name) for name in ("compiling", "compiled", "rounds", "contenders")}
    measuring = state.optional("measuring", state.any_text)
    return LiveRun(
        given.whole("run_id"),
        RunState(stage, measuring=measuring, **counts),
        given.text("host"),
        at,
        age.total_seconds(),
    )


def _outline(row: Row[Any]) -> TrialOutline:
    """Return the outline of a row of `trials`. Raises UsageError if it cannot be read."""
    given = JsonObject(dict(row._mapping), "a trial")
    return TrialOutline(
        config=given.any_text("config_text"),
        outcome=given.text("outcome"),
        stage=given.any_text("stage"),
        error=given.any_text("error"),
        latency_us=given.optional("latency_us", given.measured),
        ended_at=given.text("ended_at"),
    )
