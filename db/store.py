"""The store: plain frozen values in and out.

Every write is one transaction that takes the write lock at its start, so ids are handed out in commit order, and a
snapshot named by the highest answer id can always be rebuilt. A trial is committed the moment it ends.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import platformdirs
from sqlalchemy import Connection, Engine, func, insert, select, true, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import aliased

from tuner.db import revisions, schema, upkeep
from tuner.db.database import Database
from tuner.db.import_rules import ImportedAnswer, ImportOutcome
from tuner.db.import_writes import write_imported
from tuner.db.postgresql import PostgreSQL
from tuner.db.queries import select_answers, select_runs, select_trials
from tuner.db.queue import Queue
from tuner.db.revisions import HEAD
from tuner.db.rows import (
    answer_from,
    answer_values,
    device_from,
    fingerprint,
    measurement_from,
    run_from,
    settled,
    trial_values,
    utc_now,
    utc_text,
)
from tuner.db.sqlite import SQLite
from tuner.db.writes import add_transfers, device_id, end_run, insert_row, run_values
from tuner.errors import ReadOnly, StoreError
from tuner.kernels.spec import Problem, Signature
from tuner.records import (
    Answer,
    CardState,
    Comparison,
    Device,
    Measurement,
    Provenance,
    RooflineLimits,
    StoredAnswer,
    StoredRun,
    Transfer,
)

_LARGEST_ID = 2**31 - 1
_AT_A_TIME = 500
"""Answers from elsewhere in one write, which takes a fraction of a second."""
_MOST_REQUESTS = 100_000
"""Distinct problems that are kept count of."""
_KEPT_TRIAL = {
    dialect: made.on_conflict_do_update(
        index_elements=["run_id", "config_text"],
        set_={each.name: each for each in made.excluded if each.name not in ("id", "run_id", "config_text")},
    )
    for dialect, made in (
        ("sqlite", sqlite.insert(schema.TrialRow)),
        ("postgresql", postgresql.insert(schema.TrialRow)),
    )
}
"""By dialect. Made once: to make it anew costs more than to run it."""


@dataclass(frozen=True)
class Tip:
    """How far a store has come: its identity, and its highest ids."""

    uuid: str
    answer: int
    kernel: int
    transfer: int = 0

    @property
    def snapshot(self) -> str:
        """`<store uuid>:<highest answer id>`."""
        return f"{self.uuid}:{self.answer}"


def database_at(text: str | Path) -> Database:
    """What a path or a URL names.

    Raises:
        UsageError: a URL that is none of PostgreSQL's.
    """
    return PostgreSQL.at(text) if isinstance(text, str) and "://" in text else SQLite(Path(text))


def default_database() -> Database:
    """`TUNER_DB`, else a file in the user's data folder."""
    given = os.environ.get("TUNER_DB")
    return database_at(given or platformdirs.user_data_path("triton-tuner") / "tuner.db")


def is_named() -> bool:
    """Whether `TUNER_DB` says which database is the default one."""
    return bool(os.environ.get("TUNER_DB"))


class Store:
    """One database. Made by `Store.open`; safe to use from several threads."""

    def __init__(self, engine: Engine, database: Database) -> None:
        self._engine, self._database = engine, database
        self._only_read: str | None = None

    @staticmethod
    def open(database: Database | Path | str, *, create: bool = True) -> Store:
        """The database at a path or URL, to be written.

        A missing SQLite file is made, and an older one brought to today's schema; a PostgreSQL database must have been,
        by `upgrade`. Without `create` it is only to be read: it must be there, and is left as it is; one that a newer
        version made is read as far as it has what is read here.

        Raises:
            ReadOnly: it can only be read: a newer version made it, or this user may not write it.
            StoreError: it is missing, unreadable, locked, of another schema, or another program's.
        """
        store, found = Store._connected(database, writes=create)
        try:
            if found != HEAD:
                store._settle(found, create)
        except BaseException:
            store.close()
            raise
        return store

    @staticmethod
    def upgrade(database: Database | Path | str) -> str | None:
        """Makes the tables, or brings them to today's schema; any number of processes may at once.

        Returns:
            The revision that was found; None where there were no tables.

        Raises:
            ReadOnly: a newer version made it, or this user may not write it.
            StoreError: as for `open`.
        """
        store, _ = Store._connected(database, writes=True)
        with closing(store):
            return store._upgrade()

    @staticmethod
    def info(database: Database | Path | str) -> upkeep.Info:
        """Describes a database of any schema.

        Raises:
            StoreError: it is missing, unreadable, locked, or another program's.
        """
        store, _ = Store._connected(database, writes=False)
        with closing(store), store._read() as connection:
            return upkeep.info(connection, store._database)

    def close(self) -> None:
        """Closes all connections."""
        self._engine.dispose()

    @property
    def queue(self) -> Queue:
        """Its jobs: what is to be tuned, and who is at it."""
        return Queue(self._read, self._write, self._database.now)

    @property
    def snapshot(self) -> str:
        """`<store uuid>:<highest answer id>`: names everything answered so far."""
        return self.tip().snapshot

    def start_run(
        self, signature: Signature, problem: Problem, provenance: Provenance, settings: Mapping[str, Any]
    ) -> int:
        """Opens a run; trials are added to it as they end."""
        with self._write() as connection:
            return insert_row(
                connection, schema.RunRow, **run_values(connection, signature, problem, provenance, settings)
            )

    def add_trial(self, run_id: int, measurement: Measurement) -> None:
        """Writes one measurement; a later one of the same config in the same run replaces it."""
        values, text = trial_values(measurement), measurement.config.text
        with self._write() as connection:
            kept = _KEPT_TRIAL[connection.dialect.name]
            connection.execute(kept, {"run_id": run_id, "config_text": text, **values})

    def end_run(
        self, run_id: int, status: str, stopped: str, seconds: Mapping[str, float], comparison: Comparison | None = None
    ) -> None:
        """Closes a run that gave no answer."""
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
        """Closes a run with its answer; the id orders it among all answers.

        Args:
            lost: what the configs of other answers lost here: of each its id, the distance between the problems, and
                how many times as long as this answer its config takes; infinite if it does not run right here.
        """
        with self._write() as connection:
            end_run(connection, run_id, "done", stopped, seconds, comparison)
            add_transfers(connection, run_id, lost)
            return insert_row(connection, schema.AnswerRow, **answer_values(run_id, answer, provenance, utc_now()))

    def import_answers(self, arrivals: Sequence[ImportedAnswer], *, replace: bool = False) -> list[ImportOutcome]:
        """Lets in what was found elsewhere, as far as `import_rules.outcome_of` has it; what became of each.

        Each that is let in is the answer of a run that ended as `imported`, and says where it comes from. Many go in
        one write, and between two writes others get their turn.
        """
        fates = list[ImportOutcome]()
        for start in range(0, len(arrivals), _AT_A_TIME):
            with self._write() as connection:
                fates += write_imported(connection, arrivals[start : start + _AT_A_TIME], replace=replace)
        return fates

    def add_transfers(self, run_id: int, lost: Iterable[tuple[int, float, float]]) -> None:
        """Writes what was measured later on the problem of a run that gave an answer; what is there already stays.

        Args:
            lost: as for `add_answer`.
        """
        with self._write() as connection:
            there = set(connection.scalars(select(schema.TransferRow.from_answer_id).filter_by(run_id=run_id)))
            add_transfers(connection, run_id, [measured for measured in lost if measured[0] not in there])

    def known(self, signature: Signature, problem: Problem, provenance: Provenance) -> list[Measurement]:
        """What earlier runs measured of this very problem, device, environment, source and policy.

        The newest of each config, where trying again could not end otherwise or has been tried often enough.
        """
        query = select_trials(problem, provenance).order_by(schema.TrialRow.id)
        with self._read() as connection:
            return settled(signature, connection.execute(query))

    def tried_jointly(self, problem: Problem, provenance: Provenance) -> set[str]:
        """Texts of the configs, of those that `known` gives, that searches tried for several problems at once."""
        joint = schema.RunRow.settings["joint"].as_string().is_not(None)
        query = select_trials(problem, provenance).where(joint).with_only_columns(schema.TrialRow.config_text)
        with self._read() as connection:
            return set(connection.scalars(query))

    def run(self, number: int) -> StoredRun | None:
        """The run of that number; None if there is none."""
        if not 0 < number <= _LARGEST_ID:
            return None
        with self._read() as connection:
            row = connection.execute(select_runs(select(schema.RunRow.id).filter_by(id=number))).one_or_none()
        return None if row is None else run_from(row)

    def runs(self, limit: int, before: int | None = None) -> list[StoredRun]:
        """The newest runs, or the newest with smaller numbers than `before`, so many at most, the newest first."""
        newest = select(schema.RunRow.id).where(schema.RunRow.id < before if before is not None else true())
        with self._read() as connection:
            rows = connection.execute(select_runs(newest.order_by(schema.RunRow.id.desc()).limit(limit)))
            return [run_from(row) for row in rows]

    def known_to(self, run: StoredRun) -> list[Measurement]:
        """What a run knew in the end: what it took over from earlier runs, then what it measured, each in order."""
        own = select(schema.TrialRow).where(schema.TrialRow.run_id == run.id).order_by(schema.TrialRow.id)
        earlier = select_trials(run.problem, run.provenance).where(
            schema.TrialRow.run_id < run.id, schema.TrialRow.ended_at <= run.started_at
        )
        with self._read() as connection:
            measured = [measurement_from(run.signature, row) for row in connection.execute(own)]
            if not run.settings.get("known"):
                return measured
            taken_over = settled(run.signature, connection.execute(earlier.order_by(schema.TrialRow.id)))
        again = {measurement.config for measurement in measured}
        return [*(known for known in taken_over if known.config not in again), *measured]

    def comparison(self, run: int) -> Comparison | None:
        """The rounds of a run's duel; None where it had none."""
        query = select(schema.RoundRow).where(schema.RoundRow.run_id == run).order_by(schema.RoundRow.number)
        with self._read() as connection:
            rows = connection.execute(query).all()
        if not rows:
            return None
        contenders = tuple(rows[0].latencies)
        states = tuple(CardState.from_json(row.state) for row in rows if row.state is not None)
        return Comparison(contenders, tuple(tuple(row.latencies[name] for name in contenders) for row in rows), states)

    def answers(self, *, op: str | None = None, device: str | None = None) -> list[StoredAnswer]:
        """Return all answers, oldest first, of one op and device if these are given."""
        query = select_answers()
        if op is not None:
            query = query.where(schema.AnswerRow.op == op)
        if device is not None:
            query = query.where(schema.AnswerRow.device == device)
        with self._read() as connection:
            return _answers_of(connection, query)

    def transfers(
        self, *, op: str | None = None, device: str | None = None, after: int = 0, upto: int = _LARGEST_ID
    ) -> dict[tuple[str, str], list[Transfer]]:
        """What configs lost on each other's problems, by op and device, oldest first.

        Args:
            after: only those with ids above this one, and up to `upto`.
        """
        table, came, went = schema.TransferRow, aliased(schema.AnswerRow), aliased(schema.AnswerRow)
        query = (
            select(table, went.op, went.device, went.id.label("to_answer"))
            .join(went, (went.run_id == table.run_id) & went.kind.in_(("tuned", "default")))
            .join(came, (came.id == table.from_answer_id) & (came.op == went.op) & (came.device == went.device))
            .where(table.id > after, table.id <= upto)
            .order_by(table.id)
        )
        if op is not None:
            query = query.where(went.op == op)
        if device is not None:
            query = query.where(went.device == device)
        found: dict[tuple[str, str], list[Transfer]] = {}
        with self._read() as connection:
            for row in connection.execute(query):
                transfer = Transfer(row.id, row.from_answer_id, row.to_answer, row.distance, row.slowdown)
                found.setdefault((row.op, row.device), []).append(transfer)
        return found

    def answers_of(self, run: int) -> list[StoredAnswer]:
        """Return the answers of one run, oldest first."""
        with self._read() as connection:
            return _answers_of(connection, select_answers().where(schema.AnswerRow.run_id == run))

    def partial(self, signature: Signature, problem: Problem, provenance: Provenance) -> Measurement | None:
        """The fastest measurement of any run of this problem, interrupted ones included; None if there is none."""
        measured = [m for m in self.known(signature, problem, provenance) if m.ok]
        return min(measured, key=lambda measurement: measurement.latency_us, default=None)

    def signatures(self) -> dict[str, Signature]:
        """The newest signature of every op that there are answers of, or was a search for."""
        query = select(schema.KernelRow.signature).order_by(schema.KernelRow.created_at, schema.KernelRow.id)
        with self._read() as connection:
            found = [Signature.from_json(row.signature) for row in connection.execute(query)]
        return {signature.op: signature for signature in found}

    def device(self, slug: str) -> Device | None:
        """The card of that id, as it was last described; None where nothing but its name is known."""
        query = select(schema.DeviceRow.facts).filter_by(slug=slug).order_by(schema.DeviceRow.id.desc())
        with self._read() as connection:
            described = [device_from(facts) for facts in connection.scalars(query)]
        return next((device for device in described if device.is_described), None)

    def devices(self) -> list[str]:
        """Ids of the devices that answers are stored for."""
        with self._read() as connection:
            return sorted(connection.scalars(select(schema.AnswerRow.device).distinct()))

    def cards(self) -> list[Device]:
        """All devices that are known, by what they are."""
        with self._read() as connection:
            return [device_from(facts) for facts in connection.scalars(select(schema.DeviceRow.facts))]

    def roofline_limits(self, device: Device) -> RooflineLimits | None:
        """What the card was seen to reach; None where nobody measured it."""
        query = select(schema.DeviceRow.roofline_limits).filter_by(slug=device.id, fingerprint=fingerprint(device))
        with self._read() as connection:
            found = connection.scalar(query)
        return None if found is None else RooflineLimits(**found)

    def keep_roofline_limits(self, device: Device, roofline_limits: RooflineLimits) -> None:
        """Writes what the card was seen to reach, in place of what was written before."""
        with self._write() as connection:
            number = device_id(connection, device)
            connection.execute(
                update(schema.DeviceRow).filter_by(id=number).values(roofline_limits=asdict(roofline_limits))
            )

    def prune(self, older_than: timedelta, *, dry_run: bool = False) -> upkeep.Pruned:
        """Removes what old runs measured for nothing; see `upkeep.prune`."""
        before = utc_text(datetime.now(UTC) - older_than)
        with self._read() if dry_run else self._write() as connection:
            return upkeep.prune(connection, before, dry_run=dry_run)

    def tip(self) -> Tip:
        """How far the store has come; cheap enough to be asked twice a second."""
        with self._read() as connection:
            return Tip(
                str(connection.scalar(select(schema.StoreRow.uuid))),
                connection.scalar(select(func.max(schema.AnswerRow.id))) or 0,
                connection.scalar(select(func.max(schema.KernelRow.id))) or 0,
                connection.scalar(select(func.max(schema.TransferRow.id))) or 0,
            )

    def answers_between(self, after: int, upto: int) -> list[StoredAnswer]:
        """Return the answers with ids above `after` and up to `upto`, oldest first."""
        query = select_answers().where(schema.AnswerRow.id > after, schema.AnswerRow.id <= upto)
        with self._read() as connection:
            return _answers_of(connection, query)

    def rows(self, table: type[schema.Base], limit: int, after: int = 0) -> list[dict[str, Any]]:
        """Rows of one table with ids above `after`, in order, as they are stored."""
        id = table.id  # type: ignore[attr-defined]
        with self._read() as connection:
            found = connection.execute(select(table).where(id > after).order_by(id).limit(limit))
            return [dict(row._mapping) for row in found]

    def requests(self, limit: int, after: int = 0) -> list[dict[str, Any]]:
        """What was asked and missed, the most frequent first; those that come after the one of that id."""
        table = schema.RequestRow
        query = select(table).order_by(table.count.desc(), table.id).limit(limit)
        with self._read() as connection:
            if after:
                seen = connection.scalar(select(table.count).where(table.id == after)) or 0
                query = query.where((table.count < seen) | ((table.count == seen) & (table.id > after)))
            return [dict(row._mapping) for row in connection.execute(query)]

    def missed(self, problem: Problem) -> list[dict[str, Any]]:
        """How often a problem was asked for and missed, by device."""
        query = (
            select(schema.RequestRow)
            .where(schema.RequestRow.problem == problem.text)
            .order_by(schema.RequestRow.device)
        )
        with self._read() as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    def count_requests(self, missed: Mapping[tuple[str, str, str], int]) -> None:
        """Adds to the counts of what was asked and missed, by op, problem text and device.

        New ones are left out once very many are kept, since anybody may ask for anything.
        """
        table, now = schema.RequestRow, utc_now()
        with self._write() as connection:
            room = _MOST_REQUESTS - (connection.scalar(select(func.count()).select_from(table)) or 0)
            for (op, problem, device), count in missed.items():
                known = update(table).where(table.problem == problem, table.device == device)
                more = known.values(count=table.count + count, last_at=now)
                if not connection.execute(more).rowcount and room > 0:
                    asked = {"op": op, "problem": problem, "device": device}
                    insert_row(connection, table, **asked, count=count, first_at=now, last_at=now)
                    room -= 1

    @contextmanager
    def _read(self) -> Iterator[Connection]:
        with self._database.errors("read"), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def _write(self) -> Iterator[Connection]:
        if self._only_read is not None:
            raise ReadOnly(self._only_read)
        with (
            self._database.errors("written"),
            self._engine.connect().execution_options(writes=True) as connection,
            connection.begin(),
        ):
            yield connection

    @staticmethod
    def _connected(database: Database | Path | str, *, writes: bool) -> tuple[Store, str | None]:
        """A store whose tables are ours, and the revision of their schema."""
        if not isinstance(database, Database):
            database = database_at(database)
        store = Store(database.engine(writes=writes), database)
        try:
            with store._read() as connection:
                if revisions.foreign(connection):
                    raise StoreError(f"{database} is the database of another program; name another one with --db")
                return store, revisions.found(connection)
        except BaseException:
            store.close()
            raise

    def _settle(self, found: str | None, create: bool) -> None:
        """Makes sure that a schema other than today's can be used: by bringing it there, or for reading only."""
        if revisions.newer(found):
            only_read = self._newer(found)
            if create:
                raise only_read
            with self._read() as connection:
                missing = revisions.lacking(connection)
            if missing:
                raise StoreError(f"{only_read}, or to read it: there is no {', '.join(missing)} in it")
            self._only_read = str(only_read)
            _warn_once(f"{only_read}; until then it is only read")
        elif create and self._database.migrates_on_open:
            self._upgrade()
        else:
            has = "has no tables yet" if found is None else f"has schema {found}"
            raise StoreError(
                f"the database {self._database} {has}, and this version needs {HEAD}; tuner db upgrade brings it there"
            )

    def _newer(self, found: str | None) -> ReadOnly:
        return ReadOnly(
            f"the database {self._database} has schema {found}, and this version knows up to {HEAD}; "
            "update the tuner to write it"
        )

    def _upgrade(self) -> str | None:
        """Brings the schema up to `HEAD`, one process at a time, inside the write lock; what it found there."""
        with self._write() as connection:
            found = revisions.found(connection)
            if revisions.newer(found):
                raise self._newer(found)
            revisions.upgrade(connection)
            if connection.scalar(select(func.count()).select_from(schema.StoreRow)) == 0:
                connection.execute(insert(schema.StoreRow).values(uuid=str(uuid4()), created_at=utc_now()))
        return found


@cache
def _warn_once(line: str) -> None:
    logging.getLogger("tuner").warning("%s", line)


def _answers_of(connection: Connection, query: Any) -> list[StoredAnswer]:
    """What a query of answers gives; the signature that many of them have is read once."""
    light = [column for column in query.selected_columns if column.key != "signature"]
    kernels = select(schema.KernelRow.id, schema.KernelRow.signature)
    signatures = {row.id: Signature.from_json(row.signature) for row in connection.execute(kernels)}
    rows = connection.execute(query.with_only_columns(*light, schema.RunRow.kernel_id, maintain_column_froms=True))
    return [answer_from(row, signatures[row.kernel_id]) for row in rows]
