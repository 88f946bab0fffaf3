"""`--on`: the outcomes of a fleet are those of the same command here, and a task that fails is alone in it."""

from __future__ import annotations

import json
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from faults import CAPTURED
from helpers import H200, toy
from invoked import Invoked
from scripted_scheduler import Scripted
from stored import COMPARISON, HERE, SECONDS, SETTINGS, answer

from tuner import catalog, recorded
from tuner.captured.problem import problem_of_call
from tuner.cli.search_on import _tuned
from tuner.db.store import Store
from tuner.errors import NothingFound, UsageError
from tuner.fleet.task import Ended, Task
from tuner.tuning.captured import suite_of

SEARCH = ("search", "gemm", "--M", "16,64,77", "--N", "4096", "--K", "4096", "--replay", "auto")
HOW = ("--trials", "12", "--seed", "3", "--no-warm-start")
ON = ("--on", "local:2")
MEASURED = ("problem", "device", "kind", "config", "latency_us", "interval_us", "speedup", "tried", "searched")


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoked:
    return Invoked.alone(tmp_path, monkeypatch)


def on(scheduler: Scripted, patch: pytest.MonkeyPatch) -> Scripted:
    return scheduler.stands_for("local", patch)


def test_answers_of_a_fleet_are_those_of_a_local_search(tuner: Invoked, monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = on(Scripted(), monkeypatch)
    fleet = tuner.json(*SEARCH, *HOW, *ON, code=1)
    again = tuner(*SEARCH, *HOW, *ON)
    monkeypatch.setenv("TUNER_DB", str(tuner.folder / "other.db"))
    alone = tuner.json(*SEARCH, *HOW, code=1)
    assert [[row[name] for name in MEASURED] for row in fleet["rows"]] == [
        [row[name] for name in MEASURED] for row in alone["rows"]
    ]
    assert [row["run"] for row in fleet["rows"]] == [2, 1]  # the last began first
    assert again.return_value == 1
    assert "0 searched, 2 as stored" in again.stdout
    assert "1 of 3 was not recorded and is left out" in again.stderr
    assert "1/2  gemm 64 x 4096 x 4096 bf16: default 19.22 us, 0.931 x torch, as stored  (node-1)" in again.stderr
    assert not scheduler.wanted.gpus


def test_a_task_has_the_problem_and_the_options_that_were_given(
    tuner: Invoked, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tuner.folder / "mine.py").write_text(Path(toy("double")).read_text())
    scheduler = on(Scripted("double"), monkeypatch)
    sizes = ("--N", "64,128", "--dtype", "fp32")
    done = tuner("search", "mine.py", *sizes, "--budget", "5m", "--no-warm-start", "--policy", "cold", "--on", "local")
    assert done.return_value == 1
    options = ("--gpu", "0", "--budget=300.0", "--no-warm-start", "--policy=cold", "--json")
    assert [task.words for task in scheduler.tasks] == [
        ("search", str(tuner.folder / "mine.py"), f"--N={N}", "--dtype=fp32", *options) for N in (64, 128)
    ]
    assert scheduler.tasks[0].environment == {"TUNER_DB": str(tuner.db)}
    assert scheduler.wanted.gpus == 1


def test_a_lost_task_is_the_failure_of_its_problem(tuner: Invoked, monkeypatch: pytest.MonkeyPatch) -> None:
    on(Scripted("M=64"), monkeypatch)
    done = tuner(*SEARCH, *HOW, *ON)
    assert done.return_value == 1
    assert "gemm 64 x 4096 x 4096 bf16: node-1 was lost 3 times" in done.stdout
    assert "1 searched, 0 as stored" in done.stdout
    assert "gemm 16 x 4096 x 4096 bf16" in done.stdout
    with pytest.raises(NothingFound, match="node-1 was lost 3 times"):
        raise tuner("search", "gemm", "--M", "64", "--N", "4096", "--K", "4096", *ON).exception or AssertionError


def test_an_interrupted_fleet_shows_what_it_has(tuner: Invoked, monkeypatch: pytest.MonkeyPatch) -> None:
    on(Scripted(most=1), monkeypatch)
    done = tuner(*SEARCH, *HOW, *ON)
    assert done.return_value == 130
    assert "Interrupted after 1 of 2; the same command continues from there." in done.stderr
    on(Scripted(), monkeypatch)
    assert [row["searched"] for row in tuner.json(*SEARCH, *HOW, *ON, code=1)["rows"]] == [True, False]


def test_sigterm_stops_a_fleet_as_ctrl_c_does(tuner: Invoked, monkeypatch: pytest.MonkeyPatch) -> None:
    on(Scripted(most=1, stop=signal.SIGTERM), monkeypatch)
    assert tuner(*SEARCH, *HOW, *ON).return_value == 130


def test_one_problem_is_shown_as_by_a_local_search(tuner: Invoked, monkeypatch: pytest.MonkeyPatch) -> None:
    on(Scripted(), monkeypatch)
    one = ("search", "gemm", "--M", "16", "--N", "4096", "--K", "4096", "--replay", "auto", *HOW)
    assert "BLOCK_M=16" in tuner(*one, *ON).stdout
    assert "as stored" not in tuner(*one).stdout


def test_each_captured_call_is_a_task(tuner: Invoked, monkeypatch: pytest.MonkeyPatch) -> None:
    Store.open(tuner.db).captured.add(CAPTURED, H200)
    scheduler = on(Scripted(CAPTURED.op), monkeypatch)
    done = tuner("search", "--captured", "--widen", "--trials", "9", *ON)
    assert done.return_value == 1
    assert "node-1 was lost 3 times" in done.stdout
    (task,) = scheduler.tasks
    problem = problem_of_call(CAPTURED)
    assert task.name == problem.text
    named = [f"--only={name}={value}" for name, value in {"op": CAPTURED.op, **problem.values}.items()]
    assert [*task.words] == ["search", "--captured", *named, "--gpu", "0", "--trials=9", "--widen", "--json"]


def test_a_captured_call_among_others_with_its_values_has_its_own_outcome(tuner: Invoked) -> None:
    with closing(Store.open(tuner.db)) as store:
        store.captured.add(CAPTURED, H200)
        (entry,) = suite_of(store.captured.all(), "captured calls").entries
        values = dict(entry.problem.values)
        rows = [
            {"problem": {**values, "bias_dtype": "bf16"}, "error": "of another"},
            {"problem": values, "error": "own"},
        ]
        tuned = _tuned(entry, Ended(Task("scale", ()), 1, output={"rows": rows}), store)
    assert tuned.error == "own"


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("search", "gemm", "--M", "16", "--on", "ray", "--replay", "auto"), "needs a store that every node reaches"),
        (("search", "gemm", "--M", "16,32", *ON, "--joint", "geomean"), "--joint measures all problems together"),
        (("work", *ON, "--once"), "--on does the jobs that are pending now, and takes no --once"),
        (("retune", *ON, "--budget", "5m"), "--budget is the time of one machine"),
    ],
)
def test_what_a_fleet_cannot_do_is_said(
    tuner: Invoked, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], text: str
) -> None:
    on(Scripted(), monkeypatch)
    error = tuner(*words).exception
    assert isinstance(error, UsageError)
    assert text in str(error)


def test_gpus_of_this_machine_are_not_those_of_a_node(tuner: Invoked, monkeypatch: pytest.MonkeyPatch) -> None:
    on(Scripted(), monkeypatch)
    monkeypatch.setenv("TUNER_DB", "postgresql://tuner@nowhere/tuner")
    error = tuner("search", "gemm", "--M", "16", "--on", "slurm:gpu", "--gpu", "1").exception
    assert str(error) == "--gpu names GPUs of this machine, and --on slurm:gpu chooses one on a node; leave --gpu out"


def test_findings_of_all_tasks_are_one_report(tuner: Invoked, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tuner(*SEARCH, *HOW).return_value == 1
    scheduler = on(Scripted(), monkeypatch)
    document = tuner.json("retune", "--replay", "auto", "--check", "--threshold", "3%", "--report", "night", *ON)
    assert [finding["cause"] for finding in document["findings"]] == ["unchanged"] * 2
    assert document["summary"]["planned"] == document["summary"]["measured"] == 2
    assert (tuner.folder / "night" / "retune.md").exists()
    assert scheduler.tasks[0].words[-4:] == ("--check", "--threshold=3.000000%", "--replay=auto", "--json")
    on(Scripted("M=64"), monkeypatch)
    done = tuner("retune", "gemm", "--replay", "auto", *ON)
    assert done.return_value == 1
    assert "failed: gemm 64 x 4096 x 4096 bf16: node-1 was lost 3 times" in done.stderr


def test_an_answer_of_a_suite_is_measured_with_the_kernel_of_its_entry(
    tuner: Invoked, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = toy("double")
    signature = catalog.resolve(kernel).signature
    problem = signature.problem({"N": 64})
    found = replace(answer(problem), config=signature.config({"BLOCK": 64, "num_warps": 1, "num_stages": 1}))
    with closing(Store.open(tuner.db)) as store:
        run = store.start_run(signature, problem, HERE, SETTINGS)
        store.add_answer(run, found, HERE, "trials", SECONDS, COMPARISON)
    (tuner.folder / "mine.json").write_text(json.dumps([{"op": kernel, "N": 64}]))
    scheduler = on(Scripted("double"), monkeypatch)
    with pytest.raises(NothingFound, match="no answer was measured: node-1 was lost 3 times"):
        raise tuner("retune", "--suite", "mine.json", "--on", "local").exception or AssertionError
    assert [task.words[:3] for task in scheduler.tasks] == [("retune", kernel, "--N=64")]


def test_each_pending_job_is_a_task(tuner: Invoked, monkeypatch: pytest.MonkeyPatch) -> None:
    space = recorded.load("softmax-8192x8192-fp32-nvidia-h200")
    store = Store.open(tuner.db)
    store.queue.add(space.problem, space.device.id)
    store.queue.add(space.signature.problem({"M": 77}), space.device.id)  # no space of it was recorded
    scheduler = on(Scripted(), monkeypatch)
    done = tuner("work", "--replay", "auto", "--trials", "10", *ON)
    assert done.return_value == 0
    assert len(scheduler.tasks) == 2
    first, second = done.stdout.splitlines()
    assert first == f"job 1  done     {space.problem.text}  run 1"
    assert second.startswith("job 2  pending  softmax M=77")
    assert scheduler.tasks[0].words == ("work", "--once", "--trials=10", "--replay=auto")
    scheduler = on(Scripted("job 1"), monkeypatch)
    assert tuner("work", "mine.py", *ON).return_value == 1
    assert scheduler.tasks[0].words[:2] == ("work", str(tuner.folder / "mine.py"))
