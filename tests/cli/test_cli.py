"""The command line as its users have it: a process, its output, its exit code."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from time import monotonic, sleep
from typing import Any

import httpx
import pytest
from commands import run_tuner
from helpers import H200, OPS, toy
from ports import free_ports

from tuner import catalog, recorded
from tuner.db.store import Store
from tuner.records import Answer, Comparison, Environment, Provenance

GEMM = next(name for name in recorded.names() if name.startswith("gemm-4096"))
FIELDS = {
    "op", "problem", "device", "config", "match", "kind", "latency_us", "interval_us", "speedup", "speedup_interval",
    "tflops", "gb_per_s", "default_latency_us", "vendor_latency_us", "ties", "unresolved", "recorded", "imported",
    "vendor", "basis",
    "max_error", "tolerance", "checked", "marks", "neighbour", "tuned_with", "stale", "tuned_at", "snapshot",
}  # fmt: skip
SEARCH_FIELDS = {"searched", "tried", "run", "seconds"}
"""Fields that the document of a search has besides."""


class Tuner:
    """Runs `tuner` against one database."""

    def __init__(self, folder: Path) -> None:
        self.db = folder / "tuner.db"
        self.environment = os.environ | {"TUNER_DB": str(self.db), "COLUMNS": "120"}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "tuner", *arguments]

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_tuner(*arguments, environment=self.environment)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen(self.command(*arguments), env=self.environment, stdout=pipe, stderr=pipe, text=True)

    def rows(self, query: str) -> list[Any]:
        connection = sqlite3.connect(self.db)
        try:
            return connection.execute(query).fetchall()
        finally:
            connection.close()


@pytest.fixture
def tuner(tmp_path: Path) -> Tuner:
    return Tuner(tmp_path)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuner:
    """A database that holds the answer of a replayed gemm."""
    made = Tuner(tmp_path_factory.mktemp("tuned"))
    done = made("search", "gemm", "--M", "4096", "--trials", "40")
    assert done.returncode == 0, done.stderr
    return made


class TestSearch:
    def test_without_a_gpu_it_replays_and_says_so(self, tuner: Tuner) -> None:
        done = tuner("search", "softmax", "--M", "8192", "--trials", "20")
        assert done.returncode == 0
        assert "No GPU here: replaying softmax-8192x8192-fp32-nvidia-" in done.stderr
        assert "Compiled" not in done.stderr  # nothing was, here
        assert "replayed from softmax-8192x8192-fp32-nvidia-" in done.stdout
        assert "BLOCK_N=8192" in done.stdout
        assert "tried 20 configs of 402" in done.stdout
        assert "GB/s" in done.stdout

    def test_json_is_one_document_with_every_field(self, tuner: Tuner) -> None:
        done = tuner("search", "gemm", "--M", "4096", "--trials", "20", "--json")
        answer = json.loads(done.stdout)
        assert answer.keys() == FIELDS | SEARCH_FIELDS
        assert (answer["searched"], answer["tried"], answer["run"]) == (True, 20, 1)
        assert answer["op"] == "gemm"
        assert answer["problem"] == {
            "M": 4096,
            "N": 4096,
            "K": 4096,
            "dtype": "bf16",
            "layout": "nn",
            "bias": False,
            "activation": "none",
        }
        assert answer["recorded"] == GEMM
        assert answer["match"] == "stale"
        assert answer["stale"] == [f"recorded: replayed from {GEMM}, not measured here"]
        tile = {"BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M", "num_warps", "num_stages"}
        assert answer["config"].keys() == tile | {"VARIANT", "SPLIT_K", "STORES"}
        assert answer["interval_us"][0] <= answer["latency_us"] <= answer["interval_us"][1]

    def test_a_dry_run_of_several_shows_on_a_terminal_how_far_it_is(self, tuner: Tuner) -> None:
        command = ("search", "softmax", "--M", "64,128", "--dry-run", "--device", "nvidia-h200")
        assert tuner(*command).stderr == ""
        tuner.environment["FORCE_COLOR"] = "1"  # rich takes what it writes to for a terminal
        shown = tuner(*command)
        assert "counting configs" in shown.stderr
        assert "100%" in shown.stderr
        assert "counting configs" not in shown.stdout

    def test_the_same_command_again_answers_from_the_store(self, tuned: Tuner) -> None:
        before = tuned.rows("select count(*) from runs")
        again = tuned("search", "gemm", "--M", "4096", "--trials", "40")
        assert "Answered from the store, run 1; --force searches again." in again.stderr
        assert tuned.rows("select count(*) from runs") == before

    def test_more_trials_go_on_from_what_is_known(self, tuner: Tuner) -> None:
        tuner("search", "transpose", "--M", "8192", "--trials", "15")
        more = tuner("search", "transpose", "--M", "8192", "--trials", "25")
        assert "tried 25 configs of 1,269" in more.stdout
        assert tuner.rows("select run_id, count(*) from trials group by run_id") == [(1, 15), (2, 10)]

    def test_force_measures_everything_again(self, tuner: Tuner) -> None:
        tuner("search", "softmax", "--M", "8192", "--trials", "15")
        tuner("search", "softmax", "--M", "8192", "--trials", "15", "--force")
        assert tuner.rows("select run_id, count(*) from trials group by run_id") == [(1, 15), (2, 15)]

    def test_a_recorded_space_is_replayed_by_name(self, tuner: Tuner) -> None:
        done = tuner(
            "search", "gemm", "--M", "4096", "--replay", GEMM, "--trials", "10", "--sampler", "random", "--json"
        )
        assert json.loads(done.stdout)["recorded"] == GEMM

    def test_every_trial_is_in_the_database(self, tuned: Tuner) -> None:
        assert tuned.rows("select count(*), count(distinct config_text) from trials") == [(40, 40)]
        ((status, stopped),) = tuned.rows("select status, stopped from runs")
        assert (status, stopped) == ("done", "trials")
        assert tuned.rows("select count(*) from rounds")[0][0] >= 20

    def test_ctrl_c_keeps_the_best_so_far_and_goes_on_later(self, tuner: Tuner) -> None:
        running = tuner.start("search", "gemm", "--M", "4096", "--trials", "150")
        _until_trials(tuner, 30)
        running.send_signal(signal.SIGINT)
        started = monotonic()
        stdout, stderr = running.communicate(timeout=10)
        assert monotonic() - started < 3
        assert running.returncode == 130
        assert "us, best so far" in stdout
        assert re.search(r"^Interrupted after \d+ configs; the same command continues from there", stderr, re.MULTILINE)
        assert tuner.rows("select status from runs") == [("interrupted",)]
        assert tuner.rows("select count(*) from answers") == [(0,)]
        assert tuner("best", "gemm", "--M", "4096", "--device", "nvidia-h200").returncode == 1

    def test_json_is_one_document_then_too(self, tuner: Tuner) -> None:
        running = tuner.start("search", "gemm", "--M", "4096", "--trials", "150", "--json")
        _until_trials(tuner, 20)
        running.send_signal(signal.SIGINT)
        partial = json.loads(running.communicate(timeout=10)[0])
        assert partial.keys() == {"match", "config", "latency_us"}
        assert partial["match"] == "partial"

    def test_a_killed_search_goes_on_and_repeats_nothing(self, tuner: Tuner) -> None:
        running = tuner.start("search", "gemm", "--M", "4096", "--trials", "100")
        _until_trials(tuner, 20)
        running.kill()
        running.communicate()
        kept = tuner.rows("select count(*) from trials")[0][0]
        assert 20 <= kept < 100
        done = tuner("search", "gemm", "--M", "4096", "--trials", "100")
        assert "tried 100 configs" in done.stdout
        assert tuner.rows("select count(*), count(distinct config_text) from trials") == [(100, 100)]


def _until_trials(tuner: Tuner, count: int) -> None:
    end = monotonic() + 60
    while monotonic() < end:
        if tuner.db.exists():
            try:
                if tuner.rows("select count(*) from trials")[0][0] >= count:
                    return
            except sqlite3.OperationalError:
                pass  # the tables are not there yet
        sleep(0.02)
    raise AssertionError("the search did not get that far")


class TestBestAndList:
    def test_best_gives_what_the_search_stored(self, tuned: Tuner) -> None:
        searched = json.loads(tuned("search", "gemm", "--M", "4096", "--trials", "40", "--json").stdout)
        best = json.loads(tuned("best", "gemm", "--M", "4096", "--json").stdout)
        assert {name: value for name, value in searched.items() if name not in SEARCH_FIELDS} == best
        assert searched["searched"] is False  # answered from the store

    def test_a_miss_says_what_is_near_and_what_would_tune_it(self, tuned: Tuner) -> None:
        done = tuned("best", "gemm", "--M", "4097")
        assert done.returncode == 1
        assert "tuner search gemm --M 4097 --N 4097 --K 4097 --dtype bf16" in done.stdout
        assert "gemm M=4096 N=4096 K=4096 dtype=bf16" in done.stdout
        missed = json.loads(tuned("best", "gemm", "--M", "4097", "--json").stdout)
        assert missed["match"] == "none"
        assert missed["nearest"] == ["gemm M=4096 N=4096 K=4096 dtype=bf16"]

    def test_strict_takes_nothing_stale(self, tuned: Tuner) -> None:
        done = tuned("best", "gemm", "--M", "4096", "--triton", "3.6.0", "--strict")
        assert done.returncode == 1

    def test_list_shows_what_serves(self, tuned: Tuner) -> None:
        shown = tuned("list").stdout
        assert "nvidia-h200" in shown
        assert "(replayed)" in shown
        (row,) = json.loads(tuned("list", "--json").stdout)
        assert row["problem"]["M"] == 4096
        assert row.keys() == FIELDS | {"pinned"}

    def test_an_empty_store_says_how_to_fill_it_and_is_not_made(self, tuner: Tuner, tmp_path: Path) -> None:
        tuner.environment |= {"TUNER_DB": "", "XDG_DATA_HOME": str(tmp_path / "data")}
        assert "there are no answers; tuner search OP finds and stores one" in tuner("list").stdout
        assert json.loads(tuner("jobs", "--json").stdout) == []
        assert "no search is stored" in tuner("show").stdout
        for asked in (("best", "gemm", "--M", "64"), ("why", "gemm", "--M", "64"), ("export", "answers.json")):
            done = tuner(*asked)
            assert done.returncode == 1
            assert done.stderr == "tuner: there are no answers; tuner search OP finds and stores one\n"
        assert [*tmp_path.iterdir()] == []

    @pytest.mark.parametrize(
        "command",
        ["list", "jobs", "show", "export a.json", "best gemm --M 64", "why gemm --M 64", "explain gemm --M 64",
         "db info", "db prune --older-than 9d"],
    )  # fmt: skip
    def test_a_database_that_is_named_and_is_not_there_is_not_made(
        self, tuner: Tuner, tmp_path: Path, command: str
    ) -> None:
        named = tmp_path / "new" / "sub" / "x.db"
        for given, options in ((str(named), []), ("", ["--db", str(named)])):
            tuner.environment["TUNER_DB"] = given
            done = tuner(*command.split(), *options)
            assert (done.returncode, done.stdout) == (5, "")
            assert f"tuner: there is no database at {named}" in done.stderr
        assert [*tmp_path.iterdir()] == []


REFUSED = [
    (
        ["search", "convolution"],
        2,
        f"no kernel is called 'convolution'; known are {OPS}, or give a file.py",
    ),
    (["search", "../../etc/passwd"], 2, "no kernel is called '../../etc/passwd'"),
    (["search", "missing.py", "--M", "1"], 2, "there is no kernel file"),
    (["search", "gemm"], 2, "gemm needs M; give --M SIZE"),
    (["search", "gemm", "--M", "0"], 2, "gemm: M is a whole number from 1 to 2147483647, not '0'"),
    (["search", "gemm", "--M", "-5"], 2, "gemm: M is a whole number from 1 to 2147483647, not '-5'"),
    (["search", "gemm", "--M", "9223372036854775808"], 2, "gemm: M is a whole number from 1 to 2147483647"),
    (["search", "gemm", "--M", "4k"], 2, "gemm: M is a whole number from 1 to 2147483647, not '4k'"),
    (["search", "gemm", "--M", "64", "--Q", "1"], 2, "No such option"),
    (["search", "gemm", "--M", "64", "--dtype", "fp7"], 2, "or torch's name for it, not 'fp7'"),
    (["search", "gemm", "--M", "64", "--dtype", "int8"], 2, "gemm knows dtype bf16, fp16, fp32, not int8"),
    (["search", "gemm", "--M", "64", "--layout", "zz"], 2, "gemm: layout is one of nn, nt, tn, tt, not 'zz'"),
    (["search", "gemm", "--M", "64", "--precision", "tf32"], 2, "gemm: precision applies to dtype fp32, not to bf16"),
    (
        ["search", "gemm", "--M", "64", "--replay", "nothing"],
        2,
        "no recorded space is called 'nothing'; there are gemm-",
    ),
    (
        ["search", "gemm", "--M", "64", "--replay", GEMM],
        2,
        "records gemm M=4096 N=4096 K=4096 dtype=bf16, not gemm M=64",
    ),
    (["search", "gemm", "--M", "64", "--budget", "soon"], 2, "a duration is a number with s, m or h, such as 30s"),
    (["search", "gemm", "--M", "64", "--trials", "0"], 2, "0 is not in the range x>=1"),
    (["search", "gemm", "--M", "64", "--gpu", "first"], 2, "a GPU is auto or a number, not 'first'"),
    (["search", "gemm", "--M", "64", "--gpu", "3"], 3, "there is no GPU 3: the driver shows none"),
    (["search", "gemm", "--M", "65"], 3, "recorded spaces to replay: gemm-"),
    (["search", "gemm", "--M", "64", "--seed", "-1"], 2, "-1 is not in the range 0<=x<=4294967295"),
    (["list", "nosuch"], 2, f"no op is called 'nosuch'; known are {', '.join(sorted(recorded.signatures()))}"),
    (["list", "--device", "nope"], 2, "no device is called 'nope'; there are nvidia-h200"),
    (["serve", "--device", "nope"], 2, "no device is called 'nope'; there are nvidia-h200"),
    (["serve", "--workers", "0"], 2, "0 is not in the range 1<=x<=64"),
    (["serve", "--token-file", "nope"], 2, "File 'nope' does not exist"),
    (["serve", "--token-file", os.devnull], 2, "a token is one line of text, and /dev/null is empty"),
    (["list", "--db", "/nowhere/tuner.db"], 5, "there is no database at /nowhere/tuner.db"),
    (["best", "gemm", "--M", "64", "--db", "typo.db"], 5, "there is no database at typo.db"),
    (["best", "gemm", "--M", "4096", "--triton", "[/x]", "--strict"], 1, ""),
    (
        ["record", "gemm", "--M", "64"],
        3,
        "recording measures on a GPU, and there is no GPU here; run it on a machine with the card",
    ),
    (["best", "gemm", "--M", "64", "--strict"], 2, "--strict compares versions, so it needs --triton"),
    (["best", "gemm", "--M", "64", "--device", "gpu9"], 2, "no device is called 'gpu9'; there are nvidia-h200"),
    (["frobnicate"], 2, "No such command 'frobnicate'"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), REFUSED, ids=lambda value: str(value)[:60])
def test_bad_input_is_refused_in_a_sentence(tuned: Tuner, arguments: list[str], code: int, message: str) -> None:
    done = tuned(*arguments)
    assert message in done.stderr
    assert done.returncode == code
    assert done.stdout == "" or not message


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("KERNEL = 1\n", "a kernel file ends in KERNEL = Kernel(...), and {file} does not"),
        ("import os\nKERNEL = undefined\n", "{file} line 2 raises NameError: name 'undefined' is not defined"),
        ("def launch(:\n", "{file} line 1 raises SyntaxError: invalid syntax"),
        ("import no_such_package\n", "the code of {file} needs no_such_package, which is not installed; install what"),
    ],
)
def test_a_kernel_file_that_is_none_is_refused(tuner: Tuner, tmp_path: Path, source: str, message: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(source)
    done = tuner("search", str(file), "--M", "1")
    assert message.format(file=file) in done.stderr
    assert done.returncode in (2, 3)


def test_a_port_that_is_taken_is_refused(tuned: Tuner) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = tuned("serve", "--port", str(port))
    assert done.returncode == 2
    assert f"tuner: cannot listen on 127.0.0.1:{port}: " in done.stderr


def test_a_name_stored_in_another_database_is_known_there(tmp_path: Path) -> None:
    """The op of a kernel file, asked for by name and --db."""
    named, other = Tuner(tmp_path / "named"), Tuner(tmp_path / "other")
    kernel = catalog.resolve(toy("double"))
    problem = kernel.signature.problem({"N": 1000})
    named.db.parent.mkdir()
    store = Store.open(named.db)
    provenance = Provenance(H200, Environment("3.6.0"), kernel.source, "cold-events-1")
    run = store.start_run(kernel.signature, problem, provenance, {})
    config = kernel.default_config(problem, H200.limits)
    answer = Answer(problem, "default", config, 5.0, (5.0, 5.0), 1.0, (1.0, 1.0), 5.0, 6.0, bytes=8000)
    store.add_answer(run, answer, provenance, "trials", {}, Comparison((config.text,), ((5.0,),)))
    store.close()
    done = other("best", "double", "--N", "1000", "--db", str(named.db))
    assert done.returncode == 0, done.stderr
    assert "BLOCK=256" in done.stdout


def test_the_samplers_matrices_are_multiplied_by_one_thread() -> None:
    """More would wait for each other while compilers keep the cores busy."""
    story = """
        import os, sys
        from contextlib import suppress
        from tuner.cli import main
        sys.argv = ["tuner", "spaces"]
        with suppress(SystemExit):
            main()
        import numpy
        numpy.ones((600, 600)) @ numpy.ones((600, 600))
        print(len(os.listdir("/proc/self/task")), file=sys.stderr)
    """
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    command = [sys.executable, "-P", "-c", dedent(story)]
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stderr == "1\n"


def test_without_optuna_there_is_help_and_a_way_out(tmp_path: Path) -> None:
    story = "import sys; sys.modules['optuna'] = None; from tuner.cli import main; main()"
    command = [sys.executable, "-P", "-c", story]
    shown = subprocess.run([*command, "--help"], capture_output=True, text=True, check=True).stdout
    assert "Find the best config of a problem, or of several, and store" in shown
    done = subprocess.run([*command, "search", "gemm", "--M", "4096"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "tuner: a search needs optuna; pip install 'triton-tuner[search]'\n"


def test_output_that_cannot_be_written_is_said(tuned: Tuner) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            tuned.command("list"), env=tuned.environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "tuner: the output cannot be written: No space left on device\n"


class TestStoreTrouble:
    def test_a_file_that_is_no_database(self, tuner: Tuner) -> None:
        tuner.db.write_text("this is no database, however long it is " * 10)
        done = tuner("list")
        assert done.returncode == 5
        assert done.stderr == f"tuner: the database {tuner.db} cannot be read: file is not a database\n"

    def test_a_folder_in_its_place(self, tuner: Tuner) -> None:
        tuner.db.mkdir()
        done = tuner("search", "gemm", "--M", "4096")
        assert done.returncode == 5
        assert "unable to open database file" in done.stderr

    def test_the_option_names_another(self, tuner: Tuner, tmp_path: Path) -> None:
        other = tmp_path / "deep" / "other.db"
        done = tuner("search", "softmax", "--M", "8192", "--trials", "12", "--db", str(other))
        assert done.returncode == 0
        assert other.exists()
        assert "BLOCK_N" in tuner("list", "--db", str(other)).stdout
        assert not tuner.db.exists()


class TestHelp:
    def test_every_command_and_option_explains_itself(self, tuner: Tuner) -> None:
        import click

        from tuner.cli import cli

        with click.Context(cli) as context:
            for name in cli.list_commands(context):
                command = cli.get_command(context, name)
                assert command is not None
                assert command.help, name

    def test_options_come_from_the_signature(self, tuner: Tuner) -> None:
        shown = tuner("search", "gemm", "--help").stdout
        assert "--M SIZE" in shown
        assert "nn|nt|tn" in shown
        assert "bf16|fp16|fp32" in shown

    def test_a_users_kernel_has_options_too(self, tuner: Tuner) -> None:
        shown = tuner("search", toy("double"), "--help").stdout
        assert "--N SIZE" in shown
        assert "out = 2 x" in shown

    def test_version(self, tuner: Tuner) -> None:
        import tuner as package

        assert tuner("--version").stdout == f"tuner, version {package.__version__}\n"


@pytest.fixture
def server(tuned: Tuner) -> Iterator[str]:
    (port,) = free_ports(1)
    running = tuned.start("serve", "--port", str(port))
    url = f"http://127.0.0.1:{port}"
    end = monotonic() + 30
    while monotonic() < end:
        try:
            httpx.get(f"{url}/healthz")
            break
        except httpx.ConnectError:
            sleep(0.1)
    yield url
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=10)


def test_the_service_gives_what_the_search_found(tuned: Tuner, server: str) -> None:
    served = httpx.get(f"{server}/best-config", params={"op": "gemm", "M": 4096})
    assert served.status_code == 200
    assert served.json() == json.loads(tuned("best", "gemm", "--M", "4096", "--json").stdout)
