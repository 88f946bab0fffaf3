"""The tables. Migrations create them; a test compares the two.

Times are microseconds unless a name says otherwise. Dates are UTC texts in ISO 8601, which all databases order alike.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, get_args

from sqlalchemy import JSON, BigInteger, Boolean, ForeignKey, Index, Integer, MetaData, UniqueConstraint, text
from sqlalchemy.orm import DeclarativeBase, Mapped, MappedColumn, mapped_column
from sqlalchemy.types import TypeEngine

from tuner.db.encoding import Number, Text
from tuner.records import Answer
from tuner.records.codec import types_of


class Base(DeclarativeBase):
    """Base of the tables. Constraints are named by rule, so that a migration can name them too."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {dict[str, Any]: JSON, list[Any]: JSON, float: Number, str: Text}  # noqa: RUF012


_LONG_ID = BigInteger().with_variant(Integer(), "sqlite")
"""Ids of tables of which a fleet writes more than two thousand million rows. Those of SQLite always have 64 bits."""


class StoreRow(Base):
    """The identity of the store, in one row. Snapshot ids begin with it."""

    __tablename__ = "store"
    uuid: Mapped[str] = mapped_column(primary_key=True)
    created_at: Mapped[str]


class KernelRow(Base):
    """A signature at the time of a search, so that a service describes kernels whose code it cannot load.

    One source may have several over time, since choices are not part of the source.
    """

    __tablename__ = "kernels"
    __table_args__ = (UniqueConstraint("op", "source", "digest"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    op: Mapped[str]
    source: Mapped[str]
    digest: Mapped[str]
    """Hash of the signature."""
    signature: Mapped[dict[str, Any]]
    created_at: Mapped[str]
    """Time of its first search, or of the imported answer that it came with. The newest of an op is in use."""


class DeviceRow(Base):
    """A device: its identity, its fingerprint and its roofline limits."""

    __tablename__ = "devices"
    __table_args__ = (UniqueConstraint("slug", "fingerprint"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    slug: Mapped[str] = mapped_column(index=True)
    """`Device.id`."""
    fingerprint: Mapped[str]
    """Canonical text of `facts`."""
    facts: Mapped[dict[str, Any]]
    roofline_limits: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """Fields of `records.RooflineLimits`; null until they are measured."""


class EnvironmentRow(Base):
    """Versions that compiled and ran the code of a run."""

    __tablename__ = "environments"
    __table_args__ = (UniqueConstraint("triton", "ptxas", "torch", "driver"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    triton: Mapped[str]
    ptxas: Mapped[str]
    torch: Mapped[str]
    driver: Mapped[str]


class ProblemRow(Base):
    """A problem, by canonical text."""

    __tablename__ = "problems"
    id: Mapped[int] = mapped_column(primary_key=True)
    op: Mapped[str] = mapped_column(index=True)
    text: Mapped[str] = mapped_column(unique=True)
    parameters: Mapped[dict[str, Any]]
    """Dims, dtype and all attributes."""


class RunRow(Base):
    """One search."""

    __tablename__ = "runs"
    __table_args__ = (
        Index(None, "problem_id", "device_id"),
        Index(
            "ix_runs_running",
            "id",
            sqlite_where=text("status = 'running'"),
            postgresql_where=text("status = 'running'"),
        ),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    kernel_id: Mapped[int] = mapped_column(ForeignKey("kernels.id"))
    problem_id: Mapped[int] = mapped_column(ForeignKey("problems.id"))
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id"))
    environment_id: Mapped[int] = mapped_column(ForeignKey("environments.id"))
    policy: Mapped[str]
    recorded: Mapped[str | None]
    """The recorded space it replayed; null: measured on the card."""
    definition: Mapped[str] = mapped_column(server_default="")
    """Definition hash; empty if it is not known. With `recorded`, it belongs to the key of the run's answers."""
    settings: Mapped[dict[str, Any]]
    """Settings of the search: sampler, seed, trials, budget."""
    status: Mapped[str]
    """`running`, `done`, `failed` or `interrupted`."""
    stopped: Mapped[str | None]
    seconds: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    """Wall time by stage."""
    tuner: Mapped[str]
    started_at: Mapped[str]
    ended_at: Mapped[str | None]


class RunStateRow(Base):
    """The work of a search at one moment. It is removed when the search ends; that of a killed one stays."""

    __tablename__ = "run_states"
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"), unique=True)
    host: Mapped[str]
    """Name of the host and id of the process."""
    state: Mapped[dict[str, Any]]
    """Fields of `records.progress.RunState`."""
    at: Mapped[str]
    """By the clock of the database."""


class TrialRow(Base):
    """One measurement of a run. Written the moment it ends."""

    __tablename__ = "trials"
    __table_args__ = (UniqueConstraint("run_id", "config_text"),)
    id: Mapped[int] = mapped_column(_LONG_ID, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    config_text: Mapped[str]
    config: Mapped[dict[str, Any]]
    outcome: Mapped[str]
    stage: Mapped[str]
    error: Mapped[str]
    latency_us: Mapped[float | None]
    samples: Mapped[list[Any]]
    compile_s: Mapped[float | None]
    compiled_by: Mapped[str]
    registers: Mapped[int | None]
    spills: Mapped[int | None]
    shared_bytes: Mapped[int | None]
    max_error: Mapped[float | None]
    tolerance: Mapped[float | None]
    ended_at: Mapped[str]


class RoundRow(Base):
    """One round of a run's interleaved comparison: the latency of each contender, and the state of the card."""

    __tablename__ = "rounds"
    __table_args__ = (UniqueConstraint("run_id", "number"),)
    id: Mapped[int] = mapped_column(_LONG_ID, primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    number: Mapped[int]
    latencies: Mapped[dict[str, Any]]
    state: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))


class AnswerRow(Base):
    """An answer. Rows are only added, with ids in commit order; the newest of a key serves.

    The fields of `records.Answer` are columns. Those that are not named here follow from its types.
    """

    __tablename__ = "answers"
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    kind: Mapped[str]
    about_id: Mapped[int | None] = mapped_column(ForeignKey("answers.id"), index=True)
    """The answer that a rollback restores, or that a row of kind `forgotten` retires."""
    op: Mapped[str] = mapped_column(index=True)
    problem: Mapped[str]
    """Canonical text; with op, device, source, policy and triton, the key."""
    device: Mapped[str] = mapped_column(index=True)
    source: Mapped[str]
    policy: Mapped[str]
    triton: Mapped[str]
    latency_us: Mapped[float]
    """Infinite if it was never timed."""
    marks: Mapped[list[Any]] = mapped_column(server_default="[]")
    basis: Mapped[str] = mapped_column(server_default="reference")
    created_at: Mapped[str]


def _add_columns(table: type[Base], record: type) -> None:
    """Add the fields of a record that the table does not name, each a column of its type."""
    for each in fields(record):
        if each.name not in table.__table__.columns:
            setattr(table, each.name, _column(types_of(record)[each.name], each.metadata["null"]))


def _column(type: Any, null: Any) -> MappedColumn[Any]:
    """Return a column for values of this type. It takes nulls if the type does and `null` does not stand for them."""
    kinds = set(get_args(type)) if isinstance(type, UnionType) else {type}
    nullable = NoneType in kinds and null is None
    (kind,) = kinds - {NoneType}
    return mapped_column(_COLUMN_TYPES.get(kind, JSON(none_as_null=True)), nullable=nullable)


_COLUMN_TYPES: Mapping[Any, TypeEngine[Any]] = {str: Text, float: Number, int: BigInteger(), bool: Boolean()}
"""Types of columns, by the type of the field; others are JSON."""
_add_columns(AnswerRow, Answer)


class TransferRow(Base):
    """The transfer loss of an answer's config on the problem of a run, by which neighbours are served."""

    __tablename__ = "transfers"
    __table_args__ = (UniqueConstraint("run_id", "from_answer_id"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("runs.id"))
    from_answer_id: Mapped[int] = mapped_column(ForeignKey("answers.id"))
    distance: Mapped[float]
    slowdown: Mapped[float]
    created_at: Mapped[str]


IN_COMMIT_ORDER: frozenset[type[Base]] = frozenset({KernelRow, AnswerRow, TransferRow})
"""Tables that are read by id: a reader asks for what is above the highest id that it has seen; see `store.Tip`."""


class RequestRow(Base):
    """A missed query, with its count."""

    __tablename__ = "requests"
    __table_args__ = (UniqueConstraint("problem", "device"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    op: Mapped[str]
    problem: Mapped[str]
    device: Mapped[str]
    count: Mapped[int]
    first_at: Mapped[str]
    last_at: Mapped[str]


class CapturedRow(Base):
    """A captured call of an autotuned kernel: the first of its problem and device, with the number of such calls."""

    __tablename__ = "captured"
    __table_args__ = (UniqueConstraint("problem", "device_id"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    op: Mapped[str] = mapped_column(index=True)
    problem: Mapped[str]
    """Canonical text."""
    device_id: Mapped[int] = mapped_column(ForeignKey("devices.id"))
    call: Mapped[dict[str, Any]]
    """Document of the call, by `tuner.captured.document`."""
    count: Mapped[int]
    first_at: Mapped[str]
    last_at: Mapped[str]


class EngineFileRow(Base):
    """A file that another system keeps of its own tuning."""

    __tablename__ = "engine_files"
    __table_args__ = (UniqueConstraint("engine", "key"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    engine: Mapped[str]
    """`triton`, `helion` or `inductor`."""
    key: Mapped[str]
    """The engine's own key, which names all that the content depends on."""
    content: Mapped[str]
    written_at: Mapped[str]


class JobRow(Base):
    """A problem to be tuned, and the worker that has it.

    The database allows one unfinished job for each problem and device.
    """

    __tablename__ = "jobs"
    __table_args__ = (
        Index(
            "uq_jobs_unfinished",
            "problem",
            "device",
            unique=True,
            sqlite_where=text("status IN ('pending', 'running')"),
            postgresql_where=text("status IN ('pending', 'running')"),
        ),
        Index(
            "ix_jobs_pending",
            "device",
            text("priority DESC"),
            "tries",
            text("missed DESC"),
            "id",
            sqlite_where=text("status = 'pending'"),
            postgresql_where=text("status = 'pending'"),
        ),
        Index(
            "ix_jobs_running",
            "lease_until",
            sqlite_where=text("status = 'running'"),
            postgresql_where=text("status = 'running'"),
        ),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    op: Mapped[str]
    problem: Mapped[str]
    device: Mapped[str]
    priority: Mapped[int]
    status: Mapped[str] = mapped_column(index=True)
    """`pending`, `running`, `done` or `failed`."""
    tries: Mapped[int] = mapped_column(server_default="0")
    """Number of times that a worker took it and did not release it."""
    worker: Mapped[str | None]
    """Name of the worker that has it, or had it last."""
    lease_until: Mapped[str | None]
    """End of the lease, unless the worker renews it."""
    error: Mapped[str | None]
    """Reason of the last failure."""
    run_id: Mapped[int | None] = mapped_column(ForeignKey("runs.id"))
    """The run whose answer serves."""
    created_at: Mapped[str]
    ended_at: Mapped[str | None]
    missed: Mapped[int] = mapped_column(server_default="0")
    """Number of misses of its problem, as long as it is pending; one of the columns by which jobs are claimed."""


class RetuneRow(Base):
    """One run of `tuner retune` on one card."""

    __tablename__ = "retunes"
    id: Mapped[int] = mapped_column(primary_key=True)
    device: Mapped[str] = mapped_column(index=True)
    settings: Mapped[dict[str, Any]]
    planned: Mapped[list[Any]]
    """Ids of the answers to be measured again, in order."""
    environment: Mapped[dict[str, Any]]
    status: Mapped[str]
    """`running`, `done`, `interrupted` or `failed`."""
    started_at: Mapped[str]
    """By the clock of the database, as `ended_at`."""
    ended_at: Mapped[str | None]


class FindingRow(Base):
    """Finding of a retune about one answer: its cause, and what was done. A retune has at most one for each answer."""

    __tablename__ = "findings"
    __table_args__ = (UniqueConstraint("retune_id", "answer_id"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    retune_id: Mapped[int] = mapped_column(ForeignKey("retunes.id"))
    answer_id: Mapped[int] = mapped_column(ForeignKey("answers.id"))
    problem: Mapped[str] = mapped_column(index=True)
    """Canonical text."""
    cause: Mapped[str]
    action: Mapped[str]
    new_answer_id: Mapped[int | None] = mapped_column(ForeignKey("answers.id"))
    """The answer that it stored."""
    document: Mapped[dict[str, Any]]
    """The finding in full, by `records.retune_codec`."""
    created_at: Mapped[str]


class PinRow(Base):
    """The answer that serves a problem on a device until it is unpinned, whatever a search or a retune would find."""

    __tablename__ = "pins"
    __table_args__ = (UniqueConstraint("problem", "device"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    problem: Mapped[str]
    """Canonical text."""
    device: Mapped[str]
    answer_id: Mapped[int] = mapped_column(ForeignKey("answers.id"))
    note: Mapped[str]
    created_at: Mapped[str]
