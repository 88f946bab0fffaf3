"""The store: plain frozen values in and out.

Each write is one transaction. The ids of answers, transfers and kernels are in commit order, so a snapshot named by the
highest answer id can always be rebuilt; `opening.OpenDatabase` says how. A trial is committed the moment it ends.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import func, select, true, update

from tuner.db import requests, schema, upkeep
from tuner.db.answers import AnswerStore
from tuner.db.captured import CapturedCalls
from tuner.db.database import Database
from tuner.db.engines import EngineFiles
from tuner.db.history import HistoryStore
from tuner.db.interrupts import kept_interrupts
from tuner.db.location import database_at, default_database, is_named
from tuner.db.opening import OpenDatabase, connect
from tuner.db.overview import Overview
from tuner.db.pins import Pins
from tuner.db.progress import Progress
from tuner.db.queries import in_service
from tuner.db.queue import Queue
from tuner.db.retunes import Retunes
from tuner.db.revisions import HEAD
from tuner.db.rows import device_from, fingerprint, kernel_from, roofline_limits_from, utc_text
from tuner.db.runs import RunStore
from tuner.db.unreadable import column_values, printable
from tuner.db.work import Work
from tuner.db.writes import device_id
from tuner.kernels.spec import Problem, Signature
from tuner.records import FORGOTTEN, Device, RooflineLimits
from tuner.records.strict import is_text

__all__ = ["Store", "Tip", "database_at", "default_database", "is_named"]


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


class Store(RunStore, AnswerStore, HistoryStore):
    """One database. Made by `Store.open`; safe to use from several threads."""

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
        return Queue(self._opened, self.unreadable)

    @property
    def captured(self) -> CapturedCalls:
        """The captured calls of autotuned kernels."""
        return CapturedCalls(self._read, self._write, self.unreadable)

    @property
    def retunes(self) -> Retunes:
        """The retunes and their findings."""
        return Retunes(self._read, self._write, self._database.now, self.unreadable)

    @property
    def overview(self) -> Overview:
        """Counts and outlines of what the store has."""
        return Overview(self._read, self.unreadable, self.progress)

    @property
    def pins(self) -> Pins:
        """The pinned answers."""
        return Pins(self._read, self._write, self.unreadable)

    @property
    def progress(self) -> Progress:
        """The states of the searches that run."""
        return Progress(self._opened, self.unreadable)

    @property
    def work(self) -> Work:
        """The work of the fleet: what workers do, and what ended."""
        return Work(self._opened, self.unreadable)

    @property
    def engine_files(self) -> EngineFiles:
        """The files that other systems keep of their own tuning."""
        return EngineFiles(self._read, self._write, self.unreadable)

    @property
    def snapshot(self) -> str:
        """Name of everything answered so far: `<store uuid>:<highest answer id>`."""
        return self.tip().snapshot

    def signatures(self, op: str | None = None) -> dict[str, Signature]:
        """Return the newest signature of each op that has runs, by op; of one op if it is given."""
        return {signature.op: signature for signature in self._signatures(op)}

    def patterns(self) -> dict[str, tuple[Signature, ...]]:
        """Return the signatures of the ops whose captured calls have several, by op, the newest first.

        An argument in the key is a dim in one call and an attribute in another, if it is a size only in the first.
        """
        found: dict[str, dict[object, Signature]] = {}
        for signature in self._signatures():
            pattern = (signature.dims, signature.dtypes, signature.attributes)
            several = found.setdefault(signature.op, {})
            several.pop(pattern, None)  # the newest is the last one
            several |= {pattern: signature} if signature.captured else {}
        return {op: tuple(reversed(several.values())) for op, several in found.items() if len(several) > 1}

    def signatures_by_source(self) -> dict[tuple[str, str], Signature]:
        """Return the signature of each op and source hash that was searched with last, or imported last if none was.

        Those of captured calls are left out, since each call may have choices of its own.
        """
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
        return {(signature.op, source): signature for source, (_, signature) in read if not signature.captured}

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
        with self._read() if dry_run else self._write_in_order() as connection:  # no answer comes in between
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

    def requests(
        self, limit: int, after: int = 0, *, op: str | None = None, device: str | None = None
    ) -> list[dict[str, Any]]:
        """Return the missed queries, of one op and device if given, most frequent first, after the one of that id."""
        with self._read() as connection:
            return requests.page(connection, limit, self.unreadable, after, op, device)

    def missed(self, problem: Problem) -> list[dict[str, Any]]:
        """Return the misses of one problem, by device."""
        with self._read() as connection:
            return requests.of_problem(connection, problem, self.unreadable)

    def count_requests(self, missed: Mapping[tuple[str, str, str], int]) -> None:
        """Add to the counts of misses, by op, problem text and device; see `requests.add_counts`."""
        with self._write() as connection:
            requests.add_counts(connection, missed)

    def _signatures(self, op: str | None = None) -> list[Signature]:
        """Return the signatures of all ops or of one, oldest first."""
        kernel = schema.KernelRow
        of_op = true() if op is None else kernel.op == op
        query = select(kernel.id, kernel.op, kernel.signature).where(of_op).order_by(kernel.created_at, kernel.id)
        with self._read() as connection:
            return [
                signature for _, signature in self.unreadable.read("kernels", connection.execute(query), kernel_from)
            ]
