"""The GPU measurer with a real compile pool, real child processes, and a scripted worker without a card."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

import pytest
from helpers import H200, alive, toy, until
from scripted_worker import latency_us

from tuner import catalog
from tuner.errors import MeasureError
from tuner.kernels.spec import Config
from tuner.measure.compile_pool import CompilePool
from tuner.measure.deadline import CompileSettings
from tuner.measure.gpu import GpuMeasurer
from tuner.measure.lock import GpuLock
from tuner.measure.worker_pool import WorkerPool, visible_device
from tuner.measure.worker_session import WorkerSettings
from tuner.records import VENDOR, Comparison, Evidence, Measurement, Outcome
from tuner.records.progress import InProgress
from tuner.tuning.heartbeat import ShowsProgress

SIGNATURE = catalog.resolve(toy("faulty")).signature
RIGHT = Evidence(0.0, 0.0, ("normal",), 17)


@pytest.fixture(autouse=True)
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_helpers: None) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("FAULTY_PIDS", str(tmp_path / "pids"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)


@pytest.fixture
def started_helpers(environment: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the processes of this test as users' are, as children of this one."""
    monkeypatch.setattr("tuner.measure.processes.subprocess", subprocess)


@contextmanager
def measurer(
    N: int = 1000, *, compile_s: float = 30.0, stage_s: float = 10.0, **arguments: Any
) -> Iterator[GpuMeasurer]:
    made = GpuMeasurer(
        toy("faulty"),
        SIGNATURE.problem({"N": N}),
        H200.limits,
        jobs=2,
        worker="scripted_worker",
        compile_settings=CompileSettings(compile_s),
        settings=WorkerSettings(stage_s=stage_s),
        **arguments,
    )
    try:
        yield made
    finally:
        made.close()


def config(fault: str, block: int = 256, warps: int = 1) -> Config:
    return SIGNATURE.config({"BLOCK": block, "FAULT": fault, "num_warps": warps, "num_stages": 1})


def measured(gpu: GpuMeasurer, configs: list[Config]) -> dict[Config, Measurement]:
    for each in configs:
        gpu.submit(each)
    found = [gpu.next(timeout_s=60) for _ in configs]
    return {measurement.config: measurement for measurement in found if measurement is not None}


def test_what_compiles_is_measured_and_what_does_not_fails() -> None:
    with measurer() as gpu:
        found = measured(gpu, [config("none"), config("refused"), config("none", block=512), config("wrong")])
    assert found[config("none")].samples == (latency_us(config("none")),) * 10
    assert found[config("none")].compile_s is not None
    assert found[config("refused")].outcome is Outcome.COMPILE_ERROR
    assert found[config("refused")].stage == "compile"
    assert found[config("none", block=512)].ok
    assert found[config("wrong")].outcome is Outcome.WRONG_RESULT


def test_it_says_what_it_works_on() -> None:
    with measurer() as gpu:
        for block in (256, 512):
            gpu.submit(config("none", block))
        assert gpu.in_progress == InProgress(2, 0, None)
        for _ in range(2):
            assert gpu.next(timeout_s=60) is not None
        assert gpu.in_progress == InProgress(0, 0, None)
        assert isinstance(gpu, ShowsProgress)


@pytest.mark.usefixtures("started_helpers")
def test_a_dead_worker_fails_its_config() -> None:
    with measurer() as gpu:
        found = measured(gpu, [config("none"), config("wild"), config("none", block=512)])
    wild = found[config("wild")]
    assert wild.outcome is Outcome.CRASHED
    assert wild.stage == "launch"
    assert wild.error == "the worker process died: signal SIGABRT\nan illegal memory access was encountered"
    assert found[config("none")].ok
    assert found[config("none", block=512)].ok


def test_a_worker_that_hangs_is_killed_at_the_deadline() -> None:
    with measurer(stage_s=1.0) as gpu:
        started = monotonic()
        found = measured(gpu, [config("endless"), config("none")])
        assert monotonic() - started < 30
    assert found[config("endless")].outcome is Outcome.TIMEOUT
    assert found[config("endless")].error == "stage launch took longer than its deadline; the worker process was killed"
    assert found[config("none")].ok


def test_a_compile_that_hangs_does_not_hold_up_the_others() -> None:
    with measurer(compile_s=3.0) as gpu:
        found = measured(gpu, [config("sleeps"), config("none"), config("none", block=512)])
    assert found[config("sleeps")].outcome is Outcome.TIMEOUT
    assert found[config("sleeps")].stage == "compile"
    assert found[config("none")].ok
    assert found[config("none", block=512)].ok


def test_a_compile_that_ended_in_time_is_not_late_while_its_result_waits() -> None:
    """The pool's server is stopped, as while its results wait to be read; its forks run on."""
    with measurer(compile_s=3.0) as gpu:
        assert measured(gpu, [config("none")])[config("none")].ok
        for block in (128, 512, 1024):
            gpu.submit(config("none", block=block))
        sleep(0.3)
        os.kill(gpu._pool.pid, signal.SIGSTOP)
        sleep(4)
        os.kill(gpu._pool.pid, signal.SIGCONT)
        found = [gpu.next(timeout_s=60) for _ in range(3)]
    assert [measurement is not None and measurement.outcome for measurement in found] == [Outcome.OK] * 3


@pytest.mark.usefixtures("started_helpers")
def test_a_worker_killed_while_idle_is_replaced() -> None:
    with measurer() as gpu:
        assert measured(gpu, [config("none")])[config("none")].ok
        os.kill(gpu._worker().process.pid, signal.SIGKILL)
        assert measured(gpu, [config("none", block=512)])[config("none", block=512)].ok


@pytest.mark.parametrize("fault", ["killed once", "fills memory once"])
def test_a_failure_that_another_process_may_cause_is_retried_once(fault: str) -> None:
    with measurer() as gpu:
        found = measured(gpu, [config("none"), config(fault), config("none", block=512)])
    assert all(measurement.ok for measurement in found.values())


def test_a_config_that_fills_the_memory_of_a_new_worker_too_fails() -> None:
    with measurer() as gpu:
        found = measured(gpu, [config("none"), config("fills memory"), config("none", block=512)])
    assert found[config("fills memory")].outcome is Outcome.OUT_OF_MEMORY
    assert [m.ok for m in found.values()].count(True) == 2


def test_the_spare_replaces_a_crashed_worker() -> None:
    """The spare has its imports done by then."""
    with measurer() as gpu:
        measured(gpu, [config("none")])
        spare = gpu._workers.waiting
        assert spare is not None
        measured(gpu, [config("wild")])
        assert gpu._worker().process is spare
        assert measured(gpu, [config("none", block=512)])[config("none", block=512)].ok
        assert gpu._workers.waiting not in (None, spare)


def test_a_dead_spare_is_not_used() -> None:
    with measurer() as gpu:
        measured(gpu, [config("none")])
        assert gpu._workers.waiting is not None
        os.kill(gpu._workers.waiting.pid, signal.SIGKILL)
        until(lambda: gpu._workers.waiting is None or not gpu._workers.waiting.runs)
        found = measured(gpu, [config("wild"), config("none", block=512)])
        assert found[config("none", block=512)].ok


@pytest.mark.usefixtures("started_helpers")
def test_a_worker_that_cannot_start_ends_the_search() -> None:
    with measurer(N=13) as gpu:
        gpu.submit(config("none"))
        with pytest.raises(
            MeasureError, match=r"the GPU worker did not start: the worker process died: exit code 1\nno such device"
        ):
            gpu.next(timeout_s=60)


def test_no_result_in_time_is_none() -> None:
    with measurer() as gpu:
        assert gpu.next(timeout_s=0.1) is None


def test_comparison_and_recheck_wait_for_the_worker() -> None:
    with measurer() as gpu:
        gpu.submit(config("none"))
        assert gpu.next(timeout_s=60) is not None
        assert gpu.recheck([config("none")], seed=1) == [RIGHT]
        comparison = gpu.compare([config("none"), config("none", block=512)], rounds=3, seconds=10.0, seed=0)
    assert isinstance(comparison, Comparison)
    assert comparison.contenders == (config("none").text, config("none", block=512).text, VENDOR)
    assert comparison.of(VENDOR) == (150.0, 150.0, 150.0)


def test_a_contender_that_ends_the_worker_is_named() -> None:
    with measurer() as gpu:
        failed = gpu.compare(
            [config("none"), config("dies in a comparison"), config("none", block=512)], 3, 10.0, seed=0
        )
        again = gpu.compare([config("none"), config("none", block=512)], 3, 10.0, seed=0)
    assert isinstance(failed, Measurement)
    assert failed.config == config("dies in a comparison")
    assert failed.outcome is Outcome.CRASHED
    assert failed.stage == "comparison"
    assert isinstance(again, Comparison)


def test_a_context_lost_in_a_recheck_fails_that_config_only() -> None:
    """The worker reports it and ends itself; the next request goes to a new one."""
    with measurer() as gpu:
        (lost,) = gpu.recheck([config("loses its context")], seed=1)
        assert isinstance(lost, Measurement)
        assert lost.config == config("loses its context")
        assert lost.outcome is Outcome.CRASHED
        assert gpu.recheck([config("none")], seed=1) == [RIGHT]


class TestSettle:
    def test_the_config_in_progress_ends_and_those_that_wait_are_dropped(self) -> None:
        with measurer() as gpu:
            assert measured(gpu, [config("none")])[config("none")].ok
            for block in (64, 128, 512, 1024):
                gpu.submit(config("none", block=block))
            ended = gpu.settle(timeout_s=5.0)
            assert {measurement.config["BLOCK"] for measurement in ended} <= {64, 128, 512, 1024}
            assert gpu.next(timeout_s=0.5) is None
            assert gpu.recheck([config("none")], seed=1) == [RIGHT]

    def test_neither_an_endless_compile_nor_an_endless_kernel_delays_it(self, tmp_path: Path) -> None:
        with measurer(compile_s=600.0, stage_s=600.0) as gpu:
            assert measured(gpu, [config("none")])[config("none")].ok
            gpu.submit(config("sleeps"))
            gpu.submit(config("endless"))
            while not (tmp_path / "pids").exists() or gpu._measuring is None:
                assert gpu.next(timeout_s=0.1) is None
            started = monotonic()
            assert gpu.settle(timeout_s=0.5) == []
            assert monotonic() - started < 3
            until(lambda: not alive(int((tmp_path / "pids").read_text())))
            assert gpu.recheck([config("none")], seed=1) == [RIGHT]


@pytest.mark.usefixtures("started_helpers")
def test_closing_while_compiling_leaves_no_compiler(tmp_path: Path) -> None:
    """Unread results are in the pipe when it closes."""
    with measurer(compile_s=600.0) as gpu:
        gpu.submit(config("sleeps"))
        gpu.submit(config("none"))
        gpu.submit(config("refused"))
        end = monotonic() + 30
        while not (tmp_path / "pids").exists() or not gpu._pool.pipe.poll(0.1):
            assert monotonic() < end
        compiler = int((tmp_path / "pids").read_text())
        assert os.getpriority(os.PRIO_PROCESS, compiler) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 5)
        assert os.getsid(compiler) == os.getsid(gpu._pool.pid)
    until(lambda: not alive(compiler))


def test_a_problem_beyond_the_cards_memory_is_a_measure_error() -> None:
    with measurer(N=14) as gpu:
        gpu.submit(config("none"))
        with pytest.raises(MeasureError, match=r"^the tensors of faulty N=14 dtype=fp32 do not fit the memory"):
            gpu.next(timeout_s=60)


def test_one_search_at_a_time_on_a_card(tmp_path: Path) -> None:
    """The second waits, names the first, and continues once the first has ended."""
    path = tmp_path / "card.lock"
    story = f"""
import sys, time
from pathlib import Path
from tuner.measure.lock import GpuLock
lock = GpuLock(Path({str(path)!r}), "gemm M=1", lambda line: print(line, flush=True))
print("in", flush=True)
time.sleep(600)
"""
    first = subprocess.Popen([sys.executable, "-P", "-c", story], stdout=subprocess.PIPE, text=True)
    second = None
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == "in\n"
        second = subprocess.Popen([sys.executable, "-P", "-c", story], stdout=subprocess.PIPE, text=True)
        assert second.stdout is not None
        assert second.stdout.readline() == f"Waiting for process {first.pid} (gemm M=1), which measures on this GPU.\n"
        first.kill()
        assert second.stdout.readline() == "in\n"
    finally:
        for running in filter(None, (first, second)):
            running.kill()
            running.communicate()
    said: list[str] = []
    GpuLock(path, "gemm M=1", said.append).release()
    GpuLock(path, "gemm M=1", said.append).release()
    assert said == []


def test_a_worker_without_a_crash_serves_the_next_problem() -> None:
    """A suite of problems starts no worker for each."""
    workers = WorkerPool(0, "scripted_worker")
    served = []
    for fault in ("none", "wild", "none"):
        with measurer(workers=workers, spare=False) as gpu:
            served.append(gpu._worker().process.pid)
            measured(gpu, [config(fault)])
            gpu.compare([config("none")], rounds=1, seconds=1.0, seed=0)
    assert served[0] == served[1] != served[2]
    assert workers.waiting is not None
    assert alive(served[2])
    workers.close()
    assert not alive(served[2])


def test_a_fresh_worker_is_kept_rather_than_one_that_served() -> None:
    workers = WorkerPool(0, "scripted_worker")
    with measurer(workers=workers) as gpu:
        measured(gpu, [config("none")])
        fresh = workers.waiting
    assert workers.take() is fresh is not None
    fresh.kill()


@pytest.mark.usefixtures("started_helpers")
def test_closing_leaves_no_process() -> None:
    with measurer() as gpu:
        measured(gpu, [config("none")])
        assert gpu._workers.waiting is not None
        children = [gpu._pool.pid, gpu._worker().process.pid, gpu._workers.waiting.pid]
    for pid in children:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_the_child_sees_one_card_of_those_the_caller_sees(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert visible_device(1) == "1"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert visible_device(1) == "7"


def test_the_next_search_compiles_while_the_one_before_compares() -> None:
    """They use one pool and one worker in turn."""
    compilers, workers = CompilePool(jobs=2), WorkerPool(0, "scripted_worker")

    def search(N: int) -> GpuMeasurer:
        problem = SIGNATURE.problem({"N": N})
        return GpuMeasurer(toy("faulty"), problem, H200.limits, compilers=compilers, workers=workers, spare=False)

    ours = search(1000)
    measured(ours, [config("none")])
    pool, worker = ours._pool, ours._worker().process
    ours.settle(timeout_s=5.0)
    other = search(2000)
    assert other._pool is pool
    assert other.waits_for_device
    assert not ours.waits_for_device
    other.submit(config("refused"))
    other.submit(config("none", block=512))
    until(lambda: pool.pipe.poll())  # it compiles without a worker
    assert isinstance(ours.compare([config("none")], rounds=1, seconds=1.0, seed=0), Comparison)
    ours.close()
    found = {measurement.config: measurement for measurement in filter(None, [other.next(60), other.next(60)])}
    assert found[config("refused")].outcome is Outcome.COMPILE_ERROR
    assert found[config("none", block=512)].ok
    assert other._worker().process is worker
    assert not other.waits_for_device
    other.close()
    compilers.close()
    workers.close()
    assert not alive(pool.pid)
    assert not alive(worker.pid)


def test_a_worker_that_cannot_start_blocks_no_other_measurer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    compilers, workers, refused = CompilePool(jobs=1), WorkerPool(1, "scripted_worker"), list[IndexError]()

    def start() -> None:
        try:
            GpuMeasurer(
                toy("faulty"), SIGNATURE.problem({"N": 1}), H200.limits, compilers=compilers, workers=workers
            ).close()
        except IndexError as error:
            refused.append(error)

    for _ in range(2):
        thread = Thread(target=start, daemon=True)
        thread.start()
        thread.join(20)
    assert len(refused) == 2
    compilers.close()
