"""The store: plain frozen values in and out.

Every write is one transaction that takes the write lock at its start, so ids are handed out in commit order, and a
snapshot named by the highest answer id can always be rebuilt. A trial is committed the moment it ends.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

import platformdirs
from sqlalchemy import Connection, Engine, Row, func, insert, select, update

from tuner.db import revisions, schema, upkeep
from tuner.db.database import Database
from tuner.db.postgresql import PostgreSQL
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
)

_LARGEST_ID = 2**31 - 1
_TRIES = 2
"""A config that crashed, hung or ran out of memory is tried again in a later run, so many times in all."""

_MOST_REQUESTS = 100_000
"""Distinct problems that are kept count of."""


@dataclass(frozen=True)
class Tip:
    """How far a store has come: its identity, and its highest ids."""

    uuid: str
    answer: int
    kernel: int

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
    def snapshot(self) -> str:
        """`<store uuid>:<highest answer id>`: names everything answered so far."""
        return self.tip().snapshot

    def start_run(
        self, signature: Signature, problem: Problem, provenance: Provenance, settings: Mapping[str, Any]
    ) -> int:
        """Opens a run; trials are added to it as they end."""
        with self._write() as connection:
            environment = asdict(provenance.environment)
            described = signature.as_json()
            kernel = {"op": signature.op, "source": provenance.source, "digest": _digest(described)}
            return _insert(
                connection,
                schema.Run,
                kernel_id=_id_of(connection, schema.Kernel, kernel, signature=described, created_at=_now()),
                problem_id=_id_of(
                    connection, schema.Problem, {"text": problem.text}, op=problem.op, parameters=problem.values
                ),
                device_id=_device_id(connection, provenance.device),
                environment_id=_id_of(connection, schema.Environment, environment),
                policy=provenance.policy,
                recorded=provenance.recorded,
                settings=dict(settings),
                status="running",
                tuner=provenance.tuner,
                started_at=_now(),
            )

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
            changed = connection.execute(update(schema.Trial).filter_by(**trial).values(values)).rowcount
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
    ) -> int:
        """Closes a run with its answer; the id orders it among all answers."""
        with self._write() as connection:
            _end_run(connection, run_id, "done", stopped, seconds, duel)
            return _insert(
                connection,
                schema.Answer,
                run_id=run_id,
                kind=answer.kind,
                op=answer.problem.op,
                problem=answer.problem.text,
                device=provenance.device.id,
                source=provenance.source,
                policy=provenance.policy,
                triton=provenance.environment.triton,
                config=dict(answer.config),
                latency_us=answer.latency_us,
                interval_us=answer.interval_us,
                speedup=answer.speedup,
                speedup_interval=answer.speedup_interval,
                default_latency_us=answer.default_latency_us,
                vendor_latency_us=answer.vendor_latency_us,
                ties=[{**asdict(tie), "config": dict(tie.config)} for tie in answer.ties],
                unresolved=answer.unresolved,
                flops=answer.flops,
                bytes=answer.bytes,
                evidence=asdict(answer.evidence),
                marks=list(answer.marks),
                created_at=_now(),
            )

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

    def answers_of(self, run: int) -> list[StoredAnswer]:
        """Those of one run that may serve, oldest first."""
        with self._read() as connection:
            return [_stored_answer(row) for row in connection.execute(_answers().where(schema.Answer.run_id == run))]

    def partial(self, signature: Signature, problem: Problem, provenance: Provenance) -> Measurement | None:
        """The fastest measurement of any run of this problem, interrupted ones included; None if there is none."""
        measured = [m for m in self.known(signature, problem, provenance) if m.ok]
        return min(measured, key=lambda measurement: measurement.latency_us, default=None)

    def signatures(self) -> dict[str, Signature]:
        """The newest signature of every op that was ever searched."""
        query = select(schema.Kernel.signature).order_by(schema.Kernel.id)
        with self._read() as connection:
            found = [Signature.from_json(row.signature) for row in connection.execute(query)]
        return {signature.op: signature for signature in found}

    def devices(self) -> list[str]:
        """Ids of the devices that answers are stored for."""
        with self._read() as connection:
            return sorted(connection.scalars(select(schema.Answer.device).distinct()))

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

    def ask_for(self, problem: Problem, device: str, priority: int = 0) -> tuple[dict[str, Any], bool]:
        """The job that will tune a problem on a device, and whether it is new: one that is pending is not doubled."""
        asked = {"problem": problem.text, "device": device, "status": "pending"}
        with self._write() as connection:
            pending = connection.scalar(select(schema.Job.id).filter_by(**asked))
            others = {"op": problem.op, "priority": priority, "created_at": _now()}
            number = pending or _insert(connection, schema.Job, **asked, **others)
            row = connection.execute(select(schema.Job).where(schema.Job.id == number)).one()
            return dict(row._mapping), pending is None

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
    row = connection.execute(insert(table).values(values).returning(table.id)).one()  # type: ignore[attr-defined]
    return int(row[0])


def _id_of(connection: Connection, table: type[schema.Base], unique: Mapping[str, Any], **others: Any) -> int:
    """The id of the row with these values, which is made if there is none."""
    found = connection.scalar(select(table.id).filter_by(**unique))  # type: ignore[attr-defined]
    return _insert(connection, table, **unique, **others) if found is None else int(found)


def _device_id(connection: Connection, device: Device) -> int:
    known_as = {"slug": device.id, "fingerprint": _fingerprint(device)}
    return _id_of(connection, schema.Device, known_as, facts=asdict(device), ceilings=None)


def _end_run(
    connection: Connection, run_id: int, status: str, stopped: str, seconds: Mapping[str, float], duel: Duel | None
) -> None:
    ended = {"status": status, "stopped": stopped, "seconds": dict(seconds), "ended_at": _now()}
    connection.execute(update(schema.Run).filter_by(id=run_id).values(ended))
    if duel is None:
        return
    for number, latencies in enumerate(duel.rounds):
        by_contender = dict(zip(duel.contenders, latencies, strict=True))
        state = asdict(duel.states[number]) if duel.states else None
        _insert(connection, schema.Round, run_id=run_id, number=number, latencies=by_contender, state=state)


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
            latency_us=row.latency_us,
            interval_us=tuple(row.interval_us),
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
        answer_us=row.answer_us,
    )


def _provenance(row: Row[Any]) -> Provenance:
    return Provenance(
        device=Device(**row.facts | {"capability": tuple(row.facts["capability"])}),
        environment=Environment(row.triton, row.ptxas, row.torch, row.driver),
        source=row.source,
        policy=row.policy,
        recorded=row.recorded,
        tuner=row.tuner,
    )


def _fingerprint(device: Device) -> str:
    return json.dumps(asdict(device), sort_keys=True)


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


def _now() -> str:
    return _as_text(datetime.now(UTC))


def _as_text(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
