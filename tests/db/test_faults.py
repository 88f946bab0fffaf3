"""A row that cannot be read costs that row: whatever reads the store gets all others, a warning and a count."""

from __future__ import annotations

import logging
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path

import faults
import pytest
from faults import HURT_AT, HURT_ID, HURT_PROBLEM, SOUND, SOUND_AT, SOUND_ID, SOUND_PROBLEM
from stored import COMPARISON, SCALE, change, measured

from tuner.db import schema
from tuner.db.database import Database
from tuner.db.postgresql import PostgreSQL
from tuner.db.queue import JobFilter
from tuner.db.store import Store
from tuner.errors import UnknownName

EVERY_OP = frozenset({"scale", "sound"})


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("whole") / "tuner.db"
    faults.make(file)
    return file


def read_all(store: Store) -> None:
    """Read everything, and look at the sound rows."""
    assert SOUND_ID in [stored.id for stored in store.answers()]
    assert [stored.id for stored in store.answers_of(SOUND_ID)] == [SOUND_ID]
    store.answers_of(HURT_ID)
    assert SOUND_ID in [run.id for run in store.runs(1)]
    assert SOUND_ID in [run.id for run in store.runs(10)]
    assert len(store.transfers()["sound", SOUND_AT.device.id]) == 1
    assert store.signatures()["sound"] == SOUND
    assert SOUND_AT.device in store.cards()
    assert SOUND_AT.device.id in store.devices()
    assert store.device(SOUND_AT.device.id) == SOUND_AT.device
    assert store.roofline_limits(SOUND_AT.device) is not None
    assert store.known(SOUND, SOUND_PROBLEM, SOUND_AT) == [measured()]
    store.device(HURT_AT.device.id)
    store.roofline_limits(HURT_AT.device)
    assert len(store.known(SCALE, HURT_PROBLEM, HURT_AT)) <= 1
    store.partial(SCALE, HURT_PROBLEM, HURT_AT)
    sound = store.run(SOUND_ID)
    assert sound is not None
    assert store.known_to(sound) == [measured()]
    assert store.comparison(SOUND_ID) is not None
    with suppress(UnknownName):
        hurt = store.run(HURT_ID)
        assert hurt is None or len(store.known_to(hurt)) <= 1
    compared = store.comparison(HURT_ID)
    sound_rounds = COMPARISON.contenders, COMPARISON.rounds[:1]
    another_contender = ("NO_KNOB",), ((1,),)  # one of the faults: nothing tells it from a round
    if compared is not None:
        assert (compared.contenders, compared.rounds) in (sound_rounds, another_contender)
    for table in (schema.ProblemRow, schema.KernelRow, schema.DeviceRow, schema.JobRow):
        assert SOUND_ID in [row["id"] for row in store.rows(table, 1) + store.rows(table, 1, HURT_ID)]
    assert SOUND_ID in [row["id"] for row in store.requests(10)]
    assert [row["id"] for row in store.missed(SOUND_PROBLEM)] == [SOUND_ID]
    store.missed(HURT_PROBLEM)
    assert SOUND_ID in [job.id for job in store.queue.jobs(10)]
    assert SOUND_ID in [stored.id for stored in store.captured.all()]
    assert len(store.captured.all(device=HURT_AT.device.id)) <= 1
    assert store.engine_files.get("triton", SOUND_PROBLEM.text) == "{}"
    assert "{}" in store.engine_files.newest("triton", 10)
    assert store.pins.of_problem(SOUND_PROBLEM, SOUND_AT.device.id) in store.pins.of()
    assert SOUND_ID in [retune.id for retune in store.retunes.newest(1) + store.retunes.newest(10)]
    assert len(store.retunes.of_problem(SOUND_PROBLEM.text, SOUND_AT.device.id)) == 1
    assert store.retunes.unfinished(SOUND_AT.device.id, {"all": True}) is not None
    store.retunes.get(HURT_ID)
    store.prune(timedelta(0), dry_run=True)
    assert SOUND_AT.device.id in Store.info(store._database).devices


def work_through(store: Store) -> None:
    """Do all jobs; the sound one is done, and none is claimed for ever."""
    able = [JobFilter(place.device.id, EVERY_OP) for place in (HURT_AT, SOUND_AT)]
    done = []
    while (job := store.queue.claim("me", able, 60)) is not None:
        done.append(job.id)
        store.queue.done(job, SOUND_ID)
        assert len(done) < 5
    assert SOUND_ID in done
    assert store.queue.add(HURT_PROBLEM, HURT_AT.device.id)[0].problem == HURT_PROBLEM.text


@pytest.fixture(scope="module")
def kept(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Path]]:
    """Yield a store for all faults and its file, since a new store compiles every statement again."""
    file = tmp_path_factory.mktemp("kept") / "tuner.db"
    shutil.copy(whole, file)
    store = Store.open(file)
    yield store, file
    store.close()


@pytest.mark.parametrize(("table", "column"), faults.columns())
def test_in_any_column_of_sqlite(whole: Path, kept: tuple[Store, Path], table: str, column: str) -> None:
    store, file = kept
    for fault in faults.some_faults(table, column):
        with closing(sqlite3.connect(whole)) as sound, closing(sqlite3.connect(file)) as target:
            sound.backup(target)
        faults.hurt(file, table, column, fault)
        try:
            read_all(store)
            work_through(store)
        except Exception as error:
            error.add_note(f"{table}.{column} = {fault[:60]}")
            raise


@pytest.mark.parametrize("table", sorted({table for table, _ in faults.columns()}))
def test_in_any_column_of_postgresql(database: Database, table: str) -> None:
    if not isinstance(database, PostgreSQL):
        pytest.skip("above")
    store = Store.open(database)
    faults.fill(store)
    try:
        for column in (column for of, column in faults.columns() if of == table):
            change(database, f"CREATE TABLE kept AS SELECT {column} FROM {table} WHERE id = {HURT_ID}")
            for fault in faults.some_faults(table, column, postgresql=True):
                change(
                    database, f"UPDATE {table} SET {column} = {fault.replace(':', chr(92) + ':')} WHERE id = {HURT_ID}"
                )
                try:
                    read_all(store)
                except Exception as error:
                    error.add_note(f"{table}.{column} = {fault[:60]}")
                    raise
            change(database, f"UPDATE {table} SET {column} = (SELECT {column} FROM kept) WHERE id = {HURT_ID}")
            change(database, "DROP TABLE kept")
    finally:
        store.close()


class TestWarning:
    def test_it_names_database_table_row_and_reason_once(
        self, whole: Path, path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        shutil.copy(whole, path)
        faults.hurt(path, "answers", "config", "'{\"TILE\": 8}'")
        store = Store.open(path)
        with caplog.at_level(logging.WARNING, "tuner"):
            for _ in range(2):
                assert [stored.id for stored in store.answers()] == [SOUND_ID]
        store.close()
        (line,) = caplog.messages
        assert line.startswith(f"{path}: row 1 of answers is left out, since it cannot be read: ")
        assert "TILE" in line
        assert store.unreadable.counts == {"answers": 1}

    @pytest.mark.parametrize(
        ("table", "column", "fault", "reason"),
        [
            ("answers", "latency_us", "9e999", "an answer of kind tuned has latency_us, and here it is missing"),
            ("answers", "latency_us", "0", "an answer has a positive number as latency_us, not '0.0'"),
            ("answers", "config", "'{\"BLOCK'", "config is an object, not broken JSON (Unterminated string"),
            ("answers", "device", "'nvidia-h2oo'", "an answer's device is that of its run"),
            ("answers", "problem", faults.INVALID_UTF8, "an answer's problem is that of its run"),
            ("runs", "kernel_id", "7", "row 7 of kernels is missing, or cannot be read"),
            ("runs", "settings", "'{\"seed\": 1e999}'", "settings has finite numbers"),
            ("problems", "parameters", "'{\"M\": 0}'", "M is a whole number from 1"),
            ("environments", "ptxas", "X'00'", "a provenance has a text as ptxas"),
        ],
    )
    def test_the_reason_says_what_is_wrong(
        self,
        whole: Path,
        path: Path,
        caplog: pytest.LogCaptureFixture,
        table: str,
        column: str,
        fault: str,
        reason: str,
    ) -> None:
        shutil.copy(whole, path)
        faults.hurt(path, table, column, fault)
        store = Store.open(path)
        with caplog.at_level(logging.WARNING, "tuner"):
            assert [stored.id for stored in store.answers()] == [SOUND_ID]
            store.runs(10)
        store.close()
        assert any(reason in line for line in caplog.messages), caplog.messages
        assert all("\n" not in line and line.isprintable() for line in caplog.messages)


def test_an_import_goes_past_an_answer_that_cannot_be_read(whole: Path, path: Path) -> None:
    from tuner.db.import_rules import ImportedAnswer, ImportOutcome

    shutil.copy(whole, path)
    reader = Store.open(path)
    hurt, _ = reader.answers()
    assert reader.pins.remove(HURT_PROBLEM, HURT_AT.device.id)
    reader.close()
    faults.hurt(path, "runs", "settings", "'{'")
    store = Store.open(path)
    (outcome,) = store.import_answers([ImportedAnswer(SCALE, hurt.answer, hurt.provenance, "elsewhere")])
    assert outcome is ImportOutcome.STORED
    assert [stored.answer for stored in store.answers()][-1] == hurt.answer
    store.close()
