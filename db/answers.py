"""Answers of a store, and the transfer losses between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from sqlalchemy import select

from tuner.db import schema
from tuner.db.import_rules import ImportedAnswer, ImportOutcome
from tuner.db.import_writes import write_imported
from tuner.db.part import Part
from tuner.db.pins import is_pinned
from tuner.db.queries import answers_of, in_service, retire, select_answers, select_transfers
from tuner.db.retunes import add_finding, found_already
from tuner.db.rows import answer_values, transfer_from, utc_now, utc_text
from tuner.db.settings import LARGEST_ID, SETTINGS
from tuner.db.writes import add_transfers, end_run, insert_row
from tuner.records import FORGOTTEN, Answer, Comparison, Provenance, StoredAnswer, Transfer
from tuner.records.retune import Finding


class AnswerStore(Part):
    """Writes and reads answers. They are appended, never changed."""

    def add_answer(
        self,
        run_id: int,
        answer: Answer,
        provenance: Provenance,
        stopped: str,
        seconds: Mapping[str, float],
        comparison: Comparison,
        lost: Iterable[tuple[int, float, float]] = (),
        *,
        retune: int | None = None,
        finding: Callable[[int], Finding] | None = None,
    ) -> int:
        """End a run with its answer, and return the answer's id, which is higher than all before.

        Args:
            lost: Transfer losses measured here: id of the answer whose config was measured, distance between the
                problems, and latency over this answer's, infinite if the config does not run right here.
            retune: Id of the retune that stores the answer.
            finding: Returns the retune's finding, given the answer's id. Both are written, or neither.

        Raises:
            StoreError: The retune has a finding about the same answer already; then nothing is written.
        """
        with self._write() as connection:
            end_run(connection, run_id, "done", stopped, seconds, comparison)
            self._take_turn(connection)
            add_transfers(connection, run_id, lost)
            id = insert_row(connection, schema.AnswerRow, **answer_values(run_id, answer, provenance, utc_now()))
            if retune is not None and finding is not None:
                found = finding(id)
                if not add_finding(connection, retune, found, utc_text(self._database.now(connection))):
                    raise found_already(retune, found.answer_id)
            return id

    def import_answers(self, imported: Sequence[ImportedAnswer], *, replace: bool = False) -> list[ImportOutcome]:
        """Write imported answers as `import_rules.outcome_of` decides, and return the outcome of each.

        Each is written with a run that ended as `imported` and names its origin. One write takes many, and between two
        writes other writers have their turn.
        """
        outcomes = list[ImportOutcome]()
        for start in range(0, len(imported), SETTINGS.import_batch):
            batch = imported[start : start + SETTINGS.import_batch]
            with self._write_in_order() as connection:
                outcomes += write_imported(connection, batch, self.unreadable, replace=replace)
        return outcomes

    def add_transfers(self, run_id: int, lost: Iterable[tuple[int, float, float]]) -> None:
        """Write transfer losses that were measured after the run gave its answer; those of an answer that has one stay.

        Args:
            lost: As for `add_answer`.
        """
        with self._write_in_order() as connection:
            existing = set(connection.scalars(select(schema.TransferRow.from_answer_id).filter_by(run_id=run_id)))
            add_transfers(connection, run_id, [measured for measured in lost if measured[0] not in existing])

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
            return answers_of(connection, query, self.unreadable, op)

    def answers_of(self, run: int) -> list[StoredAnswer]:
        """Return the answers of one run, oldest first, those that were retired among them."""
        with self._read() as connection:
            return answers_of(connection, select_answers().where(schema.AnswerRow.run_id == run), self.unreadable)

    def answers_between(
        self, after: int, upto: int, *, op: str | None = None, device: str | None = None
    ) -> list[StoredAnswer]:
        """Return the answers with ids above `after` and up to `upto`, oldest first, that were in service at `upto`.

        Only those of one op and device, if these are given.
        """
        query = select_answers().where(schema.AnswerRow.id > after, schema.AnswerRow.id <= upto, in_service(upto))
        query = query if op is None else query.where(schema.AnswerRow.op == op)
        query = query if device is None else query.where(schema.AnswerRow.device == device)
        with self._read() as connection:
            return answers_of(connection, query, self.unreadable, op)

    def forget(self, answers: Iterable[int]) -> int:
        """Retire the answers with these ids, and return the number of those that were in service.

        A row of kind `forgotten` is added about each, so that snapshots before it still have them. They serve no query
        and start no search any more, until a search or an import finds another answer. Their measurements stay. Pinned
        answers are left in service.
        """
        ids, retired = sorted(set(answers)), 0
        for start in range(0, len(ids), SETTINGS.import_batch):
            these = schema.AnswerRow.id.in_(ids[start : start + SETTINGS.import_batch])
            with self._write_in_order() as connection:
                retired += len(connection.execute(retire(these & ~is_pinned(), utc_now())).all())
        return retired

    def forgotten_between(self, after: int, upto: int) -> frozenset[int]:
        """Return the ids of the answers that were retired by rows with ids above `after` and up to `upto`."""
        row = schema.AnswerRow
        query = select(row.about_id).where(row.kind == FORGOTTEN, row.id > after, row.id <= upto)
        with self._read() as connection:
            return frozenset(id for id in connection.scalars(query) if id is not None)

    def transfers(
        self, *, op: str | None = None, device: str | None = None, after: int = 0, upto: int = LARGEST_ID
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
