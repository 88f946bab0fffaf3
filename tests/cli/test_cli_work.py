"""`tuner work` and `tuner jobs`: what is asked for is tuned once, whoever dies meanwhile; what cannot be says why."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep

import pytest
from click.testing import CliRunner, Result
from helpers import H200, until
from stored import change, rows

from tuner import recorded
from tuner.cli import cli
from tuner.db.queue import Job, JobFilter, Queue
from tuner.db.sqlite import SQLite
from tuner.db.store import Store
from tuner.errors import NoDevice, StoreError
from tuner.records import Outcome
from tuner.tuning.lease import Lease

SPACE = recorded.load("softmax-8192x8192-fp32-nvidia-h200")
SOFTMAX, UNRECORDED = SPACE.problem, SPACE.signature.problem({"M": 77})
REPLAYED = "transpose-8192x8192-fp32-nvidia-h200"
TRANSPOSE = recorded.load(REPLAYED).problem
GEMM = recorded.load("gemm-16x4096x4096-bf16-nvidia-h200").problem
H100 = "nvidia-h100-80gb-hbm3"
Runner = Callable[..., Result]
HERE = [JobFilter(H200.id, frozenset(["gemm", "softmax", "transpose"]))]


@pytest.fixture
def path(migrated: Path, path: Path) -> Path:
    path.write_bytes(migrated.read_bytes())
    return path


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    store = Store.open(path)
    yield store
    store.close()


@pytest.fixture
def tuner(path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    monkeypatch.setenv("TUNER_DB", str(path))
    return lambda *arguments: CliRunner().invoke(cli, arguments, standalone_mode=False)


def test_what_was_asked_for_and_then_what_was_missed_is_tuned(tuner: Runner, store: Store) -> None:
    store.queue.add(UNRECORDED, H200.id, 9)  # no space of it can be replayed here
    store.queue.add(SOFTMAX, H200.id)
    store.queue.add(GEMM, H200.id, 1)
    store.queue.add(TRANSPOSE, "nvidia-a100")
    store.queue.add(SOFTMAX, H100)  # recorded on both cards
    missed = (TRANSPOSE.op, TRANSPOSE.text, H200.id)
    store.count_requests({missed: 5})
    once = tuner("work", "--once", "--replay", "gemm-16x4096x4096-bf16-nvidia-h200", "--trials", "10")
    assert once.return_value == 0, once.exception
    assert once.stdout.startswith(f"job 3  done    {GEMM.text}  ")
    done = tuner("work", "--drain", "--missed", "--replay", "auto", "--trials", "10")
    assert done.return_value == 0, done.exception
    assert [line.split()[1:4] for line in done.stdout.splitlines()] == [
        ["2", "done", "softmax"],
        ["5", "done", "softmax"],
        ["6", "done", "transpose"],
    ]
    assert [(stored.answer.problem, stored.provenance.device.id) for stored in store.answers()] == [
        (GEMM, H200.id), (SOFTMAX, H200.id), (SOFTMAX, H100), (TRANSPOSE, H200.id)
    ]  # fmt: skip
    by_run = {run.id: run.provenance.recorded for run in store.runs(10)}
    assert [by_run[2], by_run[3]] == [SPACE.name, f"softmax-8192x8192-fp32-{H100}"]
    listed = json.loads(tuner("jobs", "--json").stdout)
    assert [(job["id"], job["status"], job["run_id"]) for job in listed] == [
        (1, "pending", None), (4, "pending", None), (6, "done", 4), (5, "done", 3), (3, "done", 1), (2, "done", 2)
    ]  # fmt: skip

    again, new = store.queue.add(SOFTMAX, H200.id)
    assert new
    answered = tuner("work", "--drain", "--replay", SPACE.name, "--trials", "10")
    assert f"job {again.id}  done" in answered.stdout
    assert len(store.runs(10)) == 4  # it was there already
    text = tuner("jobs").stdout
    assert f"    1  pending      9  {UNRECORDED.text}  on nvidia-h200\n" in text
    assert f"    3  done         1  {GEMM.text}  on nvidia-h200, run 1\n" in text


def test_a_job_that_fails_is_tried_three_times_and_says_why(tuner: Runner, store: Store, tmp_path: Path) -> None:
    wrong = [replace(m, outcome=Outcome.WRONG_RESULT, samples=()) for m in SPACE.measurements[:5]]
    file = tmp_path / "wrong.json.gz"
    file.write_bytes(recorded.dumps(replace(SPACE, measurements=tuple(wrong), default=None)))
    store.queue.add(SOFTMAX, H200.id)
    once = tuner("work", "--once", "--replay", str(file))
    (why,) = re.findall(r"no config ran .*", once.stdout)
    assert re.fullmatch(r".*: 5 wrong_result; nothing is stored the first, BLOCK_N=\S+ .*, is wrong_result", why)
    assert (once.return_value, once.stdout) == (1, f"job 1  again   {SOFTMAX.text}  {why}\n")
    assert f"    1  pending      0  {SOFTMAX.text}  on nvidia-h200, tried once: {why}\n" == tuner("jobs").stdout
    rest = tuner("work", "--drain", "--replay", str(file))
    assert rest.return_value == 1
    assert [line.split()[2] for line in rest.stdout.splitlines()] == ["again", "failed"]
    assert f"    1  failed       0  {SOFTMAX.text}  on nvidia-h200, tried 3 times: {why}\n" == tuner("jobs").stdout
    idle = tuner("work", "--drain", "--replay", str(file))
    assert (idle.return_value, idle.stdout, idle.stderr) == (0, "", "No job is pending.\n")
    assert store.answers() == []


def test_jobs_that_nothing_here_can_do_are_not_passed_over_in_silence(tuner: Runner, store: Store) -> None:
    store.queue.add(UNRECORDED, H200.id)
    idle = tuner("work", "--drain", "--replay", "auto")
    says = "1 job pending, and none of them has a recorded space to search; tuner jobs lists them.\n"
    assert (idle.return_value, idle.stdout, idle.stderr) == (0, "", says)


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--drain"], 3, "there is no GPU here; --replay auto takes recorded spaces instead"),
        (["--drain", "--replay", "nope"], 2, "no recorded space is called 'nope'"),
        (["--drain", "--replay", "auto", "gemm"], 2, "name no kernels with it"),
        (["--drain", "--replay", "auto", "--db", "postgresql://me@127.0.0.1:1/x"], 5, "Connection refused"),
    ],
)
def test_what_cannot_begin_says_why(
    tuner: Runner, monkeypatch: pytest.MonkeyPatch, options: list[str], code: int, message: str
) -> None:
    monkeypatch.setattr("tuner.measure.device.count", lambda: 0)
    done = tuner("work", *options)
    assert done.exception is not None
    assert message in str(done.exception)
    assert getattr(done.exception, "exit_code", None) == code


def test_the_commands_of_the_page_run_as_far_as_there_is_a_card(tuner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.measure.device.count", lambda: 0)
    page = (Path(__file__).parents[2] / "docs" / "jobs.md").read_text()
    lines = re.findall(r"^\$ tuner ((?:work|jobs).*)$", page, re.MULTILINE)
    assert len(lines) == 4
    for line in lines:
        error = tuner(*line.split()).exception
        assert error is None or (line.startswith("work") and isinstance(error, NoDevice))


@contextmanager
def working(path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A worker process; it takes seconds to replay this space."""
    replay = ["--replay", REPLAYED, "--db", str(path)]
    command = [sys.executable, "-P", "-m", "tuner", "work", *replay, *options]
    process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_worker_that_is_ended_hands_back_and_one_that_is_killed_loses_the_job(
    tuner: Runner, store: Store, path: Path
) -> None:
    """In both cases another goes on with the trials that are kept."""
    store.queue.add(TRANSPOSE, H200.id)

    def trials() -> int:
        return int(rows(SQLite(path), "SELECT count(*) FROM trials")[0][0])

    with working(path, "--trials", "1000", "--lease", "300s", "--poll", "0.1s") as first:
        until(lambda: trials() >= 10, 60)
        first.send_signal(signal.SIGTERM)
        since = monotonic()
        assert first.wait(10) == 0
        assert monotonic() - since < 5
    (job,) = store.queue.jobs(10)
    assert (job.status, job.tries) == ("pending", 0)

    before = trials()
    with working(path, "--trials", "1000", "--lease", "1s") as second:
        until(lambda: trials() >= before + 5, 60)
        (job,) = store.queue.jobs(10)
        assert job.worker is not None
        assert f"-{second.pid}-" in job.worker
        second.send_signal(signal.SIGKILL)
        assert second.wait(10) == -signal.SIGKILL
    before = trials()
    until(lambda: store.queue.has_work(HERE), 5)  # the lease lapses
    done = tuner("work", "--drain", "--replay", REPLAYED, "--trials", str(before + 5))
    assert done.return_value == 0
    (job,) = store.queue.jobs(10)
    (stored,) = store.answers()
    assert (job.run_id, job.tries, job.error) == (stored.run_id, 2, None)
    assert stored.settings["known"] == before
    assert trials() == before + 5
    assert [run.status for run in store.runs(10)] == ["done", "running", "interrupted"]


class TestLease:
    @pytest.fixture
    def job(self, store: Store) -> Job:
        store.queue.add(SOFTMAX, H200.id)
        job = store.queue.claim("me", HERE, 0.4)
        assert job is not None
        return job

    def test_it_is_renewed_until_somebody_else_has_the_job(self, store: Store, path: Path, job: Job) -> None:
        with Lease(store.queue, job, 0.4) as lease:
            sleep(0.8)
            assert not lease.is_lost
            assert store.queue.claim("you", HERE, 60) is None
            change(SQLite(path), "UPDATE jobs SET worker = 'you'")
            until(lambda: lease.is_lost, 2)

    def test_it_is_lost_when_the_database_stays_away(self, store: Store, job: Job) -> None:
        class Away(Queue):
            def renew(self, job: Job, lease_s: float) -> bool:
                raise StoreError("the database is away")

        away = Away(store._opened, store.unreadable)
        with Lease(away, job, 0.4) as lease:
            assert not lease.is_lost
            until(lambda: lease.is_lost, 2)
