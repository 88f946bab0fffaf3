"""The store: plain frozen values in and out.

Every write is one transaction that takes the write lock at its start, so ids are handed out in commit order, and a
snapshot named by the highest answer id can always be rebuilt. A trial is committed the moment it ends.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from math import inf
from pathlib import Path
from typing import Any
from uuid import uuid4

import platformdirs
from sqlalchemy import Connection, Engine, Row, func, insert, select, update
from sqlalchemy.orm import aliased

from tuner.db import revisions, schema, upkeep
from tuner.db.database import Database
from tuner.db.intake import Arrival, Fate, Present, fate
from tuner.db.postgresql import PostgreSQL
from tuner.db.queue import Queue
from tuner.db.revisions import HEAD
from tuner.db.sqlite import SQLite
from tuner.errors import ReadOnly, StoreError
from tuner.kernels.spec import Problem, Signature
from tuner.records import (
    Answer,
    CardState,
    Ceilings,
    Device,
    Duel,
    Environment,
    Evidence,
    Measurement,
    Outcome,
    Provenance,
    StoredAnswer,
    StoredRun,
    Tie,
    Transfer,
)

_LARGEST_ID = 2**31 - 1
_TRIES = 2
"""A config that crashed, hung or ran out of memory is tried again in a later run, so many times in all."""

_AT_A_TIME = 500
"""Answers from elsewhere in one write, which takes a fraction of a second."""
_MOST_REQUESTS = 100_000
"""Distinct problems that are kept count of."""


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
            return _insert(connection, schema.Run, **_run_values(connection, signature, problem, provenance, settings))

    def add_trial(self, run_id: int, measurement: Measurement) -> None:
        """Writes one measurement; a later one of the same config in the same run replaces it."""
        values = {
            "config": dict(measurement.config),
            "outcome": str(measurement.outcome),
            "stage": measurement.stage,
            "error": measurement.error,
            "latency_us": measurement.latency_us if measurement.ok else None,
            "samples": list(measurement.samples),
            "compile_s": measurement.compile_s,
            "compiled_by": measurement.compiled_by,
            "registers": measurement.registers,
            "spills": measurement.spills,
            "shared_bytes": measurement.shared_bytes,
            "max_error": measurement.max_error,
            "tolerance": measurement.tolerance,
            "ended_at": _now(),
        }
        trial = {"run_id": run_id, "config_text": measurement.config.text}
        with self._write() as connection:
            changed = connection.execute(update(schema.Trial).filter_by(**trial), values).rowcount
            if not changed:
                _insert(connection, schema.Trial, **trial, **values)

    def end_run(
        self, run_id: int, status: str, stopped: str, seconds: Mapping[str, float], duel: Duel | None = None
    ) -> None:
        """Closes a run that gave no answer."""
        with self._write() as connection:
            _end_run(connection, run_id, status, stopped, seconds, duel)

    def add_answer(
        self,
        run_id: int,
        answer: Answer,
        provenance: Provenance,
        stopped: str,
        seconds: Mapping[str, float],
        duel: Duel,
        lost: Iterable[tuple[int, float, float]] = (),
    ) -> int:
        """Closes a run with its answer; the id orders it among all answers.

        Args:
            lost: what the configs of other answers lost here: of each its id, the distance between the problems, and
                how many times as long as this answer its config takes; infinite if it does not run right here.
        """
        with self._write() as connection:
            _end_run(connection, run_id, "done", stopped, seconds, duel)
            _add_transfers(connection, run_id, lost)
            return _insert(connection, schema.Answer, **_answer_values(run_id, answer, provenance, _now()))

    def take_in(self, arrivals: Sequence[Arrival], *, replace: bool = False) -> list[Fate]:
        """Lets in what was found elsewhere, as far as `intake.fate` has it; what became of each.

        Each that is let in is the answer of a run that ended as `imported`, and says where it comes from. Many go in
        one write, and between two writes others get their turn.
        """
        fates = list[Fate]()
        for start in range(0, len(arrivals), _AT_A_TIME):
            some = arrivals[start : start + _AT_A_TIME]
            with self._write() as connection:
                present = _present(connection, some)
                let_in = list[Arrival]()
                for arrival in some:
                    there = present[_key_of(arrival)]
                    fates.append(fate(arrival, there, replace=replace))
                    if fates[-1].stored:
                        let_in.append(arrival)
                        there.append(Present.of(arrival))
                _take_in(connection, let_in)
        return fates

    def add_transfers(self, run_id: int, lost: Iterable[tuple[int, float, float]]) -> None:
        """Writes what was measured later on the problem of a run that gave an answer; what is there already stays.

        Args:
            lost: as for `add_answer`.
        """
        with self._write() as connection:
            there = set(connection.scalars(select(schema.Transfer.from_answer_id).filter_by(run_id=run_id)))
            _add_transfers(connection, run_id, [measured for measured in lost if measured[0] not in there])

    def known(self, signature: Signature, problem: Problem, provenance: Provenance) -> list[Measurement]:
        """What earlier runs measured of this very problem, device, environment, source and policy.

        The newest of each config, where trying again could not end otherwise or has been tried often enough.
        """
        query = _trials(problem, provenance).order_by(schema.Trial.id)
        with self._read() as connection:
            return _settled(signature, connection.execute(query))

    def run(self, number: int) -> StoredRun | None:
        """The run of that number; None if there is none."""
        if not 0 < number <= _LARGEST_ID:
            return None
        with self._read() as connection:
            row = connection.execute(_runs().where(schema.Run.id == number)).one_or_none()
        return None if row is None else _stored_run(row)

    def runs(self, limit: int, before: int | None = None) -> list[StoredRun]:
        """The newest runs, or the newest with smaller numbers than `before`, so many at most, the newest first."""
        query = _runs().order_by(schema.Run.id.desc()).limit(limit)
        with self._read() as connection:
            rows = connection.execute(query if before is None else query.where(schema.Run.id < before))
            return [_stored_run(row) for row in rows]

    def known_to(self, run: StoredRun) -> list[Measurement]:
        """What a run knew in the end: what it took over from earlier runs, then what it measured, each in order."""
        own = select(schema.Trial).where(schema.Trial.run_id == run.id).order_by(schema.Trial.id)
        earlier = _trials(run.problem, run.provenance).where(
            schema.Trial.run_id < run.id, schema.Trial.ended_at <= run.started_at
        )
        with self._read() as connection:
            measured = [_measurement(run.signature, row) for row in connection.execute(own)]
            if not run.settings.get("known"):
                return measured
            taken_over = _settled(run.signature, connection.execute(earlier.order_by(schema.Trial.id)))
        again = {measurement.config for measurement in measured}
        return [*(known for known in taken_over if known.config not in again), *measured]

    def duel(self, run: int) -> Duel | None:
        """The rounds of a run's duel; None where it had none."""
        query = select(schema.Round).where(schema.Round.run_id == run).order_by(schema.Round.number)
        with self._read() as connection:
            rows = connection.execute(query).all()
        if not rows:
            return None
        contenders = tuple(rows[0].latencies)
        states = tuple(CardState.from_json(row.state) for row in rows if row.state is not None)
        return Duel(contenders, tuple(tuple(row.latencies[name] for name in contenders) for row in rows), states)

    def answers(self, *, op: str | None = None, device: str | None = None) -> list[StoredAnswer]:
        """Answers that may serve, oldest first: those of runs that are not taken out of service."""
        query = _answers()
        if op is not None:
            query = query.where(schema.Answer.op == op)
        if device is not None:
            query = query.where(schema.Answer.device == device)
        with self._read() as connection:
            return [_stored_answer(row) for row in connection.execute(query)]

    def transfers(
        self, *, op: str | None = None, device: str | None = None, after: int = 0, upto: int = _LARGEST_ID
    ) -> dict[tuple[str, str], list[Transfer]]:
        """What configs lost on each other's problems, by op and device, oldest first.

        Args:
            after: only those with ids above this one, and up to `upto`.
        """
        table, came, went = schema.Transfer, aliased(schema.Answer), aliased(schema.Answer)
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
        """Those of one run that may serve, oldest first."""
        with self._read() as connection:
            return [_stored_answer(row) for row in connection.execute(_answers().where(schema.Answer.run_id == run))]

    def partial(self, signature: Signature, problem: Problem, provenance: Provenance) -> Measurement | None:
        """The fastest measurement of any run of this problem, interrupted ones included; None if there is none."""
        measured = [m for m in self.known(signature, problem, provenance) if m.ok]
        return min(measured, key=lambda measurement: measurement.latency_us, default=None)

    def signatures(self) -> dict[str, Signature]:
        """The newest signature of every op that there are answers of, or was a search for."""
        query = select(schema.Kernel.signature).order_by(schema.Kernel.created_at, schema.Kernel.id)
        with self._read() as connection:
            found = [Signature.from_json(row.signature) for row in connection.execute(query)]
        return {signature.op: signature for signature in found}

    def device(self, slug: str) -> Device | None:
        """The card of that id, as it was last described; None where nothing but its name is known."""
        query = select(schema.Device.facts).filter_by(slug=slug).order_by(schema.Device.id.desc())
        with self._read() as connection:
            described = [_device(facts) for facts in connection.scalars(query)]
        return next((device for device in described if device.is_described), None)

    def devices(self) -> list[str]:
        """Ids of the devices that answers are stored for."""
        with self._read() as connection:
            return sorted(connection.scalars(select(schema.Answer.device).distinct()))

    def cards(self) -> list[Device]:
        """All devices that are known, by what they are."""
        with self._read() as connection:
            return [_device(facts) for facts in connection.scalars(select(schema.Device.facts))]

    def ceilings(self, device: Device) -> Ceilings | None:
        """What the card was seen to reach; None where nobody measured it."""
        query = select(schema.Device.ceilings).filter_by(slug=device.id, fingerprint=_fingerprint(device))
        with self._read() as connection:
            found = connection.scalar(query)
        return None if found is None else Ceilings(**found)

    def keep_ceilings(self, device: Device, ceilings: Ceilings) -> None:
        """Writes what the card was seen to reach, in place of what was written before."""
        with self._write() as connection:
            number = _device_id(connection, device)
            connection.execute(update(schema.Device).filter_by(id=number).values(ceilings=asdict(ceilings)))

    def prune(self, older_than: timedelta, *, dry_run: bool = False) -> upkeep.Pruned:
        """Removes what old runs measured for nothing; see `upkeep.prune`."""
        before = _as_text(datetime.now(UTC) - older_than)
        with self._read() if dry_run else self._write() as connection:
            return upkeep.prune(connection, before, dry_run=dry_run)

    def tip(self) -> Tip:
        """How far the store has come; cheap enough to be asked twice a second."""
        with self._read() as connection:
            return Tip(
                str(connection.scalar(select(schema.Store.uuid))),
                connection.scalar(select(func.max(schema.Answer.id))) or 0,
                connection.scalar(select(func.max(schema.Kernel.id))) or 0,
                connection.scalar(select(func.max(schema.Transfer.id))) or 0,
            )

    def answers_between(self, after: int, upto: int) -> tuple[list[StoredAnswer], frozenset[int]]:
        """Answers that may serve with ids above `after` and up to `upto`; and which were taken out of service there."""
        quarantined = select(schema.Answer.about_id).where(
            schema.Answer.kind == "quarantine", schema.Answer.id > after, schema.Answer.id <= upto
        )
        query = _answers().where(schema.Answer.id > after, schema.Answer.id <= upto)
        light = [column for column in query.selected_columns if column.key != "signature"]  # one for many answers
        query = query.with_only_columns(*light, schema.Run.kernel_id, maintain_column_froms=True)
        kernels = select(schema.Kernel.id, schema.Kernel.signature)
        with self._read() as connection:
            signatures = {row.id: Signature.from_json(row.signature) for row in connection.execute(kernels)}
            rows = connection.execute(query)
            answers = [_stored_answer(row, signatures[row.kernel_id]) for row in rows]
            return answers, frozenset(id for id in connection.scalars(quarantined) if id is not None)

    def rows(self, table: type[schema.Base], limit: int, after: int = 0) -> list[dict[str, Any]]:
        """Rows of one table with ids above `after`, in order, as they are stored."""
        id = table.id  # type: ignore[attr-defined]
        with self._read() as connection:
            found = connection.execute(select(table).where(id > after).order_by(id).limit(limit))
            return [dict(row._mapping) for row in found]

    def requests(self, limit: int, after: int = 0) -> list[dict[str, Any]]:
        """What was asked and missed, the most frequent first; those that come after the one of that id."""
        table = schema.Request
        query = select(table).order_by(table.count.desc(), table.id).limit(limit)
        with self._read() as connection:
            if after:
                seen = connection.scalar(select(table.count).where(table.id == after)) or 0
                query = query.where((table.count < seen) | ((table.count == seen) & (table.id > after)))
            return [dict(row._mapping) for row in connection.execute(query)]

    def missed(self, problem: Problem) -> list[dict[str, Any]]:
        """How often a problem was asked for and missed, by device."""
        query = select(schema.Request).where(schema.Request.problem == problem.text).order_by(schema.Request.device)
        with self._read() as connection:
            return [dict(row._mapping) for row in connection.execute(query)]

    def count_requests(self, missed: Mapping[tuple[str, str, str], int]) -> None:
        """Adds to the counts of what was asked and missed, by op, problem text and device.

        New ones are left out once very many are kept, since anybody may ask for anything.
        """
        table, now = schema.Request, _now()
        with self._write() as connection:
            room = _MOST_REQUESTS - (connection.scalar(select(func.count()).select_from(table)) or 0)
            for (op, problem, device), count in missed.items():
                known = update(table).where(table.problem == problem, table.device == device)
                more = known.values(count=table.count + count, last_at=now)
                if not connection.execute(more).rowcount and room > 0:
                    asked = {"op": op, "problem": problem, "device": device}
                    _insert(connection, table, **asked, count=count, first_at=now, last_at=now)
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
            if connection.scalar(select(func.count()).select_from(schema.Store)) == 0:
                connection.execute(insert(schema.Store).values(uuid=str(uuid4()), created_at=_now()))
        return found


@cache
def _warn_once(line: str) -> None:
    logging.getLogger("tuner").warning("%s", line)


def _insert(connection: Connection, table: type[schema.Base], **values: Any) -> int:
    row = connection.execute(insert(table).returning(table.id), values).one()  # type: ignore[attr-defined]
    return int(row[0])


def _id_of(connection: Connection, table: type[schema.Base], unique: Mapping[str, Any], **others: Any) -> int:
    """The id of the row with these values, which is made if there is none."""
    found = connection.scalar(select(table.id).filter_by(**unique))  # type: ignore[attr-defined]
    return _insert(connection, table, **unique, **others) if found is None else int(found)


def _device_id(connection: Connection, device: Device) -> int:
    known_as = {"slug": device.id, "fingerprint": _fingerprint(device)}
    return _id_of(connection, schema.Device, known_as, facts=asdict(device), ceilings=None)


def _run_values(
    connection: Connection,
    signature: Signature,
    problem: Problem,
    provenance: Provenance,
    settings: Mapping[str, Any],
    ids: dict[object, int] | None = None,
) -> dict[str, Any]:
    """A run that begins now. `ids`: of rows that many runs share, so that each is looked up once."""
    ids = {} if ids is None else ids

    def shared(about: object, look_up: Callable[[], int]) -> int:
        if about not in ids:
            ids[about] = look_up()
        return ids[about]

    environment, text = asdict(provenance.environment), {"text": problem.text}
    described = {"op": problem.op, "parameters": problem.values}
    return {
        "kernel_id": shared(
            (signature, provenance.source), lambda: _kernel_id(connection, signature, provenance, _now())
        ),
        "problem_id": shared(problem.text, lambda: _id_of(connection, schema.Problem, text, **described)),
        "device_id": shared(provenance.device, lambda: _device_id(connection, provenance.device)),
        "environment_id": shared(provenance.environment, lambda: _id_of(connection, schema.Environment, environment)),
        "policy": provenance.policy,
        "recorded": provenance.recorded,
        "settings": dict(settings),
        "status": "running",
        "tuner": provenance.tuner,
        "started_at": _now(),
    }


def _kernel_id(connection: Connection, signature: Signature, provenance: Provenance, created_at: str) -> int:
    described = signature.as_json()
    kernel = {"op": signature.op, "source": provenance.source, "digest": _digest(described)}
    return _id_of(connection, schema.Kernel, kernel, signature=described, created_at=created_at)


def _answer_values(run_id: int, answer: Answer, provenance: Provenance, created_at: str) -> dict[str, Any]:
    return {
        "run_id": run_id,
        "kind": answer.kind,
        "op": answer.problem.op,
        "problem": answer.problem.text,
        "device": provenance.device.id,
        "source": provenance.source,
        "policy": provenance.policy,
        "triton": provenance.environment.triton,
        "config": dict(answer.config),
        "latency_us": inf if answer.latency_us is None else answer.latency_us,
        "interval_us": list(answer.interval_us or ()),
        "speedup": answer.speedup,
        "speedup_interval": answer.speedup_interval,
        "default_latency_us": answer.default_latency_us,
        "vendor_latency_us": answer.vendor_latency_us,
        "ties": [{**asdict(tie), "config": dict(tie.config)} for tie in answer.ties],
        "unresolved": answer.unresolved,
        "flops": answer.flops,
        "bytes": answer.bytes,
        "evidence": asdict(answer.evidence),
        "marks": list(answer.marks),
        "created_at": created_at,
    }


def _take_in(connection: Connection, arrivals: Sequence[Arrival]) -> None:
    if not arrivals:
        return
    ids, now = _problem_ids(connection, [arrival.answer.problem for arrival in arrivals]), _now()
    for arrival in arrivals:
        # A signature is as old as what came with it, so that an old one is not taken for the newest.
        signature, provenance = arrival.signature, arrival.provenance
        if (signature, provenance.source) not in ids:
            found_at = arrival.created_at or now
            ids[signature, provenance.source] = _kernel_id(connection, signature, provenance, found_at)
    ended = {"status": "done", "stopped": "imported", "seconds": {}, "ended_at": now}
    runs = [
        _run_values(connection, a.signature, a.answer.problem, a.provenance, {"imported": a.origin}, ids) | ended
        for a in arrivals
    ]
    run_ids = connection.scalars(insert(schema.Run).returning(schema.Run.id, sort_by_parameter_order=True), runs)
    answers = [
        _answer_values(run_id, arrival.answer, arrival.provenance, arrival.created_at or now)
        for run_id, arrival in zip(run_ids, arrivals, strict=True)
    ]
    connection.execute(insert(schema.Answer), answers)


def _problem_ids(connection: Connection, problems: Sequence[Problem]) -> dict[object, int]:
    """Ids by text of the rows of many problems; those that are not there are made."""
    table, by_text = schema.Problem, {problem.text: problem for problem in problems}
    query = select(table.text, table.id).where(table.text.in_(by_text))
    ids: dict[object, int] = {row.text: row.id for row in connection.execute(query)}
    new = [problem for text, problem in by_text.items() if text not in ids]
    if new:
        rows = [{"text": problem.text, "op": problem.op, "parameters": problem.values} for problem in new]
        made = connection.execute(insert(table).returning(table.text, table.id), rows)
        ids |= {row.text: row.id for row in made}
    return ids


_Key = tuple[str, str, str, str, str, str | None]
"""Problem, device, source, policy, Triton version and recorded space: of two answers that agree in these one serves."""


def _key_of(arrival: Arrival) -> _Key:
    its = arrival.provenance
    device, triton = its.device.id, its.environment.triton
    return arrival.answer.problem.text, device, its.source, its.policy, triton, its.recorded


def _present(connection: Connection, arrivals: Sequence[Arrival]) -> defaultdict[_Key, list[Present]]:
    """What is there of the problems that these are about, by key, oldest first."""
    answer, run = schema.Answer, schema.Run
    out = select(answer.about_id).where(answer.kind == "quarantine")
    query = select(answer, run.recorded, run.settings).join(run, answer.run_id == run.id)
    about = answer.problem.in_({arrival.answer.problem.text for arrival in arrivals})
    out_of_service = set(connection.scalars(out))
    present = defaultdict[_Key, list[Present]](list)
    for row in connection.execute(query.where(about, answer.kind != "quarantine").order_by(answer.id)):
        one = Present(
            row.kind,
            row.config,
            _timed(row.latency_us),
            row.created_at,
            imported="imported" in row.settings,
            in_service=row.id not in out_of_service,
        )
        key = (row.problem, row.device, row.source, row.policy, row.triton, row.recorded)
        present[key].append(one)
    return present


def _timed(latency_us: float | None) -> float | None:
    """A latency as it is stored; None where there is none."""
    return None if latency_us in (None, inf) else latency_us


def _end_run(
    connection: Connection, run_id: int, status: str, stopped: str, seconds: Mapping[str, float], duel: Duel | None
) -> None:
    ended = {"status": status, "stopped": stopped, "seconds": dict(seconds), "ended_at": _now()}
    connection.execute(update(schema.Run).filter_by(id=run_id).values(ended))
    if duel is None:
        return
    rounds = [
        {
            "run_id": run_id,
            "number": number,
            "latencies": dict(zip(duel.contenders, latencies, strict=True)),
            "state": asdict(duel.states[number]) if duel.states else None,
        }
        for number, latencies in enumerate(duel.rounds)
    ]
    if rounds:
        connection.execute(insert(schema.Round), rounds)


def _add_transfers(connection: Connection, run_id: int, lost: Iterable[tuple[int, float, float]]) -> None:
    for answer, distance, slowdown in lost:
        measured = {"distance": distance, "slowdown": slowdown, "created_at": _now()}
        _insert(connection, schema.Transfer, run_id=run_id, from_answer_id=answer, **measured)


def _trials(problem: Problem, provenance: Provenance) -> Any:
    return _with_context(select(schema.Trial).join(schema.Run, schema.Trial.run_id == schema.Run.id)).where(
        schema.Problem.text == problem.text,
        schema.Device.fingerprint == _fingerprint(provenance.device),
        schema.Kernel.source == provenance.source,
        schema.Run.policy == provenance.policy,
        schema.Run.recorded.is_not_distinct_from(provenance.recorded),
        *(getattr(schema.Environment, name) == value for name, value in asdict(provenance.environment).items()),
    )


def _settled(signature: Signature, rows: Iterable[Row[Any]]) -> list[Measurement]:
    """Of every config the newest that a later run takes over; `rows` are trials, oldest first."""
    tried: dict[str, list[Measurement]] = {}
    for row in rows:
        tried.setdefault(row.config_text, []).append(_measurement(signature, row))
    known = []
    for tries in tried.values():
        settled = [measurement for measurement in tries if measurement.outcome.permanent]
        if settled or len(tries) >= _TRIES:
            known.append((settled or tries)[-1])
    return known


def _answers() -> Any:
    quarantined = select(schema.Answer.about_id).where(schema.Answer.kind == "quarantine")
    return (
        _with_context(
            select(schema.Answer, schema.Run.settings, schema.Run.recorded, schema.Run.tuner, *_CONTEXT).join(
                schema.Run, schema.Answer.run_id == schema.Run.id
            )
        )
        .where(schema.Answer.kind != "quarantine")
        .where(schema.Answer.id.not_in(quarantined.where(schema.Answer.about_id.is_not(None))))
        .order_by(schema.Answer.id)
    )


def _runs() -> Any:
    answer = select(schema.Answer.latency_us).where(schema.Answer.run_id == schema.Run.id)
    answer_us = answer.order_by(schema.Answer.id).limit(1).scalar_subquery().label("answer_us")
    return _with_context(select(schema.Run, schema.Kernel.source, *_CONTEXT, answer_us))


_CONTEXT = (
    schema.Kernel.signature,
    schema.Problem.parameters,
    schema.Device.facts,
    schema.Environment.triton,
    schema.Environment.ptxas,
    schema.Environment.torch,
    schema.Environment.driver,
    select(func.count()).where(schema.Trial.run_id == schema.Run.id).scalar_subquery().label("trials"),
)
"""What a run was about, where and with what, and how many configs it measured."""


def _with_context(query: Any) -> Any:
    """A query of runs, or of what belongs to them, with the tables that runs point to."""
    return (
        query.join(schema.Kernel, schema.Run.kernel_id == schema.Kernel.id)
        .join(schema.Problem, schema.Run.problem_id == schema.Problem.id)
        .join(schema.Device, schema.Run.device_id == schema.Device.id)
        .join(schema.Environment, schema.Run.environment_id == schema.Environment.id)
    )


def _measurement(signature: Signature, row: Row[Any]) -> Measurement:
    return Measurement(
        config=signature.config(row.config),
        outcome=Outcome(row.outcome),
        samples=tuple(row.samples),
        stage=row.stage,
        error=row.error,
        compile_s=row.compile_s,
        compiled_by=row.compiled_by,
        registers=row.registers,
        spills=row.spills,
        shared_bytes=row.shared_bytes,
        max_error=row.max_error,
        tolerance=row.tolerance,
    )


def _stored_answer(row: Row[Any], signature: Signature | None = None) -> StoredAnswer:
    signature = signature or Signature.from_json(row.signature)
    return StoredAnswer(
        id=row.id,
        answer=Answer(
            problem=signature.problem(row.parameters),
            kind=row.kind,
            config=signature.config(row.config),
            latency_us=_timed(row.latency_us),
            interval_us=tuple(row.interval_us) or None,
            speedup=row.speedup,
            speedup_interval=None if row.speedup_interval is None else tuple(row.speedup_interval),
            default_latency_us=row.default_latency_us,
            vendor_latency_us=row.vendor_latency_us,
            ties=tuple(Tie(signature.config(t["config"]), t["slowdown"], tuple(t["interval"])) for t in row.ties),
            unresolved=row.unresolved,
            evidence=Evidence(**row.evidence | {"inputs": tuple(row.evidence.get("inputs", ()))}),
            marks=tuple(row.marks),
            flops=row.flops,
            bytes=row.bytes,
        ),
        provenance=_provenance(row),
        created_at=row.created_at,
        run_id=row.run_id,
        trials=row.trials + row.settings.get("known", 0),
        settings=row.settings,
    )


def _stored_run(row: Row[Any]) -> StoredRun:
    signature = Signature.from_json(row.signature)
    return StoredRun(
        id=row.id,
        signature=signature,
        problem=signature.problem(row.parameters),
        provenance=_provenance(row),
        settings=row.settings,
        status=row.status,
        stopped=row.stopped,
        seconds=row.seconds or {},
        started_at=row.started_at,
        ended_at=row.ended_at,
        trials=row.trials,
        answer_us=_timed(row.answer_us),
    )


def _provenance(row: Row[Any]) -> Provenance:
    return Provenance(
        device=_device(row.facts),
        environment=Environment(row.triton, row.ptxas, row.torch, row.driver),
        source=row.source,
        policy=row.policy,
        recorded=row.recorded,
        tuner=row.tuner,
    )


def _device(facts: Mapping[str, Any]) -> Device:
    return Device(**{**facts, "capability": tuple(facts["capability"])})


def _fingerprint(device: Device) -> str:
    return json.dumps(asdict(device), sort_keys=True)


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def _now() -> str:
    return _as_text(datetime.now(UTC))


def _as_text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
