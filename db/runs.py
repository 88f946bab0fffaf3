"""Runs of a store, with their trials and comparisons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import Connection, Row, select, true

from tuner.db import schema
from tuner.db.part import Part
from tuner.db.queries import runs_of, select_runs, select_trials
from tuner.db.rows import (
    comparison_of,
    earlier_search_from,
    measurement_from,
    round_from,
    settled,
    trial_values,
    utc_now,
)
from tuner.db.settings import LARGEST_ID
from tuner.db.writes import INSERTS, end_run, insert_row, kernel_id, known_kernel, run_values
from tuner.errors import UnknownName
from tuner.kernels.spec import Problem, Signature
from tuner.records import Comparison, EarlierSearch, Measurement, Provenance, StoredRun

_PUT_TRIAL = {
    dialect: made.on_conflict_do_update(
        index_elements=["run_id", "config_text"],
        set_={each.name: each for each in made.excluded if each.name not in ("id", "run_id", "config_text")},
    )
    for dialect, made in ((dialect, insert(schema.TrialRow).inline()) for dialect, insert in INSERTS.items())
}
"""Statements by dialect. Made once, since making one takes longer than running it."""


class RunStore(Part):
    """Writes and reads runs."""

    def start_run(
        self, signature: Signature, problem: Problem, provenance: Provenance, settings: Mapping[str, Any]
    ) -> int:
        """Start a run and return its id; trials are added to it as they end."""
        with self._read() as connection:
            known = known_kernel(connection, signature, provenance.source)
        if known is None:
            with self._write_in_order() as connection:
                known = kernel_id(connection, signature, provenance, utc_now())
        ids: dict[object, int] = {(signature, provenance.source): known}
        with self._write() as connection:
            values = run_values(connection, signature, problem, provenance, settings, ids)
            return insert_row(connection, schema.RunRow, **values)

    def add_trial(self, run_id: int, measurement: Measurement) -> None:
        """Write one measurement, in place of an earlier one of the same config in the same run."""
        named = {"run_id": run_id, "config_text": measurement.config.text}
        self._put(_PUT_TRIAL[self._engine.dialect.name], named | trial_values(measurement))

    def end_run(
        self, run_id: int, status: str, stopped: str, seconds: Mapping[str, float], comparison: Comparison | None = None
    ) -> None:
        """End a run without an answer."""
        with self._write() as connection:
            end_run(connection, run_id, status, stopped, seconds, comparison)

    def known(self, signature: Signature, problem: Problem, provenance: Provenance) -> list[Measurement]:
        """Return the measurements of earlier runs of exactly this problem, device, environment, source and policy.

        For each config this is the newest measurement. Configs that should be tried again are left out.
        """
        query = select_trials(problem, provenance).order_by(schema.TrialRow.id)
        with self._read() as connection:
            return settled(self._trials(connection, query, signature))

    def earlier_searches(self, problem: Problem, provenance: Provenance) -> list[EarlierSearch]:
        """Return the runs whose measurements `known` takes over, oldest first."""
        trials = select_trials(problem, provenance).with_only_columns(schema.RunRow.id, schema.TrialRow.config_text)
        tried: dict[int, set[str]] = {}
        with self._read() as connection:
            for run, text in connection.execute(trials):
                tried.setdefault(run, set()).add(text)
            runs = connection.execute(
                select(schema.RunRow.id, schema.RunRow.settings)
                .where(schema.RunRow.id.in_(trials.with_only_columns(schema.RunRow.id)))
                .order_by(schema.RunRow.id)
            )
            return self.unreadable.read("runs", runs, lambda row: earlier_search_from(row, tried[row.id]))

    def run(self, number: int) -> StoredRun | None:
        """Return the run of that id, or None if there is none.

        Raises:
            UnknownName: It cannot be read.
        """
        if not 0 < number <= LARGEST_ID:
            return None
        with self._read() as connection:
            if connection.scalar(select(schema.RunRow.id).filter_by(id=number)) is None:
                return None
            found = runs_of(connection, select_runs(select(schema.RunRow.id).filter_by(id=number)), self.unreadable)
        if not found:
            raise UnknownName(f"run {number} is in the database and cannot be read; the log names what is wrong")
        return found[0]

    def runs(self, limit: int, before: int | None = None) -> list[StoredRun]:
        """Return up to `limit` runs, those with ids below `before` if it is given, newest first."""
        found = list[StoredRun]()
        with self._read() as connection:
            while len(found) < limit:
                newest = select(schema.RunRow.id).where(schema.RunRow.id < before if before is not None else true())
                ids = connection.scalars(newest.order_by(schema.RunRow.id.desc()).limit(limit)).all()
                if not ids:
                    break
                before = ids[-1]
                of_these = select(schema.RunRow.id).where(schema.RunRow.id.between(before, ids[0]))
                found += runs_of(connection, select_runs(of_these), self.unreadable)
        return found[:limit]

    def known_to(self, run: StoredRun) -> list[Measurement]:
        """Return the measurements that a run knew in the end: those taken over from earlier runs, then its own."""
        own = select(schema.TrialRow).where(schema.TrialRow.run_id == run.id).order_by(schema.TrialRow.id)
        earlier = select_trials(run.problem, run.provenance).where(
            schema.TrialRow.run_id < run.id, schema.TrialRow.ended_at <= run.started_at
        )
        with self._read() as connection:
            measured = [measurement for _, measurement in self._trials(connection, own, run.signature)]
            if not run.settings.get("known"):
                return measured
            taken_over = settled(self._trials(connection, earlier.order_by(schema.TrialRow.id), run.signature))
        own_configs = {measurement.config for measurement in measured}
        return [*(known for known in taken_over if known.config not in own_configs), *measured]

    def comparison(self, run: int) -> Comparison | None:
        """Return the interleaved comparison of a run, or None if it had none."""
        query = select(schema.RoundRow).where(schema.RoundRow.run_id == run).order_by(schema.RoundRow.number)
        with self._read() as connection:
            return comparison_of(self.unreadable.read("rounds", connection.execute(query), round_from))

    def partial(self, signature: Signature, problem: Problem, provenance: Provenance) -> Measurement | None:
        """Return the fastest measurement of any run of this problem, interrupted ones included, or None."""
        measured = [m for m in self.known(signature, problem, provenance) if m.ok]
        return min(measured, key=lambda measurement: measurement.latency_us, default=None)

    def _trials(self, connection: Connection, query: Any, signature: Signature) -> list[tuple[str, Measurement]]:
        """Return text of the config and measurement of each trial that can be read.

        Those of a captured call are left out if their configs have other knobs: its function had other configs then.
        """
        knobs = {knob.name for knob in signature.knobs}

        def read(row: Row[Any]) -> tuple[str, Measurement]:
            return row.config_text, measurement_from(signature, row)

        rows: Iterable[Row[Any]] = connection.execute(query)
        if signature.captured:
            rows = (row for row in rows if not isinstance(row.config, dict) or row.config.keys() == knobs)
        return self.unreadable.read("trials", rows, read)
