"""Several processes at one database, some of them killed."""

from __future__ import annotations

import os
import subprocess
from signal import SIGKILL
from time import monotonic, sleep

from stored import address, change, outside, python, rows

from tuner.db.database import Database
from tuner.db.revisions import HEAD

WRITER = """
import os, sys
import alembic.command, psycopg, sqlalchemy.dialects.postgresql.psycopg, sqlalchemy.orm
from concurrent.futures import ThreadPoolExecutor
from tuner.db.store import Store
from tuner.kernels.spec import Dim, Knob, Signature
from tuner.records import Device, Environment, Measurement, Outcome, Provenance

address = sys.argv[1]
sqlalchemy.orm.configure_mappers()  # as the imports: once, before it forks

def write(store, trials):
    knobs = tuple(Knob(name, (1,)) for name in ("BLOCK", "num_warps", "num_stages"))
    signature = Signature("scale", (Dim("M"),), ("fp32",), knobs)
    device = Device("NVIDIA H200", (9, 0), 132, 1, 1, 1)
    provenance = Provenance(device, Environment("3.6.0"), "source", "cold-events-1")
    run = store.start_run(signature, signature.problem({"M": 1}), provenance, {"known": 0})
    for block in range(trials):
        config = signature.config({"BLOCK": block, "num_warps": 1, "num_stages": 1})
        store.add_trial(run, Measurement(config, Outcome.OK, (float(block),)))
        os.write(1, f"{run} {config.text}\\n".encode())  # the whole line or nothing if the process is killed
"""
EIGHT = """
gate, word = os.pipe()
children = []
for _ in range(8):
    child = os.fork()
    if child == 0:
        os.close(word)
        os.read(gate, 1)
        if "://" in address:
            Store.upgrade(address)
        with ThreadPoolExecutor(4) as threads:
            for store in threads.map(lambda _: Store.open(address), range(4)):
                store.close()
        write(Store.open(address), 100)
        sys.exit()
    children.append(child)
os.close(word)  # the word to go
print([os.waitpid(child, 0)[1] for child in children])
"""
AGAIN_AND_AGAIN = """
store = Store.open(address)
write(store, 1)
store.close()  # its connections; what it has compiled is ready for all children
while sys.stdin.readline():
    child = os.fork()
    if child == 0:
        print(os.getpid(), flush=True)
        write(store, 10_000)
    print("died of", os.waitpid(child, 0)[1], flush=True)
"""
READER = """
import sys
from dataclasses import replace
from sqlalchemy import func, select
from tuner.db import schema
from tuner.db.store import Store, database_at
database = database_at(sys.argv[1])
store = Store.open(replace(database, wait=replace(database.wait, idle_s=1)), create=False)
with store._read() as connection:
    counted = select(func.count()).select_from(schema.TrialRow)
    print(connection.scalar(counted), flush=True)
    sys.stdin.readline()
    print(connection.scalar(counted), flush=True)
"""
KILLS, HELD_S = 50, 2
"""The reader's transaction is held for twice as long as one that writes may be idle."""


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def go(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    process.stdin.write("go\n")
    process.stdin.flush()


def test_eight_processes_with_32_starts_on_an_empty_database(nothing: Database) -> None:
    """Eight processes each make the tables if none did, open four times at once and write 100 trials."""
    printed, errors = python(WRITER + EIGHT, address(nothing)).communicate()
    assert errors == ""
    assert printed.splitlines()[-1] == str([0] * 8)
    by_run = rows(nothing, "SELECT run_id, count(*) FROM trials GROUP BY run_id ORDER BY run_id")
    assert by_run == [(run, 100) for run in range(1, 9)]
    assert rows(nothing, "SELECT count(*) FROM store") == [(1,)]
    assert rows(nothing, "SELECT version_num FROM alembic_version") == [(HEAD,)]


def test_killed_writers_lose_nothing_that_was_committed_while_a_reader_holds_a_transaction(
    database: Database,
) -> None:
    with python(WRITER + AGAIN_AND_AGAIN, address(database)) as writer:
        committed = {line(writer)}
        with python(READER, address(database)) as reader:
            assert line(reader) == "1"
            since = monotonic()
            for number in range(KILLS):
                go(writer)
                child = int(line(writer))
                committed |= {line(writer) for _ in range(1 + number % 10)}
                os.kill(child, SIGKILL)
                while not (last := line(writer)).startswith("died of "):
                    committed.add(last)
                assert last == "died of 9"
            sleep(max(0.0, HELD_S - (monotonic() - since)))
            go(reader)
            assert line(reader) == "1"  # its transaction sees what it saw
        writer.communicate()
    assert whole(database)
    stored = {f"{run} {text}" for run, text in rows(database, "SELECT run_id, config_text FROM trials")}
    assert len(committed) >= KILLS
    assert committed <= stored
    assert len(stored - committed) <= KILLS  # killed after the commit and before the word of it
    assert {text.partition(" ")[0] for text in stored} == {str(run) for run in range(1, KILLS + 2)}


def whole(database: Database) -> bool:
    """Return whether the database's own check finds no error."""
    with outside(database).connect() as connection:
        if connection.dialect.name == "sqlite":
            return bool(connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok")
    change(database, "CREATE EXTENSION IF NOT EXISTS amcheck")
    checked = (
        "SELECT bt_index_check(c.oid, true) FROM pg_class c JOIN pg_am a ON a.oid = c.relam WHERE a.amname = 'btree'"
    )
    rows(database, f"{checked} AND c.relnamespace = 'public'\\:\\:regnamespace")
    return rows(database, "SELECT v.* FROM verify_heapam('trials') v") == []
