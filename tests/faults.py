"""A database in which each table has one row that gets a fault and one that stays sound, and the faults."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from helpers import A100
from stored import COMPARISON, HERE, SCALE, SECONDS, SETTINGS, answer, config, measured

from tuner.captured.call import CapturedCall, Function, TensorArgument
from tuner.db import schema
from tuner.db.store import Store
from tuner.records import CardState, Comparison, RooflineLimits
from tuner.records.progress import MEASURING, RunState
from tuner.records.retune import Action, Cause, Finding

SOUND = replace(SCALE, op="sound")
"""Signature of the op whose rows stay sound."""
HURT_PROBLEM, SOUND_PROBLEM = SCALE.problem({"M": 64}), SOUND.problem({"M": 64})
HURT_AT = replace(HERE, device=A100, environment=replace(HERE.environment, triton="3.5.0"))
SOUND_AT = HERE
HURT_ID, SOUND_ID = 1, 2
"""Ids, in each table."""

CAPTURED = CapturedCall(
    Function("library.kernels", "/library/kernels.py", "scale"),
    op="scale",
    key={"M": 64},
    arguments={"x": TensorArgument((64, 3), (3, 1), "bf16"), "M": 64},
    configs=({"BLOCK": 64, "num_warps": 4, "num_stages": 3},),
)
"""A captured call, of both ops."""
_LIMITS = RooflineLimits(4000.0, {"bf16": 800.0}, {"cold-events-1": 2.0})
_STATES = tuple(CardState(1980, 3201, 40, 500.0) for _ in COMPARISON.rounds)

INVALID_UTF8 = "CAST(X'67656dff80' AS TEXT)"
_TEXTS = ("NULL", INVALID_UTF8, "X'00ff'", "''", "'no such thing'")
_POSTGRESQL = {
    str: ("''", "'no such thing'"),
    float: ("'NaN'", "'Infinity'", "'-Infinity'", "0", "-1", "1e300"),
    object: ("'[]'", "'[1, null]'", "'7'", "'null'", "'{}'", "'{\"a\": 1e999}'", '\'{"a": "\\ud800"}\''),
}
"""Faults that a column of PostgreSQL can hold, by the type of its values."""
_NUMBERS = ("NULL", "9e999", "-9e999", "0", "-1", "1e300", "'abc'", "X'00ff'", INVALID_UTF8)
_JSONS = (
    *(
        "NULL",
        "'{\"a\": '",
        "'[]'",
        "'[1, null]'",
        "'7'",
        "'null'",
        "'{}'",
        "'\"text\"'",
        "'{\"a\": 1e999}'",
        "'1e999'",
    ),
    *("'{\"a\": NaN}'", "'{\"NO_KNOB\": 1}'", '\'{"a": "\\ud800"}\'', "X'00ff'"),
    f"'{'[' * 100_000}'",
    f"'{{\"a\": {'9' * 5000}}}'",
    "CAST(X'7b2261223a2022ff227d' AS TEXT)",
)


def columns() -> list[tuple[str, str]]:
    """Return table and name of each column that can get a fault."""
    return [
        (table.name, column.name)
        for table in schema.Base.metadata.sorted_tables
        for column in table.columns
        if column.name != "id" and table.name != "store"
    ]


def faults(table: str, column: str, *, postgresql: bool = False) -> tuple[str, ...]:
    """Return the faults of a column, as SQL."""
    kind = schema.Base.metadata.tables[table].columns[column].type.python_type
    if postgresql:
        return _POSTGRESQL.get(kind, ())
    return _TEXTS if kind is str else _NUMBERS if kind in (int, float, bool) else _JSONS


def some_faults(table: str, column: str, *, postgresql: bool = False) -> tuple[str, ...]:
    """Return a third of a column's faults, others than those of the column beside it."""
    return faults(table, column, postgresql=postgresql)[columns().index((table, column)) % 3 :: 3]


def make(file: Path) -> None:
    """Make the database as a file. Its columns take nulls."""
    store = Store.open(file)
    fill(store)
    store.close()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, ' NOT NULL', '') WHERE type = 'table'")
        connection.commit()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def fill(store: Store) -> None:
    """Write the rows into an empty store."""
    for signature, problem, place in ((SCALE, HURT_PROBLEM, HURT_AT), (SOUND, SOUND_PROBLEM, SOUND_AT)):
        run = store.start_run(signature, problem, place, SETTINGS)
        store.keep_roofline_limits(place.device, _LIMITS)
        store.add_trial(run, measured())
        number = store.add_answer(
            run, replace(answer(), problem=problem, config=signature.config(config())), place, "trials", SECONDS,
            Comparison(COMPARISON.contenders, COMPARISON.rounds[:1], _STATES[:1]),
        )  # fmt: skip
        store.add_transfers(run, [(number, 0.0, 1.01)])
        store.count_requests({(signature.op, problem.text, place.device.id): 3})
        job, _ = store.queue.add(problem, place.device.id)
        assert store.captured.add(replace(CAPTURED, op=signature.op), place.device)
        store.engine_files.put("triton", problem.text, "{}")
        retune = store.retunes.start(place.device.id, {"all": True}, [number], {"host": "here"})
        found = Finding(problem, number, signature.config(config()), Cause.ORDER, Action.KEPT, "it is", new_answer_id=1)
        assert store.retunes.add(retune, found)
        store.pins.add(number, "good")
        store.progress.write([run], "here:1", RunState(MEASURING, 3, 1))
        assert (run, number, job.id, retune) in ((HURT_ID,) * 4, (SOUND_ID,) * 4)


def hurt(file: Path, table: str, column: str, fault: str) -> None:
    """Write a fault into a column of the row that gets them."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute(f"UPDATE {table} SET {column} = {fault} WHERE id = {HURT_ID}")
        connection.commit()
