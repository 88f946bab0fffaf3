"""The store: plain frozen values in and out.

Each write is one transaction that takes the write lock at its start, so ids are in commit order, and a snapshot named
by the highest answer id can always be rebuilt. A trial is committed the moment it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Row, func, select, true, update
from sqlalchemy.dialects import postgresql, sqlite

from tuner.db import requests, schema, upkeep
from tuner.db.captured import CapturedCalls
from tuner.db.database import Database
from tuner.db.engines import EngineFiles
from tuner.db.import_rules import ImportedAnswer, ImportOutcome
from tuner.db.import_writes import write_imported
from tuner.db.interrupts import kept_interrupts
from tuner.db.location import database_at, default_database, is_named
from tuner.db.opening import OpenDatabase, connect
from tuner.db.queries import (
    answers_of,
    in_service,
    retire,
    runs_of,
    select_answers,
    select_runs,
    select_transfers,
    select_trials,
)
from tuner.db.queue import Queue
from tuner.db.revisions import HEAD
from tuner.db.rows import (
    answer_values,
    comparison_of,
    device_from,
    earlier_search_from,
    fingerprint,
    kernel_from,
    measurement_from,
    roofline_limits_from,
    round_from,
    settled,
    transfer_from,
    trial_values,
    utc_now,
    utc_text,
)
from tuner.db.settings import SETTINGS
from tuner.db.unreadable import UnreadableRows, column_values, printable
from tuner.db.writes import add_transfers, device_id, end_run, insert_row, run_values
from tuner.errors import UnknownName
from tuner.kernels.spec import Problem, Signature
from tuner.records import (
    FORGOTTEN,
    Answer,
    Comparison,
    Device,
    EarlierSearch,
    Measurement,
    Provenance,
    RooflineLimits,
    StoredAnswer,
    StoredRun,
    Transfer,
)
from tuner.records.strict import is_text

__all__ = ["Store", "Tip", "database_at", "default_database", "is_named"]

_LARGEST_ID = 2**31 - 1
_PUT_TRIAL = {
    dialect: made.on_conflict_do_update(
        index_elements=["run_id", "config_text"],
        set_={each.name: each for each in made.excluded if each.name not in ("id", "run_id", "config_text")},
    )
    for dialect, made in (
        ("sqlite", sqlite.insert(schema.TrialRow)),
        ("postgresql", postgresql.insert(schema.TrialRow)),
    )
}
"""Statements by dialect. Made once, since making one takes longer than running it."""


@dataclass(frozen=True)
class Tip:
    """The state of a store: its identity and its highest ids."""

    uuid: str
    answer: int
    kernel: int
    transfer: int = 0

    @property
    def snapshot(self) -> str:
        """Name of the state: `<store uuid>:<highest answer id>`."""
        return f"{self.uuid}:{self.answer}"


class Store:
    """One database. Made by `Store.open`; safe to use from several threads."""

    def __init__(self, opened: OpenDatabase) -> None:
        self._opened, self._database, self._engine = opened, opened.database, opened.engine
        self._read, self._write = opened.read, opened.write
        self.unreadable = UnreadableRows(str(opened.database))
        """Rows that were left out of a result, since they cannot be read."""

    @staticmethod
    def open(database: Database | Path | str, *, create: bool = True) -> Store:
        """Open the database at a path or URL, to write it, or with `create=False` to read it.

        To be written, a missing SQLite file is made and an older one is upgraded; a PostgreSQL database must have been
        upgraded by `upgrade`. To be read, the database must exist and is not changed; one that a newer version made is
        read if it has all columns that this version reads.

        Raises:
            ReadOnly: It can only be read: a newer version made it, or this user may not write it.
            StoreError: It is missing, unreadable, locked, of another schema, or another program's.
        """
        opened: OpenDatabase | None = None
        try:
            with kept_interrupts():
                opened, found = connect(database, writes=create)
                if found != HEAD:
                    opened.use_schema(found, create)
        except BaseException:
            if opened is not None:
                opened.abandon()
            raise
        return Store(opened.opened())

    @staticmethod
    def upgrade(database: Database | Path | str) -> str | None:
        """Make the tables, or bring them to today's schema; any number of processes may do so at once.

        Returns:
            The revision before; None if there were no tables.

        Raises:
            ReadOnly: A newer version made it, or this user may not write it.
            StoreError: As for `open`.
        """
        with kept_interrupts():
            opened, _ = connect(database, writes=True)
            with closing(opened):
                return opened.upgrade()

    @staticmethod
    def info(database: Database | Path | str) -> upkeep.Info:
        """Describe a database of any schema.

        Raises:
            StoreError: It is missing, unreadable, locked, or another program's.
        """
        opened, _ = connect(database, writes=False)
        with closing(opened), opened.read() as connection:
            return upkeep.info(connection, opened.database)

    def close(self) -> None:
        """Close all connections."""
        with kept_interrupts():
            self._opened.close()

    @property
    def queue(self) -> Queue:
        """The queue of jobs."""
        return Queue(self._read, self._write, self._database.now, self.unreadable)

    @property
    def captured(self) -> CapturedCalls:
        """The captured calls of autotuned kernels."""
        return CapturedCalls(self._read, self._write, self.unreadable)

    @property
    def engine_files(self) -> EngineFiles:
        """The files that other systems keep of their own tuning."""
        return EngineFiles(self._read, self._write, self.unreadable)

    @property
    def snapshot(self) -> str:
        """Name of everything answered so far: `<store uuid>:<highest answer id>`."""
        return self.tip().snapshot

    def start_run(
        self, signature: Signature, problem: Problem, provenance: Provenance, settings: Mapping[str, Any]
    ) -> int:
        """Start a run and return its id; trials are added to it as they end."""
        with self._write() as connection:
            return insert_row(
                connection, schema.RunRow, **run_values(connection, signature, problem, provenance, settings)
            )

    def add_trial(self, run_id: int, measurement: Measurement) -> None:
        """Write one measurement, in place of an earlier one of the same config in the same run."""
        values, text = trial_values(measurement), measurement.config.text
        with self._write() as connection:
            put = _PUT_TRIAL[connection.dialect.name]
            connection.execute(put, {"run_id": run_id, "config_text": text, **values})

    def end_run(
        self, run_id: int, status: str, stopped: str, seconds: Mapping[str, float], comparison: Comparison | None = None
    ) -> None:
        """End a run without an answer."""
        with self._write() as connection:
            end_run(connection, run_id, status, stopped, seconds, comparison)

    def add_answer(
        self,
        run_id: int,
        answer: Answer,
        provenance: Provenance,
        stopped: str,
        seconds: Mapping[str, float],
        comparison: Comparison,
        lost: Iterable[tuple[int, float, float]] = (),
    ) -> int:
        """End a run with its answer, and return the answer's id, which is higher than all before.

        Args:
            lost: Transfer losses measured here: id of the answer whose config was measured, distance between the
                problems, and latency over this answer's, infinite if the config does not run right here.
        """
        with self._write() as connection:
            end_run(connection, run_id, "done", stopped, seconds, comparison)
            add_transfers(connection, run_id, lost)
            return insert_row(connection, schema.AnswerRow, **answer_values(run_id, answer, provenance, utc_now()))

    def import_answers(self, imported: Sequence[ImportedAnswer], *, replace: bool = False) -> list[ImportOutcome]:
        """Write imported answers as `import_rules.outcome_of` decides, and return the outcome of each.

        Each is written with a run that ended as `imported` and names its origin. One write takes many, and between two
        writes other writers have their turn.
        """
        outcomes = list[ImportOutcome]()
        for start in range(0, len(imported), SETTINGS.import_batch):
            batch = imported[start : start + SETTINGS.import_batch]
            with self._write() as connection:
                outcomes += write_imported(connection, batch, self.unreadable, replace=replace)
        return outcomes

    def add_transfers(self, run_id: int, lost: Iterable[tuple[int, float, float]]) -> None:
        """Write transfer losses that were measured after the run gave its answer; those of an answer that has one stay.

        Args:
            lost: As for `add_answer`.
        """
        with self._write() as connection:
            existing = set(connection.scalars(select(schema.TransferRow.from_answer_id).filter_by(run_id=run_id)))
            add_transfers(connection, run_id, [measured for measured in lost if measured[0] not in existing])

    def known(self, signature: Signature, problem: Problem, provenance: Provenance) -> list[Measurement]:
        """Return the measurements of earlier runs of exactly this problem, device, environment, source and policy.

        Of each config the newest, unless the config should be tried again.
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
        if not 0 < number <= _LARGEST_ID:
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

    def answers(
        self, *, op: str | None = None, device: str | None = None, forgotten: bool = False
    ) -> list[StoredAnswer]:
        """Return the answers in service, oldest first, of one op and device if these are given.

        Args:
            forgotten: Return those too that were retired; see `forget`.
        """
        query = select_answers() if forgotten else select_answers().where(in_service())
        if op is not None:
            query = query.where(schema.AnswerRow.op == op)
        if device is not None:
            query = query.where(schema.AnswerRow.device == device)
        with self._read() as connection:
            return answers_of(connection, query, self.unreadable)

    def forget(self, answers: Iterable[int]) -> int:
        """Retire the answers with these ids, and return the number of those that were in service.

        A row of kind `forgotten` is added about each, so that snapshots before it still have them. They serve no query
        and start no search any more, until a search or an import finds another answer. Their measurements stay.
        """
        ids, retired = sorted(set(answers)), 0
        for start in range(0, len(ids), SETTINGS.import_batch):
            these = schema.AnswerRow.id.in_(ids[start : start + SETTINGS.import_batch])
            with self._write() as connection:
                retired += len(connection.execute(retire(these, utc_now())).all())
        return retired

    def forgotten_between(self, after: int, upto: int) -> frozenset[int]:
        """Return the ids of the answers that were retired by rows with ids above `after` and up to `upto`."""
        row = schema.AnswerRow
        query = select(row.about_id).where(row.kind == FORGOTTEN, row.id > after, row.id <= upto)
        with self._read() as connection:
            return frozenset(id for id in connection.scalars(query) if id is not None)

    def transfers(
        self, *, op: str | None = None, device: str | None = None, after: int = 0, upto: int = _LARGEST_ID
    ) -> dict[tuple[str, str], list[Transfer]]:
        """Return the measured transfer losses, by op and device, oldest first.

        Args:
            after: Return only those with ids above this one.
            upto: Return only those with ids up to this one.
        """
        found: dict[tuple[str, str], list[Transfer]] = {}
        with self._read() as connection:
            rows = connection.execute(select_transfers(after, upto, op, device))
            for key, transfer in self.unreadable.read("transfers", rows, transfer_from):
                found.setdefault(key, []).append(transfer)
        return found

    def answers_of(self, run: int) -> list[StoredAnswer]:
        """Return the answers of one run, oldest first, those that were retired among them."""
        with self._read() as connection:
            return answers_of(connection, select_answers().where(schema.AnswerRow.run_id == run), self.unreadable)

    def partial(self, signature: Signature, problem: Problem, provenance: Provenance) -> Measurement | None:
        """Return the fastest measurement of any run of this problem, interrupted ones included, or None."""
        measured = [m for m in self.known(signature, problem, provenance) if m.ok]
        return min(measured, key=lambda measurement: measurement.latency_us, default=None)

    def signatures(self) -> dict[str, Signature]:
        """Return the newest signature of each op that has runs, by op."""
        kernel = schema.KernelRow
        query = select(kernel.id, kernel.op, kernel.signature).order_by(kernel.created_at, kernel.id)
        with self._read() as connection:
            return dict(self.unreadable.read("kernels", connection.execute(query), kernel_from))

    def signatures_by_source(self) -> dict[tuple[str, str], Signature]:
        """Return the signature of each op and source hash that was searched with last, or imported last if none was."""
        table, run = schema.KernelRow, schema.RunRow
        searched = select(run.kernel_id, func.max(run.id).label("last")).group_by(run.kernel_id)
        searches = searched.where(run.stopped.is_distinct_from("imported")).subquery()
        query = (
            select(table.id, table.op, table.source, table.signature)
            .outerjoin(searches, searches.c.kernel_id == table.id)
            .order_by(func.coalesce(searches.c.last, 0), table.created_at, table.id)
        )
        with self._read() as connection:
            read = self.unreadable.read(
                "kernels", connection.execute(query), lambda row: (row.source, kernel_from(row))
            )
        return {(signature.op, source): signature for source, (_, signature) in read}

    def device(self, slug: str) -> Device | None:
        """Return the device of that id as it was described last, or None if only its name is known."""
        query = select(schema.DeviceRow.id, schema.DeviceRow.facts).order_by(schema.DeviceRow.id.desc())
        with self._read() as connection:
            described = self.unreadable.read("devices", connection.execute(query.filter_by(slug=slug)), device_from)
        return next((device for device in described if device.is_described), None)

    def devices(self) -> list[str]:
        """Return the ids of the devices that have answers in service, sorted."""
        row = schema.AnswerRow
        query = select(row.device).distinct()
        with self._read() as connection:
            if connection.scalar(select(row.id).where(row.about_id.is_not(None), row.kind == FORGOTTEN).limit(1)):
                query = query.where(
                    in_service(), row.kind != FORGOTTEN
                )  # each answer is looked at, not the index alone
            return sorted(filter(is_text, connection.scalars(query)))

    def cards(self) -> list[Device]:
        """Return all known devices."""
        with self._read() as connection:
            rows = connection.execute(select(schema.DeviceRow.id, schema.DeviceRow.facts))
            return self.unreadable.read("devices", rows, device_from)

    def roofline_limits(self, device: Device) -> RooflineLimits | None:
        """Return the measured roofline limits of a card, or None if they were not measured."""
        query = select(schema.DeviceRow.id, schema.DeviceRow.roofline_limits).filter_by(
            slug=device.id, fingerprint=fingerprint(device)
        )
        with self._read() as connection:
            found = self.unreadable.read("devices", connection.execute(query), roofline_limits_from)
        return found[0] if found else None

    def keep_roofline_limits(self, device: Device, roofline_limits: RooflineLimits) -> None:
        """Write the roofline limits of a card, in place of those before."""
        with self._write() as connection:
            number = device_id(connection, device)
            connection.execute(
                update(schema.DeviceRow).filter_by(id=number).values(roofline_limits=asdict(roofline_limits))
            )

    def prune(self, older_than: timedelta, *, dry_run: bool = False) -> upkeep.Pruned:
        """Remove trials and rounds of old runs that no answer rests on; see `upkeep.prune`."""
        before = utc_text(datetime.now(UTC) - older_than)
        with self._read() if dry_run else self._write() as connection:
            return upkeep.prune(connection, before, self.unreadable, dry_run=dry_run)

    def tip(self) -> Tip:
        """Return the state of the store. Fast enough to be polled."""
        with self._read() as connection:
            return Tip(
                printable(str(connection.scalar(select(schema.StoreRow.uuid)))),
                connection.scalar(select(func.max(schema.AnswerRow.id))) or 0,
                connection.scalar(select(func.max(schema.KernelRow.id))) or 0,
                connection.scalar(select(func.max(schema.TransferRow.id))) or 0,
            )

    def answers_between(self, after: int, upto: int) -> list[StoredAnswer]:
        """Return the answers with ids above `after` and up to `upto`, oldest first, that were in service at `upto`."""
        query = select_answers().where(schema.AnswerRow.id > after, schema.AnswerRow.id <= upto, in_service(upto))
        with self._read() as connection:
            return answers_of(connection, query, self.unreadable)

    def rows(self, table: type[schema.Base], limit: int, after: int = 0) -> list[dict[str, Any]]:
        """Return rows of one table with ids above `after`, in order, as they are stored."""
        id, found = table.id, list[dict[str, Any]]()  # type: ignore[attr-defined]
        with self._read() as connection:
            while len(found) < limit:
                rows = connection.execute(select(table).where(id > after).order_by(id).limit(limit)).all()
                if not rows:
                    break
                after = rows[-1].id
                found += self.unreadable.read(table.__tablename__, rows, lambda row: column_values(row, table))
        return found[:limit]

    def requests(self, limit: int, after: int = 0) -> list[dict[str, Any]]:
        """Return the missed queries, most frequent first, after the one of that id."""
        with self._read() as connection:
            return requests.page(connection, limit, self.unreadable, after)

    def missed(self, problem: Problem) -> list[dict[str, Any]]:
        """Return the misses of one problem, by device."""
        with self._read() as connection:
            return requests.of_problem(connection, problem, self.unreadable)

    def _trials(self, connection: Connection, query: Any, signature: Signature) -> list[tuple[str, Measurement]]:
        """Return text of the config and measurement of each trial that can be read."""

        def read(row: Row[Any]) -> tuple[str, Measurement]:
            return row.config_text, measurement_from(signature, row)

        return self.unreadable.read("trials", connection.execute(query), read)

    def count_requests(self, missed: Mapping[tuple[str, str, str], int]) -> None:
        """Add to the counts of misses, by op, problem text and device; see `requests.add_counts`."""
        with self._write() as connection:
            requests.add_counts(connection, missed)
