"""`tuner.tune` as a library call: scripts, several problems, joint configs, events, stopping, errors."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from inspect import signature
from pathlib import Path
from signal import SIGINT, SIGTERM, getsignal
from threading import Event
from types import ModuleType
from typing import get_type_hints

import pytest
from helpers import toy

from tuner import catalog
from tuner.db.store import Store
from tuner.errors import Interrupted, NoDevice, UnknownName, UsageError
from tuner.kernels.spec import Problem
from tuner.measure import device
from tuner.records import Measurement
from tuner.tuning import Events, JointAnswer, Tuned, tune
from tuner.tuning.api import TuneOptions, kernel_reference

SOFTMAX = {"M": 8192, "N": 8192}
WIDE = {"M": 4096, "N": 65536}


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests of the recorded spaces replay them on every machine."""
    monkeypatch.setattr(device, "count", lambda: 0)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "tuner.db"


def statuses(db: Path) -> list[str]:
    store = Store.open(db)
    found = [run.status for run in store.runs(5)]
    store.close()
    return found


class Recorder(Events):
    """Keeps what it receives."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.notes: list[str] = []
        self.trials = 0

    def note(self, message: str) -> None:
        self.notes.append(message)

    def search_started(self, problem: Problem | None, trials: int, known: int) -> None:
        self.names.append(f"started {known} of {trials}")

    def trial(self, problem: Problem | None, measurement: Measurement) -> None:
        self.trials += 1

    def round(self, problem: Problem | None, rounds: int, contenders: int) -> None:
        if self.names[-1] != "round":
            self.names.append("round")
        assert rounds >= 1
        assert contenders >= 1

    def search_ended(self, problem: Problem | None) -> None:
        self.names.append("ended")

    def tuned(self, tuned: Tuned, done: int, total: int) -> None:
        self.names.append(f"tuned {done} of {total}")


class TestOneProblem:
    def test_the_answer_is_returned_and_stored(self, db: Path) -> None:
        answer = tune("softmax", SOFTMAX, store=db, effort="quick")
        assert answer.problem.text == "softmax M=8192 N=8192 dtype=fp32"
        assert answer.kind in ("tuned", "default")
        assert answer.latency_us is not None
        with_store = Store.open(db)
        (stored,) = with_store.answers(op="softmax")
        with_store.close()
        assert stored.answer == answer
        assert stored.provenance.recorded == "softmax-8192x8192-fp32-nvidia-h200"
        assert re.fullmatch(
            rf"<Answer {answer.problem.text}: {answer.kind}, [\d.]+ us, [\d.]+ x default; {answer.config.text}>",
            repr(answer),
        )

    def test_a_stored_answer_is_returned_without_a_search(self, db: Path) -> None:
        first, events = tune("softmax", SOFTMAX, store=db, effort="quick"), Recorder()
        assert tune("softmax", SOFTMAX, store=db, effort="quick", on_event=events) == first
        assert events.names == []
        tune("softmax", SOFTMAX, store=db, effort="quick", force=True, on_event=events)
        assert events.names == ["started 0 of 60", "round", "ended"]

    def test_events_are_in_order_and_count_the_trials(self, db: Path) -> None:
        events = Recorder()
        tune("softmax", SOFTMAX, store=db, trials=12, on_event=events)
        assert events.names == ["started 0 of 12", "round", "ended"]
        assert events.trials == 12
        assert [note.partition(":")[0] for note in events.notes] == ["No GPU here"]

    def test_a_store_that_is_passed_stays_open(self, db: Path) -> None:
        store = Store.open(db)
        tune("softmax", SOFTMAX, store=store, trials=5)
        assert len(store.answers()) == 1
        store.close()

    def test_the_problem_may_be_a_problem(self, db: Path) -> None:
        problem = catalog.load("softmax").signature.problem(SOFTMAX)
        assert tune("softmax", problem, store=db, trials=5).problem == problem

    def test_a_named_space_is_replayed(self, db: Path) -> None:
        name = "softmax-8192x8192-fp32-nvidia-h100-80gb-hbm3"
        tune("softmax", SOFTMAX, store=db, trials=5, replay=name)
        store = Store.open(db)
        assert [stored.provenance.recorded for stored in store.answers()] == [name]
        store.close()

    def test_without_a_listener_notes_are_warnings_of_the_log(self, db: Path, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.WARNING, logger="tuner")
        tune("softmax", SOFTMAX, store=db, trials=5)
        assert "No GPU here: replaying softmax-8192x8192-fp32-nvidia-h200" in caplog.text


class TestStopping:
    def test_the_measurements_are_kept_and_the_next_search_goes_on(self, db: Path) -> None:
        stop = Event()

        class AfterTen(Events):
            def __init__(self) -> None:
                self.trials = 0

            def trial(self, problem: Problem | None, measurement: Measurement) -> None:
                self.trials += 1
                if self.trials == 10:
                    stop.set()

        with pytest.raises(Interrupted, match=r"^softmax 8192 x 8192 fp32: stopped after 1\d configs; tune again"):
            tune("softmax", SOFTMAX, store=db, trials=40, on_event=AfterTen(), stop=stop.is_set)
        events = Recorder()
        tune("softmax", SOFTMAX, store=db, trials=40, on_event=events)
        known = int(events.names[0].split()[1])
        assert known >= 10
        assert events.trials == 40 - known

    def test_ctrl_c_in_a_script_ends_the_run_as_interrupted(self, db: Path) -> None:
        class Pressed(Events):
            def trial(self, problem: Problem | None, measurement: Measurement) -> None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            tune("softmax", SOFTMAX, store=db, on_event=Pressed())
        store = Store.open(db)
        (run,) = store.runs(5)
        store.close()
        assert (run.status, run.trials) == ("interrupted", 1)

    def test_ctrl_c_ends_the_runs_of_a_joint_search_as_interrupted(self, db: Path) -> None:
        class Pressed(Events):
            def trial(self, problem: Problem | None, measurement: Measurement) -> None:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            tune("softmax", [SOFTMAX, WIDE], store=db, joint="worst", on_event=Pressed())
        assert statuses(db) == ["interrupted", "interrupted"]

    @pytest.mark.parametrize("options", [{}, {"joint": "worst"}], ids=["each", "joint"])
    def test_no_run_stays_open_if_a_listener_fails_at_the_start(self, db: Path, options: dict[str, str]) -> None:
        class Broken(Events):
            def search_started(self, problem: Problem | None, trials: int, known: int) -> None:
                raise ValueError("a bug of the listener")

        with pytest.raises(ValueError, match="a bug of the listener"):
            tune("softmax", [SOFTMAX, WIDE], store=db, on_event=Broken(), **options)  # type: ignore[call-overload]
        assert {*statuses(db)} == {"failed"}


class TestSeveralProblems:
    def test_each_has_an_outcome_in_order_and_a_failure_stays_its_own(self, db: Path) -> None:
        events = Recorder()
        wide, missing, square = tune("softmax", [WIDE, {"M": 17}, SOFTMAX], store=db, trials=5, on_event=events)
        assert wide.answer is not None
        assert square.answer is not None
        assert (wide.problem["N"], square.problem["N"]) == (65536, 8192)
        assert (missing.answer, missing.error) == (None, "there is no GPU here, and it was not recorded")
        assert repr(missing) == f"<Tuned {missing.problem.text}: {missing.error}>"
        assert re.fullmatch(rf"<Tuned {re.escape(repr(square.answer))}, [\d.]+ x torch>", repr(square))
        assert [name for name in events.names if name.startswith("tuned")] == ["tuned 1 of 2", "tuned 2 of 2"]

    def test_a_problem_that_is_given_twice_is_searched_once_and_has_two_outcomes(self, db: Path) -> None:
        events = Recorder()
        first, other, again = tune("softmax", [SOFTMAX, WIDE, SOFTMAX], store=db, trials=5, on_event=events)
        assert first == again
        assert other.problem["N"] == 65536
        assert [name for name in events.names if name.startswith("tuned")] == ["tuned 1 of 2", "tuned 2 of 2"]

    def test_one_config_for_all(self, db: Path) -> None:
        found = tune("softmax", [SOFTMAX, WIDE], store=db, trials=20, joint="worst")
        assert isinstance(found, JointAnswer)
        assert found.speed == pytest.approx(min(share.speed for share in found.shares))
        assert [share.row.problem["N"] for share in found.shares] == [8192, 65536]
        assert repr(found) == (
            f"<JointAnswer softmax: worst {found.speed:.3f} x default over 2 problems; {found.config.text}>"
        )
        store = Store.open(db)
        assert store.answers() == []
        store.close()


class TestErrors:
    @pytest.mark.parametrize(
        ("kernel", "problem", "options", "error", "text"),
        [
            ("nothing", {"M": 1}, {}, UnknownName, "no kernel is called 'nothing'"),
            ("softmax", {}, {}, UsageError, "softmax needs M; give M=SIZE"),
            ("softmax", [], {}, UsageError, "tune takes a problem or several, and the sequence is empty"),
            ("softmax", SOFTMAX, {"effort": "huge"}, UsageError, "an effort is quick, normal, exhaustive, not 'huge'"),
            ("softmax", SOFTMAX, {"budget": "soon"}, UsageError, "a duration is a number with s, m or h"),
            ("softmax", [SOFTMAX, WIDE], {"joint": "best"}, UsageError, "joint is geomean or worst"),
            ("softmax", {"M": 17}, {}, NoDevice, "there is no GPU here and no recorded space of softmax M=17"),
            ("softmax", SOFTMAX, {"gpu": 3}, NoDevice, "there is no GPU 3: the driver shows none"),
            ("softmax", SOFTMAX, {"policy": "hot"}, UsageError, "a policy is auto, cold, warm, graph, not 'hot'"),
            ("softmax", SOFTMAX, {"sampler": "best"}, UsageError, "samplers are gp, tpe, random, grid, not 'best'"),
            ("softmax", SOFTMAX, {"trials": 0}, UsageError, "a search measures at least one config, not 0"),
            ("softmax", SOFTMAX, {"budget": 0.0}, UsageError, "a budget is a number of seconds above 0, not 0.0"),
            ("softmax", SOFTMAX, {"seed": -1}, UsageError, "a seed is a whole number from 0 to 4294967295, not -1"),
            ("softmax", "M=8192", {}, UsageError, "a problem is its sizes by name, such as {'M': 4096}, not 'M=8192'"),
            ("softmax", 8192, {}, UsageError, "a problem is its sizes by name, such as {'M': 4096}, not 8192"),
            ("softmax", [8192], {}, UsageError, "a problem is its sizes by name, such as {'M': 4096}, not 8192"),
            (
                *("softmax", [SOFTMAX, WIDE], {"joint": "worst", "replay": "softmax-8192x8192-fp32-nvidia-h200"}),
                *(UsageError, "a joint search replays a space of each problem, and softmax-8192x8192-fp32-nvidia-h200"),
            ),
        ],
    )  # fmt: skip
    def test_what_is_not_understood_or_not_here_is_refused(
        self, db: Path, kernel: str, problem: object, options: dict[str, object], error: type[Exception], text: str
    ) -> None:
        with pytest.raises(error, match=text):
            tune(kernel, problem, store=db, **options)  # type: ignore[call-overload]
        store = Store.open(db)
        assert store.runs(1) == []
        store.close()

    def test_a_problem_of_another_op_is_refused(self, db: Path) -> None:
        problem = catalog.load("transpose").signature.problem({"M": 4})
        with pytest.raises(UsageError, match=r"transpose M=4 N=4 dtype=fp32 is not a problem of softmax"):
            tune("softmax", problem, store=db)

    def test_a_kernel_without_a_file_cannot_reach_the_workers(self, db: Path) -> None:
        kernel = replace(catalog.load("softmax"), flops=lambda problem: 0)
        with pytest.raises(UsageError, match="write it to a file and pass its path"):
            kernel_reference(kernel)


def test_a_kernel_value_is_known_to_workers_by_its_name_or_its_file() -> None:
    assert kernel_reference(catalog.load("softmax")) == "softmax"
    assert kernel_reference(catalog.resolve(toy("double"))) == toy("double")


def test_a_script_that_tunes_its_own_file_without_a_guard_is_refused(tmp_path: Path) -> None:
    """Loading the kernel runs the script again, in this process and in those that compile and measure."""
    script = tmp_path / "unguarded.py"
    call = "import tuner\ntuner.tune(__file__, {'N': 64}, store=__file__ + '.db')\n"
    script.write_text(f"{Path(toy('double')).read_text()}\n{call}")
    done = subprocess.run([sys.executable, "-P", str(script)], capture_output=True, text=True, check=False)
    assert "UsageError" in done.stderr or "KernelFault" in done.stderr
    assert "put the call under if __name__ == '__main__':" in done.stderr
    assert "No GPU" not in done.stderr


def test_a_lazy_module_is_not_loaded_in_the_search_for_a_kernels_file(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lazy(ModuleType):
        def __getattr__(self, name: str) -> object:
            raise ImportError(f"{name} needs a package that is not installed")

    monkeypatch.setitem(sys.modules, "a_lazy_module", Lazy("a_lazy_module"))
    kernel = replace(catalog.load("softmax"), flops=lambda problem: 0)
    with pytest.raises(UsageError, match="write it to a file and pass its path"):
        kernel_reference(kernel)


def test_the_options_are_those_of_the_function() -> None:
    parameters = {*signature(tune).parameters} - {"kernel", "problem", "joint"}
    assert parameters == {*get_type_hints(TuneOptions)}


def test_calls_in_threads_share_a_database_and_leave_the_signals_alone(db: Path) -> None:
    before = [getsignal(number) for number in (SIGINT, SIGTERM)]
    with ThreadPoolExecutor(3) as threads:
        calls = [threads.submit(tune, "softmax", problem, store=db, trials=5) for problem in (SOFTMAX, WIDE, SOFTMAX)]
        square, wide, again = [call.result() for call in calls]
    assert square.problem == again.problem != wide.problem
    assert [getsignal(number) for number in (SIGINT, SIGTERM)] == before


SCRIPT = """
import json
import tuner

answer = tuner.tune("gemm", {"M": 4096}, effort="quick")
best = tuner.best_config("gemm", M=4096, device="nvidia-h200")
print(json.dumps([dict(answer.config), dict(best.config), best.match]))
"""


def test_a_short_script_tunes_and_model_code_finds_the_config(tmp_path: Path) -> None:
    """The whole path in a process of its own: tune, store, look up."""
    env = {"TUNER_DB": str(tmp_path / "tuner.db"), "CUDA_VISIBLE_DEVICES": "", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT], capture_output=True, text=True, env=env, cwd=tmp_path, check=False
    )
    assert done.returncode == 0, done.stderr
    config, best, match = json.loads(done.stdout)
    assert {"BLOCK_M", "num_warps", "num_stages"} <= config.keys()
    assert config.items() <= best.items()  # which has the knobs, too, that gemm has had since it was recorded
    assert match == "stale"  # replayed, not measured here
    assert "No GPU here: replaying gemm-4096x4096x4096-bf16-nvidia-h200" in done.stderr
