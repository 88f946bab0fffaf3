"""All generations of an answer, and the restoring of an earlier one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection

from tuner.db import schema
from tuner.db.part import Part
from tuner.db.pins import pinned_scopes, scope_of
from tuner.db.queries import answers_of, select_answers
from tuner.db.rows import answer_values, utc_now
from tuner.db.settings import LARGEST_ID
from tuner.db.writes import insert_row, run_values
from tuner.errors import UnknownName, UsageError
from tuner.kernels.spec import Config, Problem
from tuner.records import IMPORTED, StoredAnswer
from tuner.records.answer import ROLLBACK
from tuner.records.signatures import checked_config


class HistoryStore(Part):
    """Reads the generations of an answer, and restores one."""

    def answer(self, id: int) -> StoredAnswer | None:
        """Return the answer of that id, which may be retired, or None if there is none that can be read."""
        with self._read() as connection:
            return self._answer(connection, id)

    def history(self, problem: Problem, device: str) -> list[StoredAnswer]:
        """Return all answers that were stored for a problem on a device, oldest first, retired ones among them."""
        with self._read() as connection:
            return self._history(connection, problem, device)

    def roll_back(self, to_answer: int, serving: int | None = None) -> int:
        """Put an earlier answer into service again: as a new one of kind `rollback`, whose id is returned.

        The new answer has the config and the measurements of the earlier one, and the key of the answer that it
        replaces. Queries that matched that one exactly so match the new one exactly. Its run names its origin.

        Args:
            to_answer: Id of the earlier answer, which may be retired.
            serving: Id of the answer in service that is replaced; None is the newest one. One that was imported, or
                recorded if the earlier one was not, is replaced by none, and the newest other one is taken.

        Raises:
            UnknownName: There is no such answer.
            UsageError: It is imported, serves already, lacks a knob that the kernel has now, or the problem is pinned.
        """
        with self._write_in_order() as connection:
            earlier = self._answer(connection, to_answer)
            if earlier is None:
                raise UnknownName(f"there is no answer {to_answer}; tuner history lists those of a problem")
            problem, device = earlier.answer.problem, earlier.provenance.device.id
            pinned = pinned_scopes(connection, [problem.text]).get(scope_of(problem, earlier.provenance))
            if pinned is not None:
                raise UsageError(
                    f"a pinned answer is not replaced, and answer {pinned} is that of {problem.text}; run tuner unpin "
                    "first"
                )
            origin = self._origin(connection, earlier)
            replaced = _replaced(origin, self._history(connection, problem, device), serving)
            if replaced.id == earlier.id and earlier.forgotten_at is None:
                raise UsageError(f"answer {earlier.id} is the one in service; tuner history lists earlier ones")
            assert replaced.signature is not None  # it was read
            values = run_values(connection, replaced.signature, problem, replaced.provenance, _settings(origin))
            now = utc_now()
            ended = {"status": "done", "stopped": ROLLBACK, "seconds": {}, "ended_at": now}
            run = insert_row(connection, schema.RunRow, **values | ended)
            answer = replace(origin.answer, kind=ROLLBACK, config=_config(origin, replaced))
            row = answer_values(run, answer, replaced.provenance, now)
            return insert_row(connection, schema.AnswerRow, **row, about_id=origin.id)

    def _answer(self, connection: Connection, id: int) -> StoredAnswer | None:
        if not 0 < id <= LARGEST_ID:
            return None
        found = answers_of(connection, select_answers().where(schema.AnswerRow.id == id), self.unreadable)
        return found[0] if found else None

    def _history(self, connection: Connection, problem: Problem, device: str) -> list[StoredAnswer]:
        row = schema.AnswerRow
        query = select_answers().where(row.op == problem.op, row.problem == problem.text, row.device == device)
        return answers_of(connection, query, self.unreadable, problem.op)

    def _origin(self, connection: Connection, earlier: StoredAnswer) -> StoredAnswer:
        """Return the answer that was measured: the one that a rollback restored, else the answer itself."""
        restored = earlier.restored
        return (None if restored is None else self._answer(connection, restored)) or earlier


def _replaced(origin: StoredAnswer, history: Sequence[StoredAnswer], serving: int | None) -> StoredAnswer:
    """Return the answer that a rollback replaces; the origin itself if none is in service.

    Recorded answers and those of a card never replace each other.
    """
    if origin.answer.kind == IMPORTED:
        raise UsageError(
            f"a rollback restores an answer that was measured here, and answer {origin.id} is imported from "
            f"{origin.imported_from}; tuner forget retires the answers that are served instead"
        )
    if serving is not None and serving not in [stored.id for stored in history]:
        raise UsageError(
            f"a rollback replaces an answer to the same problem on the same device, and {serving} is none for answer "
            f"{origin.id}; tuner history lists them"
        )
    is_recorded = origin.provenance.recorded is not None
    alike = [
        stored
        for stored in history
        if stored.forgotten_at is None
        and stored.answer.kind != IMPORTED
        and (stored.provenance.recorded is not None) == is_recorded
    ]
    return next((stored for stored in alike if stored.id == serving), alike[-1] if alike else origin)


def _config(origin: StoredAnswer, replaced: StoredAnswer) -> Config:
    """Return the config of the origin with the knobs that the kernel has now."""
    assert replaced.signature is not None
    try:
        return checked_config(replaced.signature, origin.answer.config)
    except UsageError as error:
        raise UsageError(f"the knobs of the kernel have changed since answer {origin.id}: {error}") from error


def _settings(origin: StoredAnswer) -> dict[str, object]:
    """Return the settings of the run of a rollback: those of the search that found the answer, and its origin."""
    from_where = {
        "answer": origin.id,
        "run": origin.run_id,
        "tuned_at": origin.created_at,
        "tuned_with": origin.provenance.as_json(),
    }
    return {**origin.settings, "known": origin.trials, "rollback": from_where}
