"""`tuner search` of several problems, as its users have it: lists, files of shapes, models, suites, exit codes."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner, Result
from helpers import OPS, toy, until
from invoked import Invoked

from tuner.cli import cli
from tuner.errors import TunerError
from tuner.search.space import ListedSpace, Space
from tuner.suites.suite import Entry

LLAMA = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "torch_dtype": "bfloat16",
}


class Tuner(Invoked):
    """Runs `tuner search`."""

    def __call__(self, *arguments: str) -> Result:
        return super().__call__("search", *arguments)

    def count(self, table: str) -> int:
        if not self.db.exists():
            return 0
        with closing(sqlite3.connect(self.db)) as connection:
            try:
                return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
            except sqlite3.OperationalError:
                return 0


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tuner:
    return Tuner.alone(tmp_path, monkeypatch)


def test_every_combination_is_searched_once_and_then_known(tuner: Tuner) -> None:
    """Of six, two were recorded."""
    command = ("gemm", "--M", "16,1024,48", "--N", "4096,6144", "--K", "4096", "--trials", "5")
    done = tuner(*command)
    assert done.return_value == 1, done.stderr
    assert "; 4 of 6 were not recorded and are left out; gemm has changed" in done.stderr
    title, _, head, _, *rows = done.stdout.splitlines()
    assert title == "gemm on nvidia-h200"
    assert head.split() == ["problem", "answer", "us", "x", "torch", "x", "default", "tried", "s"]
    assert [row.split()[1:6:2] for row in rows[:2]] == [["16", "4096", "4096"], ["1024", "6144", "4096"]]
    explained = CliRunner().invoke(cli, ["explain", "gemm", *["--M", "16", "--N", "4096", "--K", "4096", "--json"]])
    (beside,) = (met["speedup"] for met in json.loads(explained.stdout)["ladder"] if "vendor" in met["roles"])
    assert rows[0].split()[9] == f"{beside:.3f}"  # both by the ratio within each round
    assert "2 searched, 0 as stored" in done.stdout
    assert "not measured here" in done.stdout
    assert tuner.count("trials") == 10
    again = tuner.json(*command, code=1)
    assert [row["searched"] for row in again["rows"]] == [False] * 2
    assert all(row["config"] and row["match"] == "stale" for row in again["rows"])
    assert tuner.count("runs") == 2


@pytest.mark.parametrize("on", [(), ("--on", "local", "--replay", "auto")])
def test_a_problem_without_an_answer_is_exit_code_1(tuner: Tuner, on: tuple[str, ...]) -> None:
    """Only the first of the two problems was recorded."""
    done = tuner("softmax", "--M", "8192,5", "--trials", "5", *on)
    assert (done.exception, done.return_value) == (None, 1)
    assert "; 1 of 2 was not recorded and is left out" in done.stderr
    assert tuner("softmax", "--M", "8192", "--trials", "5").return_value == 0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=str)
def test_a_signal_keeps_what_is_answered_and_the_same_command_goes_on(tuner: Tuner, number: signal.Signals) -> None:
    command = ("gemm", "--M", "16,4096", "--N", "4096", "--K", "4096", "--sampler", "random", "--trials", "400")

    def interrupt() -> None:
        until(lambda: tuner.count("answers") == 1 and tuner.count("trials") > 405)
        os.kill(os.getpid(), number)

    Thread(target=interrupt).start()
    done = tuner(*command, "--json")
    assert done.return_value == 130
    assert "Interrupted after 1 of 2; the same command continues from there." in done.stderr
    shown = CliRunner().invoke(cli, ["show", "--json"], standalone_mode=False).stdout
    assert [run["status"] for run in json.loads(shown)] == ["interrupted", "done"]
    assert [row["problem"]["M"] for row in json.loads(done.stdout)["rows"]] == [16]
    assert [row["searched"] for row in tuner.json(*command)["rows"]] == [False, True]
    assert tuner.count("trials") == 800


def test_a_file_of_shapes_is_completed_by_the_command_line(tuner: Tuner) -> None:
    (tuner.folder / "shapes.csv").write_text("M, N, K\n16, 4096, 4096\n\n1024,6144,4096\n")
    (tuner.folder / "shapes.json").write_text(json.dumps([{"op": "gemm", "M": 256, "N": 4096, "K": 14336}]))
    rows = tuner.json("gemm", "--shapes", "shapes.csv", "--dtype", "bf16,fp16", "--trials", "5", code=1)["rows"]
    assert [(row["problem"]["M"], row["problem"]["dtype"]) for row in rows] == [(16, "bf16"), (1024, "bf16")]
    one = tuner.json("gemm", "--shapes", "shapes.json", "--layout", "nt", "--trials", "5")
    assert one["problem"]["K"] == 14336


def test_a_models_gemms_are_searched(tuner: Tuner) -> None:
    """Of this model's shapes one is recorded: its down projection at 256 tokens."""
    (tuner.folder / "config.json").write_text(json.dumps(LLAMA))
    done = tuner("gemm", "--model", "config.json", "--M", "2,256", "--trials", "5", "--json")
    (row,) = json.loads(done.stdout)["rows"]
    assert (row["problem"]["M"], row["problem"]["K"]) == (256, 14336)
    assert "; 9 of 10 were not recorded and are left out; gemm has changed" in done.stderr


def test_a_suite_takes_the_place_of_an_op(tuner: Tuner) -> None:
    rows = tuner.json("--suite", "llama-3-8b", "--only", "M=16", "--trials", "5", code=1)["rows"]
    assert [row["op"] for row in rows] == ["gemm"]
    assert "lecture           2 problems" in tuner("--list").stdout.splitlines()


def test_a_dry_run_writes_nothing(tuner: Tuner) -> None:
    plan = tuner.json("transpose", "--M", "8192,4096", "--effort", "quick", "--dry-run")
    assert plan["device"] == "nvidia-h200"
    assert "a guess, as none was searched there yet" in plan["basis"]
    first, other = plan["rows"]
    assert (first["feasible"], first["trials"], first["stored"]) == (1269, 60, "none")
    assert first["combinations"] > first["feasible"]
    assert other["feasible"] == 1269  # of a size that nobody recorded, by the kernel's rules
    assert not tuner.db.exists()
    shown = tuner("softmax", "--M", "17", "--device", "nvidia-h200", "--dry-run").stdout
    assert "dry run on NVIDIA H200: problems to search" in shown
    tuner.json("softmax", "--M", "8192", "--effort", "quick", "--sampler", "grid")
    assert tuner.count("trials") == 60


def test_a_dry_run_says_where_no_config_is_valid_and_exits_as_the_search_would(tuner: Tuner) -> None:
    (tuner.folder / "none.py").write_text(
        Path(toy("double")).read_text().replace("    launch=launch,", "    launch=launch, valid=lambda *given: False,")
    )
    unfit = ("none.py", "--N", "64", "--dry-run", "--device", "nvidia-h200")
    told = tuner(*unfit)
    assert told.return_value == 1
    why = "no config of double is feasible for double N=64 dtype=fp32 on NVIDIA H200: 35 refused by valid ("
    assert why in " ".join(told.stdout.split())
    plan = tuner(*unfit, "--json")
    assert plan.return_value == 1
    (row,) = json.loads(plan.stdout)["rows"]
    assert (row["feasible"], row["trials"], row["seconds"]) == (0, 0, 0)


def test_more_effort_goes_on_and_less_is_content(tuner: Tuner) -> None:
    """On this space nothing better is expected after some 110 configs, before the limit of 200."""
    problem = ("softmax", "--M", "8192")
    tuner.json(*problem, "--effort", "normal")
    tried = tuner.count("trials")
    assert 60 < tried < 200
    for content in (("--effort", "quick"), ("--effort", "normal"), ("--trials", "30")):
        tuner.json(*problem, *content)
    assert tuner.count("runs") == 1
    tuner.json(*problem, "--trials", "250", "--sampler", "random")
    assert tuner.count("trials") == 250
    tuner.json(*problem, "--effort", "exhaustive", "--sampler", "grid")
    assert tuner.count("trials") == 402


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        ([], 2, f"name an OP ({OPS}), or a kernel file.py, or a suite"),
        (["gemm", "--M", "16,x"], 2, "gemm: M is a whole number from 1 to 2147483647, not 'x'"),
        (["gemm", "--M", "16,,64"], 2, "not ''"),
        (["gemm", "--M", "16,64", "--replay", "any"], 2, "--replay names the space of one problem, and gemm has 2"),
        (["gemm", "--M", "17,18"], 3, "none of these 2 problems was recorded; recorded spaces to replay: gemm-"),
        (["gemm", "--M", "16,64", "--gpu", "0,1"], 3, "there is no GPU 0: the driver shows none"),
        (["gemm", "--M", "17", "--dry-run"], 3, "K=17 dtype=bf16 was not recorded; name a card with --device"),
        (["gemm", "--M", "17", "--dry-run", "--device", "h"], 2, "no device is known as 'h'; known are nvidia-"),
        (["gemm", "--M", "17", "--device", "nvidia-h200"], 2, "--device names the card of a --dry-run; a search"),
        (["gemm", "--tp", "8"], 2, "--tp is the number of cards that share a model; give its config with --model"),
        (["gemm", "--shapes", "a.csv", "--model", "b"], 2, "--shapes and --model both state the problems"),
        (["gemm", "--shapes", "none.csv"], 2, "the shapes in none.csv cannot be read: "),
        (["gemm", "--shapes", "a.csv", "--M", "1"], 2, "a.csv and --M both state M; leave one of them out"),
        (["gemm", "--shapes", "a.csv"], 2, "a.csv, problem 2: gemm: M is a whole number from 1 to"),
        (["gemm", "--shapes", "a.json"], 2, "a.json, problem 1: its op is not gemm; give a file of several ops"),
        (["gemm", "--shapes", "b.json"], 2, 'shapes are a list of objects such as {"M": 16, "N": 4096}, and b.json'),
        (["gemm", "--shapes", "empty.csv"], 2, "empty.csv has no problems"),
        (["softmax", "--model", "a.json"], 2, "--model states the problems of gemm and scaled_gemm, not of softmax"),
        (["gemm", "--model", "a.json", "--N", "5"], 2, "--model states N; leave --N out"),
        (["gemm", "--model", "a.json"], 2, "a.json is not a model's config.json: "),
    ],
)  # fmt: skip
def test_what_it_refuses(tuner: Tuner, arguments: list[str], code: int, says: str) -> None:
    (tuner.folder / "a.csv").write_text("M,N\n16,64\n-1,64\n")
    (tuner.folder / "empty.csv").write_text("M,N\n")
    (tuner.folder / "a.json").write_text(json.dumps([{"op": "softmax", "M": 16}]))
    (tuner.folder / "b.json").write_text("{}")
    done = tuner(*arguments)
    assert isinstance(done.exception, TunerError)
    assert done.exception.exit_code == code
    assert says in str(done.exception)
    assert done.stdout == ""


def test_what_was_imported_is_searched_here_since_nobody_knows_how_hard_others_tried(tuner: Tuner) -> None:
    problem = ["transpose", "--M", "8192", "--dtype", "fp32", "--trials", "8"]
    assert tuner(*problem).return_value == 0
    runner = CliRunner()
    assert runner.invoke(cli, ["export", "bundle.json"], standalone_mode=False).return_value == 0
    tuner.db.unlink()
    assert runner.invoke(cli, ["import", "bundle.json"], standalone_mode=False).return_value == 0
    assert tuner.json(*problem)["imported"] is None
    assert tuner.count("trials") == 8
    assert "Answered from the store" in tuner(*problem).stderr


def test_the_progress_of_a_dry_run_moves_as_each_problem_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    def counted(entries: Sequence[Entry], what: str) -> Iterator[Entry]:
        for entry in entries:
            yield entry
            seen.append("shown")

    def feasible(*_: object) -> Space:
        seen.append("counted")
        return ListedSpace([])

    monkeypatch.setattr("tuner.cli.dry_run.counted", counted)
    monkeypatch.setattr("tuner.tuning.plan.FeasibleSpace.of", feasible)
    options = ["--N", "64,128", "--dry-run", "--device", "nvidia-h200", "--json", "--db", str(tmp_path / "tuner.db")]
    CliRunner().invoke(cli, ["search", toy("on_torch"), *options], standalone_mode=False)
    assert seen == ["counted", "shown"] * 2
