"""`tuner search --captured` and `tuner captured`, with a scripted driver and real processes on torch's CPU."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from helpers import H200, toy
from machines import Machine

import tuner
from tuner import catalog
from tuner.captured.call import CapturedCall, Function, Grids, TensorArgument
from tuner.captured.problem import op_name, problem_of_call
from tuner.cli import cli
from tuner.db.store import Store
from tuner.errors import NoDevice, NothingFound, UsageError
from tuner.kernels.spec import Value
from tuner.records.retune import Action
from tuner.tuning import captured
from tuner.tuning.effort import Effort
from tuner.tuning.events import Events, StopToken
from tuner.tuning.gpu import MeasureOptions
from tuner.tuning.jobs import JobWorker
from tuner.tuning.place import on_gpus

OP = op_name("agreeing", "SCALE")
WRONG = ("twice", "half", "reads outputs", "zeros")


def config(fault: str, block: int = 64) -> dict[str, Value]:
    return {"BLOCK": block, "FAULT": fault, "num_warps": 4, "num_stages": 1}


def call(configs: Sequence[dict[str, Value]], N: int = 33, name: str = "SCALE", file: str = "") -> CapturedCall:
    return CapturedCall(
        Function("agreeing", file or toy("agreeing"), name),
        OP,
        {"N": N},
        {
            "x": TensorArgument((5, N), (N, 1), "fp32"),
            "out": TensorArgument((5, N), (N, 1), "fp32"),
            "total": TensorArgument((5,), (1,), "fp32"),
            "count": TensorArgument((1,), (1,), "int32"),
            "N": N,
        },
        tuple(configs),
        Grids((), {(): (1,)}),
    )


CALL = call(
    [
        *(config(fault) for fault in (*WRONG, "raises")),
        *(config("none", block) for block in (64, 128, 256)),
    ]
)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, standalone_mode=False)


def rows(*arguments: str) -> Any:
    done = run(*arguments, "--json")
    assert done.stdout, done.exception
    return json.loads(done.stdout)


class Host(Machine):
    """A machine whose documents of calls are in the test's folder."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, patch)
        patch.setenv("XDG_CACHE_HOME", str(folder / "home"))

    def capture(self, *calls: CapturedCall) -> None:
        store = Store.open(self.db)
        for each in calls:
            assert store.captured.add(each, H200)
        store.close()


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_helpers: None) -> Host:
    return Host(tmp_path, monkeypatch)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """The database of one search of all that was captured, and its output."""
    with pytest.MonkeyPatch.context() as patch:
        host = Host(tmp_path_factory.mktemp("found"), patch)
        host.capture(
            call([config("none")], N=41, name="GONE"),
            call([config("none")], N=42, file=str(host.db.with_name("gone.py"))),
            *[CALL] * 3,
        )
        done = run("search", "--captured", "--json")
        assert done.return_value == 1, (done.stderr, done.exception)
        return host.db, json.loads(done.stdout)


@pytest.fixture
def searched(host: Host, found: tuple[Path, Any]) -> Host:
    with closing(sqlite3.connect(found[0])) as source, closing(sqlite3.connect(host.db)) as target:
        source.backup(target)
    return host


def test_the_config_that_most_agree_with_is_right_and_the_first_is_not(found: tuple[Path, Any]) -> None:
    first, *_ = found[1]["rows"]
    assert first["problem"]["N"] == 33
    assert first["config"]["FAULT"] == "none"
    assert first["basis"] == "agreement"
    assert first["tried"] == len(CALL.configs)
    with closing(sqlite3.connect(found[0])) as connection:
        outcomes = dict(
            connection.execute(
                "SELECT json_extract(config, '$.FAULT'), outcome FROM trials JOIN runs ON runs.id = run_id "
                "WHERE problem_id = (SELECT id FROM problems WHERE text LIKE '%N=33%')"
            ).fetchall()
        )
    assert {outcomes[fault] for fault in WRONG if fault != "reads outputs"} == {"wrong_result"}
    assert {tie["config"]["FAULT"] for tie in first["ties"]} <= {"none"}  # one that reads outputs passes a single check
    assert (outcomes["none"], outcomes["raises"]) == ("ok", "error")


def test_what_cannot_be_loaded_is_the_outcome_of_its_call(found: tuple[Path, Any]) -> None:
    failed = {row["problem"]["N"]: row["error"] for row in found[1]["rows"] if row["match"] == "failed"}
    assert [*failed] == [41, 42]
    assert "has no GONE" in failed[41]
    assert "gone.py" in failed[42]
    assert all("\n" not in error for error in failed.values())


def test_the_roles_are_stored_with_the_call(searched: Host) -> None:
    listed = {row["problem"]["N"]: row for row in rows("captured")}
    assert listed[33]["examined"] == {
        "basis": "agreement",
        "agreeing": 3,
        "differing": 4,
        "roles": {"x": "in", "out": "out", "total": "out", "count": "inout"},
    }
    assert (listed[33]["seen"], listed[33]["tuned"]) == (3, True)
    assert (listed[41]["examined"], listed[41]["tuned"]) == (None, False)
    shown = run("captured", OP).stdout.splitlines()
    assert "3 agree, 4 differ" in shown[3]
    other = run("captured", "gemm", "--device", "nvidia-a100")
    assert str(other.exception) == f"no call of gemm is captured on nvidia-a100; captured are {OP} on nvidia-h200"


def test_the_same_command_answers_from_the_store_without_an_examination(searched: Host) -> None:
    done = run("search", OP, "--captured", "--only", "N=33")
    assert done.return_value == 0, (done.stderr, done.exception)
    assert "0 searched, 1 as stored" in done.stdout
    assert "agreeing, not verified" in done.stdout
    assert "Examining" not in done.stderr
    stated = ("--N", "33", "--dtype", "fp32", "--count_dtype", "int32")  # as tuner best names the command
    assert not rows("search", OP, *stated)["rows"][0]["searched"]
    other = run("search", OP, "--N", "34", "--dtype", "fp32")
    assert str(other.exception).startswith(f"{OP} N=34 dtype=fp32 is not among the captured calls on nvidia-h200, such")


def test_the_kernel_of_an_answer_is_found_by_its_captured_call(searched: Host) -> None:
    """For verify, which measures it again, as that of a file."""
    store = Store.open(searched.db)
    problem = problem_of_call(CALL)
    kernel = catalog.resolve(captured.captured_reference(OP, problem, store, H200.id))
    assert kernel.operands(problem)["out"].role == "out"
    assert captured.captured_reference("gemm", problem, store, H200.id) == "gemm"
    store.close()
    other = run("verify", OP, "--N", "33", "--dtype", "fp32")
    assert isinstance(other.exception, NothingFound)
    assert str(other.exception) == (
        f"{OP} N=33 dtype=fp32 is not among the captured calls on nvidia-h200, such as {problem.text}; "
        f"run it again with tuner run --mode capture, then tuner search {OP} --captured"
    )
    other = run("verify", OP, "--N", "41", "--dtype", "fp32", "--count_dtype", "int32")
    assert "is captured, and was not examined on nvidia-h200; tuner search " in str(other.exception)


def test_its_answer_is_measured_again(searched: Host) -> None:
    night = tuner.retune(store=searched.db, check_only=True, on_event=Events())
    (finding,) = night.findings
    assert finding.problem == problem_of_call(CALL)
    assert (finding.action, finding.error) == (Action.KEPT, "")
    assert finding.now is not None


def test_a_job_is_done_by_its_captured_call(searched: Host) -> None:
    store = Store.open(searched.db)
    store.queue.add(problem_of_call(CALL), H200.id)
    place = on_gpus(store, (), [0], MeasureOptions(), Events())
    worker = JobWorker(store, place, Effort.named("quick"), missed=False, lease_s=60.0)
    worker.work(1)
    (job,) = store.queue.jobs(5)
    assert (job.status, worker.failed) == ("done", set())
    store.close()


def test_calls_are_removed_and_answers_stay(searched: Host) -> None:
    assert rows("captured", OP, "--drop") == {"dropped": 3}
    assert rows("captured") == []
    assert isinstance(run("search", "--captured").exception, NothingFound)
    assert [row["problem"]["N"] for row in rows("list")] == [33]


def test_a_call_is_tuned_from_the_process_that_makes_it(searched: Host) -> None:
    """Mode tune does this. A changed function is examined again; listed configs do not replace a widened answer."""
    store = Store.open(searched.db)
    arguments: dict[str, Any] = {"effort": Effort.named("quick", trials=12), "options": MeasureOptions()}
    arguments |= {"events": Events(), "stop": StopToken()}
    before, _, _ = sorted(store.captured.all(), key=lambda stored: -stored.count)
    assert before.call.examined is not None
    store.captured.examined(before.id, replace(before.call.examined, source="other"))
    tuned = captured.tune_call(CALL, store, widen=True, **arguments)
    assert tuned.result is not None
    assert tuned.answer is not None
    assert tuned.answer.config["FAULT"] == "none"
    assert tuned.answer.basis == "agreement"
    (after,) = [stored for stored in store.captured.all() if stored.id == before.id]
    assert (after.call, after.count) == (before.call, before.count + 1)
    assert captured.tune_call(CALL, store, **arguments).result is None
    store.close()


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--captured", "--suite", "mlp"], "--captured takes the calls that were captured, and no --suite"),
        (["--captured", "--dry-run"], "--captured searches each call on a GPU here, and takes no --dry-run"),
        (["--widen", "gemm"], "--widen adds neighbours of the configs of captured calls; give --captured with it"),
    ],
)
def test_options_that_contradict_each_other_are_refused(host: Host, arguments: list[str], error: str) -> None:
    done = run("search", *arguments)
    assert isinstance(done.exception, UsageError)
    assert str(done.exception).startswith(error)


def test_a_captured_op_that_was_not_searched_is_told_from_an_unknown_one(host: Host) -> None:
    host.capture(CALL)
    refused = run("best", OP, "--N", "33").exception
    assert str(refused) == f"{OP} has captured calls and was not searched; run tuner search {OP} --captured"
    assert str(run("best", "none_such", "--N", "33").exception).startswith("no kernel is called 'none_such'; known are")


def test_without_a_gpu_it_is_said(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.measure.device.count", lambda: 0)
    done = run("search", "--captured")
    assert isinstance(done.exception, NoDevice)
    assert str(done.exception) == (
        "captured calls are examined and tuned on a GPU, and there is no GPU here; "
        "run it on a machine with an NVIDIA GPU"
    )
    assert os.environ["TUNER_DB"] == str(host.db)
