"""Commands and searches over a database with rows that cannot be read."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import faults
import pytest
from click.testing import Result
from invoked import Invoked

HURTING = [
    ("answers", "latency_us", "-9e999"),
    ("answers", "config", "'{\"NO_KNOB\": 1}'"),
    ("answers", "evidence", "'{'"),
    ("answers", "created_at", "X'00ff'"),
    ("runs", "settings", "'[]'"),
    ("runs", "problem_id", "99"),
    ("kernels", "signature", '\'{"op": "scale"}\''),
    ("devices", "facts", faults.INVALID_UTF8),
    ("problems", "parameters", "NULL"),
    ("environments", "driver", "X'00ff'"),
    ("trials", "samples", "'[0, 0]'"),
    ("rounds", "latencies", "'{\"a\": 0}'"),
    ("transfers", "slowdown", "'abc'"),
    ("requests", "count", "'abc'"),
    ("jobs", "problem", faults.INVALID_UTF8),
]
COMMANDS = [
    ("list", "--json"),
    ("list", "sound"),
    ("show", "2"),
    ("show", "1"),
    ("export", "answers.json"),
    ("jobs",),
    ("jobs", "--json"),
    ("db", "info"),
    ("db", "prune", "--older-than", "1d", "--dry-run"),
]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("whole") / "tuner.db"
    faults.make(file)
    return file


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoked:
    return Invoked.alone(tmp_path, monkeypatch)


def said(done: Result) -> str:
    return f"{done.stdout}\n{done.stderr}\n{done.exception!r}"


@pytest.mark.parametrize(("table", "column", "fault"), HURTING)
def test_each_command_shows_the_sound_rows(whole: Path, tuner: Invoked, table: str, column: str, fault: str) -> None:
    shutil.copy(whole, tuner.db)
    faults.hurt(tuner.db, table, column, fault)
    for command in COMMANDS:
        done = tuner(*command)
        if command == ("show", "1"):
            assert done.exception is None or "run 1 " in str(done.exception), (command, said(done))
            continue
        assert done.exception is None, (command, said(done))
        assert not done.return_value, (command, said(done))
    assert "sound" in [row["op"] for row in json.loads(tuner("list", "--json").stdout)]
    exported = json.loads((tuner.folder / "answers.json").read_text())
    assert "sound" in [answer["op"] for answer in exported["answers"]]


def test_a_search_goes_past_trials_and_answers_that_cannot_be_read(tuner: Invoked) -> None:
    search = ("search", "softmax", "--M", "8192", "--N", "8192", "--dtype", "fp32", "--trials", "12")
    first = tuner.json(*search)
    with closing(sqlite3.connect(tuner.db)) as connection:
        hurt = ("samples = '[0.0]'", "outcome = 'no such'", "config = '{'", "samples = '[1e999]'", "max_error = 'abc'")
        for number, change in enumerate(hurt):
            connection.execute(f"UPDATE trials SET {change} WHERE id = {number + 1}")
        connection.execute("UPDATE answers SET ties = '7', latency_us = 0")
        connection.commit()
    again = tuner.json(*search)
    assert again["problem"] == first["problem"]
    assert again["latency_us"] > 0
    listed = json.loads(tuner("list", "--json").stdout)
    assert [row["latency_us"] for row in listed] == [again["latency_us"]]
