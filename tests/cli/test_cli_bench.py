"""`tuner bench` without a GPU, as its users have it: recorded spaces, suites, files, exit codes."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from commands import run_tuner
from helpers import OPS

from tuner.suites.suite import names

ON_H200 = "gemm-16x4096x4096-bf16-nvidia-h200"


class Tuner:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = {"TUNER_DB": str(folder / "tuner.db"), "COLUMNS": "80"}

    def __call__(self, *arguments: str) -> CompletedProcess[str]:
        return run_tuner(*arguments, environment=self._environment, folder=self.folder)

    def json(self, *arguments: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self(*arguments, "--json").stdout)
        return document


@pytest.fixture
def tuner(tmp_path: Path) -> Tuner:
    return Tuner(tmp_path)


def test_one_problem_is_replayed_and_says_so(tuner: Tuner) -> None:
    done = tuner("bench", "gemm", "--M", "4096")
    assert done.returncode == 0
    assert done.stderr.startswith(
        "No GPU here: replaying gemm-4096x4096x4096-bf16-nvidia-h200; gemm has changed since it was "
        "recorded.\n1/1  gemm 4096 x 4096"
    )
    title, _, head, _, row, *_, last = done.stdout.splitlines()
    assert title.startswith("gemm M=4096 N=4096 K=4096 dtype=bf16 on nvidia-h200; ratios are speeds")
    assert " ".join(head.split()) == "problem timed answer us ± % untuned x torch ± % TFLOP/s GB/s roofline"
    assert row.split()[:7] == ["gemm", "4096", "x", "4096", "x", "4096", "bf16"]
    assert row.split()[7:9] == ["cold", "untuned"]
    assert last == "replayed: measured on nvidia-h200, not here"


def test_what_a_search_found_is_what_is_measured(tuner: Tuner) -> None:
    """And not the default, which on the recorded spaces nothing beats by enough: one that ties with it is put in."""
    problem = ("transpose", "--M", "8192")
    answer = json.loads(tuner("search", *problem, "--trials", "100", "--json").stdout)
    found = answer["ties"][0]["config"]
    with closing(sqlite3.connect(tuner.folder / "tuner.db")) as database, database:
        database.execute("UPDATE answers SET kind = 'tuned', config = ?", [json.dumps(found)])
    (row,) = tuner.json("bench", *problem)["rows"]
    assert row["kind"] == "tuned"
    assert row["config"] == found != answer["config"]
    assert row["default"]["speedup"] == pytest.approx(1 / answer["ties"][0]["slowdown"], rel=0.01)
    assert row["recorded"] == "transpose-8192x8192-fp32-nvidia-h200"
    assert row["measured_with"] == answer["tuned_with"]


def test_a_suite_replays_what_was_recorded_searches_and_goes_on(tuner: Tuner) -> None:
    command = ("bench", "--suite", "llama-3-8b", "--only", "layout=nn", "--out", "rows.json")
    untuned = tuner.json(*command)
    assert untuned["summary"]["without_answer"] == untuned["summary"]["rows"] == 4
    done = tuner(*command, "--search", "30s")
    assert done.returncode == 0
    assert "; 20 of 24 were not recorded and are left out; gemm has changed" in done.stderr
    assert "geometric mean" in done.stdout
    assert done.stdout.count("worst untuned    ") >= 3
    assert any(line.split()[:4] == ["tuned", "x", "torch", "4"] for line in done.stdout.splitlines())
    tuned = tuner.json(*command)
    assert [row["kind"] for row in tuned["rows"]] == ["default"] * 4
    kept = json.loads((tuner.folder / "rows.json").read_text())
    assert kept == {"format": 2, "rows": tuned["rows"]}
    other = tuner.json("bench", "--suite", "lecture", "--out", "rows.json")
    assert json.loads((tuner.folder / "rows.json").read_text())["rows"] == [*tuned["rows"], *other["rows"]]


def test_a_page_opens_offline(tuner: Tuner) -> None:
    pytest.importorskip("plotly")
    done = tuner("bench", "--suite", "lecture", "--plot", "page.html")
    assert done.returncode == 0
    assert "Page written to page.html" in done.stderr
    page = (tuner.folder / "page.html").read_text()
    assert "Speed-up over torch" in page
    assert "Bandwidth" in page
    assert "transpose 8192 x 8192 fp32" in page
    assert "measured on that card, not here" in page


def test_the_suites_are_listed(tuner: Tuner) -> None:
    lines = tuner("bench", "--list").stdout.splitlines()
    assert {"lecture           2 problems", "llama-3-8b       48 problems"} < {*lines}
    assert lines[-1].startswith("random:COUNT:SEED ")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (
            [],
            2,
            f"name an OP ({OPS}), or a kernel file.py, or a suite with --suite",
        ),
        (["--suite", "none"], 2, "no suite is called 'none'"),
        (["--suite", "lecture", "--dtype", "fp99"], 2, "lecture, problem 1: a dtype is one of"),
        (["--suite", "lecture", "--only", "gemm"], 2, "--only takes NAME=VALUE, such as op=gemm or M=16, not 'gemm'"),
        (
            ["--only", "M=1"],
            2,
            f"name an OP, or a suite with --suite: {', '.join(names())}, or a file.json",
        ),
        (["--suite", "lecture", "--replay", ON_H200], 2, "--replay names the space of one problem, and lecture has 2"),
        (["gemm", "--M", "16", "--replay", ON_H200], 2, f"{ON_H200} records gemm M=16 N=4096 K=4096"),
        (
            ["gemm", "--M", "17"],
            3,
            "no recorded space of gemm M=17 N=17 K=17 dtype=bf16; recorded spaces to replay: gemm-1024",
        ),
        (["gemm", "--M", "16", "--gpu", "0,1"], 3, "there is no GPU 0: the driver shows none"),
        (["gemm", "--M", "16", "--gpu", "all"], 3, "--gpu all needs a GPU, and the driver shows none"),
        (
            ["--suite", "lecture", "--out", "there.json"],
            2,
            "is not what tuner bench --out wrote: it has no 'format'",
        ),
    ],
)
def test_what_it_refuses(tuner: Tuner, arguments: list[str], code: int, says: str) -> None:
    (tuner.folder / "there.json").write_text("{}")
    done = tuner("bench", *arguments)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert says in done.stderr
