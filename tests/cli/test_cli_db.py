"""`tuner db` as its users have it: a process, its output, its exit code."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import run_tuner
from stored import HERE, address, answered, change, older, started

from tuner.cli.ops import known_signatures
from tuner.db.database import Database
from tuner.db.revisions import HEAD
from tuner.db.store import Store, database_at


def tuner(*arguments: str, db: Database | Path | str) -> CompletedProcess[str]:
    named = address(db) if isinstance(db, Database) else str(db)
    return run_tuner(*arguments, environment={"TUNER_DB": named})


def test_upgrade_makes_the_tables_and_then_has_nothing_to_do(nothing: Database) -> None:
    done = tuner("db", "upgrade", db=nothing)
    assert (done.returncode, done.stdout) == (0, f"{nothing} is upgraded to schema {HEAD}, from no tables\n")
    again = tuner("db", "upgrade", db=nothing)
    assert (again.returncode, again.stdout) == (0, f"{nothing} already has the newest schema, {HEAD}\n")


def test_an_older_file_is_brought_up_to_date_even_where_only_its_signatures_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by a tuner without triton, before anything else."""
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    file = database_at(str(tmp_path / "tuner.db"))
    Store.open(file).close()
    older(file, "0002")
    assert "gemm" in known_signatures()
    Store.open(file, create=False).close()  # which refuses what is older


def test_every_command_works_on_either_kind(database: Database) -> None:
    searched = tuner("search", "softmax", "--M", "8192", "--trials", "10", "--json", db=database)
    assert searched.returncode == 0, searched.stderr
    for command in (["best", "softmax", "--M", "8192"], ["explain", "softmax", "--M", "8192"], ["list"], ["show", "1"]):
        done = tuner(*command, "--db", address(database), db="/nowhere")
        assert done.returncode == 0, done.stderr
    info = json.loads(tuner("db", "info", "--json", db=database).stdout)
    assert info["total"] == {"runs": 1, "trials": 10, "answers": 1}
    assert info["devices"] == {"nvidia-h200": info["total"]}
    assert (info["schema"], info["newest_schema"], info["database"]) == (HEAD, HEAD, str(database))


def test_info_is_for_people_too(store: Store, database: Database) -> None:
    answered(store)
    change(database, "UPDATE alembic_version SET version_num = '0001'")
    done = tuner("db", "info", db=database)
    assert f"schema    0001; this version writes {HEAD}" in done.stdout
    assert "holds     1 run, 0 trials, 1 answer\n          1 run, 0 trials, 1 answer of nvidia-h200" in done.stdout


def test_prune_says_what_went(store: Store, database: Database) -> None:
    run = started(store)
    change(database, f"INSERT INTO rounds (run_id, number, latencies) VALUES ({run}, 0, '{{}}')")
    change(database, "UPDATE runs SET started_at = '2020-01-01T00:00:00.000+00:00'")
    would = tuner("db", "prune", "--older-than", "90d", "--dry-run", db=database)
    assert would.stdout == "0 trials and 1 rounds of 1 runs would be removed; all answers stay\n"
    went = tuner("db", "prune", "--older-than", "90d", db=database)
    assert went.stdout == "0 trials and 1 rounds of 1 runs are removed; all answers stay\n"


@pytest.mark.parametrize("age", ["90", "0d", "3 months", "-1d"])
def test_an_age_is_a_number_of_days(tmp_path: Path, age: str) -> None:
    done = tuner("db", "prune", "--older-than", age, db=tmp_path / "tuner.db")
    assert done.returncode == 2
    assert f"an age is a number of days, such as 90d, not '{age}'" in done.stderr


def test_backup_is_a_file_that_the_other_commands_take(tmp_path: Path) -> None:
    store = Store.open(tmp_path / "tuner.db")
    answered(store)
    store.close()
    copy = str(tmp_path / "copy.db")
    done = tuner("db", "backup", copy, db=tmp_path / "tuner.db")
    assert (done.returncode, done.stdout) == (0, f"{tmp_path / 'tuner.db'} is copied to {copy}\n")
    assert HERE.device.id in tuner("list", db=copy).stdout
    again = tuner("db", "backup", copy, db=tmp_path / "tuner.db")
    assert (again.returncode, again.stderr) == (2, f"tuner: a backup is a new file, and {copy} is there already\n")


@pytest.mark.parametrize("command", [["list"], ["db", "info"], ["db", "upgrade"], ["search", "softmax", "--M", "8192"]])
def test_a_server_that_is_away_is_told_without_the_password(command: list[str]) -> None:
    done = tuner(*command, db="postgresql://me:hunter2@127.0.0.1:1/tuning")
    assert done.returncode == 5
    assert "the database postgresql://me@127.0.0.1:1/tuning cannot be read: connection failed" in done.stderr
    assert "hunter2" not in done.stderr + done.stdout


def test_a_backup_of_postgresql_names_its_tool() -> None:
    done = tuner("db", "backup", "copy", "--db", "postgresql://me:hunter2@host/tuning", db="/nowhere")
    assert done.returncode == 2
    assert "pg_dump --format=custom --file=copy 'postgresql://me@host/tuning'" in done.stderr


def test_commands_that_only_read_read_the_database_of_a_newer_version(store: Store, database: Database) -> None:
    answered(store)
    change(database, "UPDATE alembic_version SET version_num = '9999'")
    read = tuner("list", db=database)
    assert read.returncode == 0
    assert HERE.device.id in read.stdout
    assert f"has schema 9999, and this version knows up to {HEAD}" in read.stderr
    refused = tuner("search", "softmax", "--M", "8192", db=database)
    assert refused.returncode == 5
    assert "has schema 9999" in refused.stderr
