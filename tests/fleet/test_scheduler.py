"""Schedulers by the text of `--on`, and the values of tasks, which keep passwords out of logs."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tuner.db.store import database_at
from tuner.errors import NoDevice, UsageError
from tuner.fleet.local import _shares
from tuner.fleet.scheduler import FORMS, Wanted, parse, require_shared
from tuner.fleet.task import Ended, Task

URL = "postgresql://tuner:password@db/tuner"
TASK = Task("gemm M=16", ("search", "gemm", "--M=16"), {"TUNER_DB": URL})
REPLAYED = Wanted(gpus=0)


@pytest.mark.parametrize(
    ("on", "text"),
    [
        ("spark", "--on takes local[:N], slurm[:PARTITION], ray[:ADDRESS], dask:ADDRESS, kubernetes[:NAMESPACE], not"),
        ("dask", "--on dask needs an address; give it as --on dask:tcp://HOST:8786"),
        ("local:none", "--on local takes a number of processes from 1, such as local:4, not 'none'"),
        ("local:0", "--on local takes a number of processes from 1"),
    ],
)
def test_a_text_that_names_no_scheduler_is_refused(on: str, text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(on, REPLAYED)
    assert text in str(refused.value)


@pytest.mark.parametrize(("name", "package"), [("ray", "ray"), ("slurm", "submitit"), ("dask:tcp://x", "distributed")])
def test_a_missing_package_is_named_with_its_extra(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = name.partition(":")[0]
    monkeypatch.delitem(sys.modules, f"tuner.fleet.{extra}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError) as refused:
        parse(name)
    assert str(refused.value) == f"--on {extra} needs {package}; pip install 'triton-tuner[{extra}]'"


def test_local_without_a_gpu_says_what_needs_none() -> None:
    with pytest.raises(NoDevice, match="--on local needs a GPU for its tasks, and there is no"):
        parse("local")
    assert parse("local:3", REPLAYED).name == "local"


def test_nodes_cannot_reach_a_file() -> None:
    with pytest.raises(UsageError) as refused:
        require_shared("slurm:gpu", database_at(Path("here.db")))
    assert str(refused.value) == (
        "--on slurm:gpu needs a store that every node reaches, and here.db is a SQLite file; give "
        "postgresql://user@host/name with --db or TUNER_DB"
    )
    require_shared("slurm:gpu", database_at(URL))
    require_shared("local:2", database_at(Path("here.db")))


def test_forms_are_those_of_the_help() -> None:
    assert FORMS == "local[:N]|slurm[:PARTITION]|ray[:ADDRESS]|dask:ADDRESS|kubernetes[:NAMESPACE]"


def test_a_task_is_the_same_after_its_text_and_shows_no_password() -> None:
    assert Task.from_text(TASK.as_text()) == TASK
    assert "password" not in f"{TASK!r}"


def test_an_end_is_the_same_after_its_text_which_has_no_password() -> None:
    ended = Ended(TASK, 1, "node-1", {"run": 3}, "no config ran", 1.5)
    assert Ended.from_text(ended.as_text(), TASK) == ended
    assert "password" not in ended.as_text()
    assert "\n" not in ended.as_text()


@pytest.mark.parametrize("number", [1, 2, 3, 64, 1000])
def test_processes_share_the_cores(number: int) -> None:
    shares, ours = _shares(number), os.sched_getaffinity(0)
    assert len(shares) == number
    assert all(shares)
    assert frozenset().union(*shares) == ours if number < len(ours) else all(share <= ours for share in shares)
