"""Values that tests keep in a store, and views of its database from outside."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from subprocess import PIPE
from typing import Any

from helpers import H200
from sqlalchemy import URL, Connection, Engine, NullPool, create_engine, inspect, text

from tuner.db import revisions, schema
from tuner.db.database import Database
from tuner.db.postgresql import PostgreSQL
from tuner.db.sqlite import SQLite
from tuner.db.store import Store
from tuner.kernels.spec import Attribute, Config, Dim, Knob, Problem, Signature, Value
from tuner.records import (
    VENDOR,
    Answer,
    Comparison,
    Environment,
    Measurement,
    Outcome,
    Provenance,
)

SCALE = Signature(
    op="scale",
    summary="out = 2 x",
    dims=(Dim("M", help="rows"), Dim("N", default="M")),
    dtypes=("bf16", "fp16", "fp32", "fp8e4m3"),
    knobs=(
        Knob("BLOCK", (64, 128, 256)),
        Knob("EVICT", ("", "evict_first", "evict_last")),
        Knob("PIPELINED", (False, True)),
        Knob("num_warps", (4, 8)),
        Knob("num_stages", (1, 2, 3)),
    ),
    attributes=(Attribute("layout", ("nn", "nt"), "nn"),),
)
PROBLEM = SCALE.problem({"M": 4096})
HERE = Provenance(
    device=H200,
    environment=Environment(triton="3.6.0", ptxas="12.9", torch="2.10.0", driver="580.95"),
    source="9f2c0a1b2c3d4e5f",
    policy="cold-events-1",
    tuner="0.1.0",
    definition="4d2c0a1b2c3d4e5f",
)
SETTINGS = {"sampler": "tpe", "trials": 200, "known": 0}
SECONDS = {"compile": 1.5, "measure": 30.25}
NASTY = "ptxas fatal: \u00fcber-\u6838\u5fc3 \U0001f525 e\u0301\x00 '; DROP TABLE trials; --\r\n\t\u2028 %s ? :x"


def config(block: int = 128, **changes: Value) -> Config:
    values: dict[str, Value] = {
        "BLOCK": block,
        "EVICT": "evict_first",
        "PIPELINED": True,
        "num_warps": 4,
        "num_stages": 3,
    }
    return SCALE.config(values | changes)


def measured(latency_us: float = 10.0, block: int = 128, outcome: Outcome = Outcome.OK) -> Measurement:
    return Measurement(config(block), outcome, (latency_us,) * 3 if outcome is Outcome.OK else ())


def answer(problem: Problem = PROBLEM, latency_us: float = 10.0) -> Answer:
    return Answer(
        problem=problem,
        kind="tuned",
        config=config(),
        latency_us=latency_us,
        interval_us=(latency_us - 0.1, latency_us + 0.1),
        speedup=1.25,
        speedup_interval=(1.2, 1.3),
        default_latency_us=latency_us * 1.25,
        vendor_latency_us=None,
    )


COMPARISON = Comparison((config().text, config(64).text, VENDOR), ((10.0, 12.5, 9.75), (10.1, 12.4, 9.8)))


def started(store: Store, problem: Problem = PROBLEM, provenance: Provenance = HERE) -> int:
    return store.start_run(SCALE, problem, provenance, SETTINGS)


def answered(store: Store, given: Answer | None = None, provenance: Provenance = HERE) -> int:
    """Store an answer with a run of its own, and return its id."""
    given = given or answer()
    return store.add_answer(started(store, given.problem, provenance), given, provenance, "trials", SECONDS, COMPARISON)


@cache
def outside(database: Database) -> Engine:
    """Return connections to a database without the store's settings."""
    url = f"sqlite:///{database.path}" if isinstance(database, SQLite) else _url(database)
    return create_engine(url, poolclass=NullPool)


def rows(database: Database, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query, read without the store."""
    with outside(database).connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def documents(database: Database, table: str, column: str) -> list[Any]:
    """Return the values of a JSON column, row by row."""
    return [json.loads(found) for (found,) in rows(database, f"SELECT CAST({column} AS TEXT) FROM {table} ORDER BY id")]


def change(database: Database, statement: str) -> None:
    """Execute a statement without the store."""
    with outside(database).begin() as connection:
        connection.execute(text(statement))


RENAMED_COLUMNS = {("devices", "roofline_limits"): "ceilings"}
"""Columns that a migration renamed, by table and today's name."""


def older(database: Database, revision: str) -> None:
    """Give the tables the schema that they had at a revision."""
    with create_engine("sqlite://").begin() as scratch:
        revisions.upgrade(scratch, revision)
        columns, indexes = _columns(scratch), _indexes(scratch)
    with outside(database).connect() as connection:
        statements = [f"DROP INDEX {name}" for name in _indexes(connection) - indexes]
        known = {table for table, _ in columns}
        newer = reversed([table.name for table in schema.Base.metadata.sorted_tables if table.name not in known])
        statements += [f"DROP TABLE {table}" for table in newer]
        for table, name in _columns(connection) - columns:
            if table not in known:
                continue
            before = RENAMED_COLUMNS.get((table, name))
            undone = f"RENAME COLUMN {name} TO {before}" if (table, before) in columns else f"DROP COLUMN {name}"
            statements.append(f"ALTER TABLE {table} {undone}")
    for statement in statements:
        change(database, statement)
    change(database, f"UPDATE alembic_version SET version_num = '{revision}'")


def _columns(connection: Connection) -> set[tuple[str, str]]:
    inspector = inspect(connection)
    return {(table, column["name"]) for table in inspector.get_table_names() for column in inspector.get_columns(table)}


def _indexes(connection: Connection) -> set[str]:
    inspector = inspect(connection)
    indexes = [index for table in inspector.get_table_names() for index in inspector.get_indexes(table)]
    return {str(index["name"]) for index in indexes if not index.get("duplicates_constraint")}


def address(database: Database) -> str:
    """Return the path or URL by which another process opens the database."""
    return str(database.path) if isinstance(database, SQLite) else _url(database).render_as_string(hide_password=False)


def _url(database: Database) -> URL:
    assert isinstance(database, PostgreSQL)
    return database.url


def python(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, text=True, stdin=PIPE, stdout=PIPE, stderr=PIPE)


FULL = Measurement(
    config=config(),
    outcome=Outcome.OK,
    samples=(10.1, 10.2, 0.1 + 0.2, 1e-300),
    stage="time",
    error=NASTY,
    compile_s=2.5,
    compiled_by="pool",
    registers=168,
    spills=0,
    shared_bytes=196_608,
    max_error=float("inf"),
    tolerance=2**-7,
)
