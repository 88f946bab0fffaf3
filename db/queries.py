"""Queries of runs, trials and answers, each with its context: kernel, problem, device and environment."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, func, insert, literal, literal_column, select, true
from sqlalchemy.orm import aliased

from tuner.db import schema
from tuner.db.rows import PROVENANCE, answer_from, device_from, fingerprint, kernel_from, provenance_from, run_from
from tuner.db.unreadable import UnreadableRows
from tuner.errors import UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.records import FORGOTTEN, Device, Provenance, StoredAnswer, StoredRun


def select_trials(problem: Problem, provenance: Provenance) -> Any:
    """Return the query of the trials of exactly this problem, device, environment, source, definition and policy."""
    return _with_context(select(schema.TrialRow).join(schema.RunRow, schema.TrialRow.run_id == schema.RunRow.id)).where(
        schema.ProblemRow.text == problem.text,
        schema.DeviceRow.fingerprint == fingerprint(provenance.device),
        schema.KernelRow.source == provenance.source,
        schema.RunRow.policy == provenance.policy,
        schema.RunRow.recorded.is_not_distinct_from(provenance.recorded),
        _same_definition(provenance),
        *(getattr(schema.EnvironmentRow, name) == value for name, value in asdict(provenance.environment).items()),
    )


def _same_definition(provenance: Provenance) -> Any:
    """Return the condition on runs of the same definition; runs that were stored without one are not compared."""
    return schema.RunRow.definition.in_((provenance.definition, "")) if provenance.definition else true()


def is_running() -> ColumnElement[bool]:
    """Return the condition on runs that they have no end. Its text holds the value, else no partial index is used."""
    return schema.RunRow.status == literal_column("'running'")


def select_answers() -> Any:
    """Return the query of all answers with their context, oldest first, those that were retired among them.

    An answer whose run, or whose run's problem, is missing is in the result too, with nulls in their place.
    """
    run = schema.RunRow
    kept = (run.settings, run.recorded, run.definition, run.tuner, run.kernel_id, run.device_id)
    columns = (schema.AnswerRow, *kept, *_CONTEXT, _FORGOTTEN_AT.label("forgotten_at"))
    query = _with_context(select(*columns).outerjoin(run, schema.AnswerRow.run_id == run.id), outer=True)
    return query.where(schema.AnswerRow.kind.is_distinct_from(FORGOTTEN)).order_by(schema.AnswerRow.id)


def in_service(upto: int | None = None) -> Any:
    """Return the condition on answers that they were not retired, by rows with ids up to `upto` if it is given."""
    about = select(_LATER.id).where(_LATER.about_id == schema.AnswerRow.id, _LATER.kind == FORGOTTEN)
    return ~(about if upto is None else about.where(_LATER.id <= upto)).exists()


def retire(condition: Any, created_at: str) -> Any:
    """Return the statement that adds a row of kind `forgotten` about each answer in service that meets a condition."""
    table = schema.AnswerRow.__table__
    new = {"kind": literal(FORGOTTEN), "about_id": schema.AnswerRow.id, "created_at": literal(created_at)}
    columns = {name: new.get(name, column) for name, column in table.columns.items() if name != "id"}
    answers = select(*columns.values()).where(condition, schema.AnswerRow.kind != FORGOTTEN, in_service())
    rows = insert(schema.AnswerRow).from_select([*columns], answers.order_by(schema.AnswerRow.id))
    return rows.returning(schema.AnswerRow.id)


_LATER = aliased(schema.AnswerRow)
_FORGOTTEN_AT = (
    select(func.min(_LATER.created_at))
    .where(_LATER.about_id == schema.AnswerRow.id, _LATER.kind == FORGOTTEN)
    .correlate(schema.AnswerRow)
    .scalar_subquery()
)
"""Time at which an answer was retired; null if it is in service."""


class Described:
    """The signatures, devices and provenances of answers or runs, each read once.

    Args:
        unreadable: Is given the rows that cannot be read.
        op: Read only the signatures of this op; None: all.
    """

    def __init__(self, connection: Connection, unreadable: UnreadableRows, op: str | None = None) -> None:
        kernel = schema.KernelRow
        of_op = true() if op is None else kernel.op == op
        kernels = connection.execute(select(kernel.id, kernel.op, kernel.signature).where(of_op))
        devices = connection.execute(select(schema.DeviceRow.id, schema.DeviceRow.facts))
        self._signatures: dict[int, Signature] = dict(
            unreadable.read("kernels", kernels, lambda row: (row.id, kernel_from(row)[1]))
        )
        self._devices: dict[int, Device] = dict(
            unreadable.read("devices", devices, lambda row: (row.id, device_from(row)))
        )
        self._provenances: dict[tuple[object, ...], Provenance] = {}

    def signature(self, id: int | None) -> Signature:
        """Return the signature of a row of `kernels`. Raises UsageError if there is none that can be read."""
        if id is None or id not in self._signatures:
            raise UsageError(f"row {id} of kernels is missing, or cannot be read")
        return self._signatures[id]

    def provenance(self, row: Row[Any]) -> Provenance:
        """Return the provenance of an answer or a run. Raises UsageError if it cannot be read."""
        if row.device_id not in self._devices:
            raise UsageError(f"row {row.device_id} of devices is missing, or cannot be read")
        key = (row.device_id, *(getattr(row, name) for name in PROVENANCE))
        if key not in self._provenances:
            self._provenances[key] = provenance_from(row, self._devices[row.device_id])
        return self._provenances[key]


def answers_of(
    connection: Connection, query: Any, unreadable: UnreadableRows, op: str | None = None
) -> list[StoredAnswer]:
    """Return the answers of a query of `select_answers`, without those that cannot be read.

    Args:
        op: The op that all of them are of; None if they may be of several.
    """
    described = Described(connection, unreadable, op)

    def read(row: Row[Any]) -> StoredAnswer:
        return answer_from(row, described.signature(row.kernel_id), described.provenance(row))

    return unreadable.read("answers", connection.execute(query), read)


def runs_of(connection: Connection, query: Any, unreadable: UnreadableRows) -> list[StoredRun]:
    """Return the runs of a query of `select_runs`, without those that cannot be read."""
    described = Described(connection, unreadable)

    def read(row: Row[Any]) -> StoredRun:
        return run_from(row, described.signature(row.kernel_id), described.provenance(row))

    return unreadable.read("runs", connection.execute(query), read)


def select_transfers(after: int, upto: int, op: str | None, device: str | None) -> Any:
    """Return the query of transfers with ids above `after` and up to `upto`, each with its op, device and answers."""
    table, source, target = schema.TransferRow, aliased(schema.AnswerRow), aliased(schema.AnswerRow)
    same = (source.op == target.op) & (source.device == target.device)
    query = (
        select(table, target.op, target.device, target.id.label("to_answer"))
        .join(target, (target.run_id == table.run_id) & target.kind.in_(("tuned", "default")))
        .join(source, (source.id == table.from_answer_id) & same)
        .where(table.id > after, table.id <= upto)
        .order_by(table.id)
    )
    if op is not None:
        query = query.where(target.op == op)
    return query if device is None else query.where(target.device == device)


def select_runs(ids: Select[Any]) -> Any:
    """Return the query of the runs with these ids, each with the latency of its first answer; newest first.

    A run whose kernel, problem, device or environment is missing is in the result too, with nulls in their place.
    """
    first_ids = (
        select(func.min(schema.AnswerRow.id)).where(schema.AnswerRow.run_id.in_(ids)).group_by(schema.AnswerRow.run_id)
    )
    latencies = select(schema.AnswerRow.run_id, schema.AnswerRow.latency_us)
    first = latencies.where(schema.AnswerRow.id.in_(first_ids)).subquery()
    runs = select(schema.RunRow, schema.KernelRow.source, *_CONTEXT, first.c.latency_us.label("answer_us"))
    with_answers = _with_context(runs, outer=True).outerjoin(first, first.c.run_id == schema.RunRow.id)
    return with_answers.where(schema.RunRow.id.in_(ids)).order_by(schema.RunRow.id.desc())


_CONTEXT = (
    schema.ProblemRow.parameters,
    schema.EnvironmentRow.triton,
    schema.EnvironmentRow.ptxas,
    schema.EnvironmentRow.torch,
    schema.EnvironmentRow.driver,
    select(func.count()).where(schema.TrialRow.run_id == schema.RunRow.id).scalar_subquery().label("trials"),
)
"""Columns of the context, and the number of configs that the run measured."""


def _with_context(query: Any, *, outer: bool = False) -> Any:
    """Return a query of runs, or of rows of runs, joined with the tables that runs point to."""
    run = schema.RunRow
    for table, id in (
        (schema.KernelRow, run.kernel_id),
        (schema.ProblemRow, run.problem_id),
        (schema.DeviceRow, run.device_id),
        (schema.EnvironmentRow, run.environment_id),
    ):
        query = query.join(table, id == table.id, isouter=outer)
    return query
