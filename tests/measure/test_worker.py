"""The worker on torch's CPU: configs that are correct, wrong, or fail in other ways."""

from __future__ import annotations

import os
import random
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf, nan
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from contracts import SearchContract, Subject
from cpu_worker import HostClock, InProcess, on_cpu
from helpers import H200, toy

from tuner import catalog
from tuner.errors import KernelFault, MeasureError
from tuner.kernels.spec import Config, HostCall
from tuner.measure.clock import Run, Timer
from tuner.measure.gpu import GpuMeasurer
from tuner.measure.interleaved import RoundsSettings
from tuner.measure.messages import Measure, Recheck, Rounds, Stage, Task
from tuner.measure.worker import Worker, serve
from tuner.measure.worker_pool import WorkerPool
from tuner.records import VENDOR, CardState, Comparison, Evidence, Measurement, Outcome
from tuner.search import search
from tuner.search.space import feasible

KERNEL = catalog.resolve(toy("on_torch"))
PROBLEM = KERNEL.signature.problem({"N": 4096})


def config(fault: str = "none", block: int = 256) -> Config:
    return KERNEL.signature.config({"BLOCK": block, "FAULT": fault, "num_warps": 4, "num_stages": 1})


@pytest.fixture
def reports() -> list[Any]:
    return []


@pytest.fixture
def worker(reports: list[Any]) -> Worker:
    return on_cpu(Task(toy("on_torch"), PROBLEM, H200.limits), reports.append)


class TestMeasure:
    def test_a_correct_config_has_samples_and_facts(self, worker: Worker, reports: list[Any]) -> None:
        measured = worker.measure(Measure(config(), best_us=None, seed=1))
        assert measured.ok
        assert 10 <= len(measured.samples) <= 40
        assert measured.latency_us > 0
        assert measured.max_error == 0
        assert measured.tolerance == 2 * 2.0**-23
        assert (measured.registers, measured.spills, measured.shared_bytes) == (32, 0, 1024)
        assert reports == [Stage("launch"), Stage("check"), Stage("time")]

    def test_a_call_on_the_host_has_no_registers(self, worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=0))
        called: list[int] = []
        assert worker._first_launch((HostCall(called.append, ()),)) == {}
        assert called == [0]

    def test_a_much_slower_config_gets_three_samples(self, worker: Worker) -> None:
        assert len(worker.measure(Measure(config(), best_us=1e-6, seed=1)).samples) == 3

    @pytest.mark.parametrize(
        ("fault", "outcome", "stage", "error"),
        [
            (
                "half",
                Outcome.WRONG_RESULT,
                "check",
                "deviates from the reference by inf of a row's largest value; 2.38e-07 is allowed: out[",
            ),
            (
                "wrong",
                Outcome.WRONG_RESULT,
                "check",
                "deviates from the reference by 0.5 of a row's largest value; 2.38e-07 is allowed: out[0] is ",
            ),
            (
                "nothing",
                Outcome.WRONG_RESULT,
                "check",
                "deviates from the reference by inf of a row's largest value; 2.38e-07 is allowed: out[",
            ),
            ("raises", Outcome.ERROR, "launch", "ZeroDivisionError: a bug in the kernel"),
            ("out of memory", Outcome.OUT_OF_MEMORY, "launch", "CUDA out of memory"),
            ("out of resources", Outcome.OUT_OF_RESOURCES, "launch", "Required: 300000, Hardware limit: 232448"),
        ],
    )
    def test_a_failure_is_an_outcome(
        self, worker: Worker, fault: str, outcome: Outcome, stage: str, error: str
    ) -> None:
        measured = worker.measure(Measure(config(fault), best_us=None, seed=1))
        assert measured.outcome is outcome
        assert measured.stage == stage
        assert error in measured.error
        assert measured.samples == ()
        assert worker.measure(Measure(config(), best_us=None, seed=2)).ok

    def test_a_config_that_changes_its_input_is_wrong(self, worker: Worker) -> None:
        """Its result is compared with the reference of the original input."""
        assert worker.measure(Measure(config("spoils"), None, seed=1)).outcome is Outcome.WRONG_RESULT


class TestRecheck:
    def test_a_correct_config_passes_on_all_inputs(self, worker: Worker) -> None:
        evidence = worker.recheck(Recheck(config(), seed=1))
        assert evidence == Evidence(0.0, 2 * 2.0**-23, ("normal", "normal", "special"), 51)

    @pytest.mark.parametrize(
        ("fault", "error"),
        [
            ("changes its input", "writes to x, which is only read"),
            ("writes beside", "writes beside out"),
            ("leaves NaN", "a repeated launch gives another result, by inf of a row's largest value; "),
            ("denies NaN", "deviates from the reference by inf of a row's largest value; 2.38e-07 is allowed: out["),
        ],
    )
    def test_a_recheck_finds_what_one_check_does_not(self, worker: Worker, fault: str, error: str) -> None:
        failed = worker.recheck(Recheck(config(fault), seed=1))
        assert isinstance(failed, Measurement)
        assert failed.outcome is Outcome.WRONG_RESULT
        assert error in failed.error

    def test_a_write_beside_the_outputs_fails_no_other_config(self, worker: Worker) -> None:
        assert not worker.measure(Measure(config("writes beside"), None, seed=1)).ok
        assert worker.measure(Measure(config(), None, seed=1)).ok
        assert isinstance(worker.recheck(Recheck(config(), seed=1)), Evidence)

    def test_a_kernel_for_finite_values_gets_no_nan(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(catalog, "resolve", lambda reference: replace(KERNEL, finite_only=True))
        worker = on_cpu(Task(toy("on_torch"), PROBLEM, H200.limits), lambda message: None)
        assert isinstance(worker.recheck(Recheck(config("denies NaN"), seed=1)), Evidence)

    def test_a_recheck_finds_a_config_that_is_wrong_at_times(self, worker: Worker) -> None:
        """Wrong with p = 0.2, it passes four of five single checks."""
        random.seed(9)
        passed = [worker.measure(Measure(config("racy"), None, seed)).ok for seed in range(100)]
        assert 70 < sum(passed) < 90
        again = [worker.recheck(Recheck(config("racy"), seed)) for seed in range(100)]
        assert all(isinstance(each, Measurement) and each.outcome is Outcome.WRONG_RESULT for each in again)


class DisturbedMonitor:
    """A monitor whose first readings show a disturbance."""

    def __init__(self, disturbed: int, state: CardState) -> None:
        self._left, self._state = disturbed, state
        self.readings = 0

    def register_own_processes(self) -> None:
        pass

    def state(self) -> CardState:
        self.readings += 1
        return self._state if self.readings <= self._left else CardState(sm_mhz=1980)


class TestComparisonOnADisturbedCard:
    def compared(self, monitor: DisturbedMonitor, monitor_interval_s: float = 0.0) -> Comparison:
        settings = RoundsSettings(monitor_interval_s=monitor_interval_s, pause_s=0.0)
        worker = on_cpu(Task(toy("on_torch"), PROBLEM, H200.limits), lambda message: None, monitor, settings)
        comparison = worker.compare(Rounds((config(),), rounds=5, seconds=60.0, seed=0))
        assert isinstance(comparison, Comparison)
        return comparison

    @pytest.mark.parametrize("state", [CardState(throttled=("thermal",)), CardState(foreign=(4711,))])
    def test_disturbed_rounds_are_timed_again(self, state: CardState) -> None:
        monitor = DisturbedMonitor(3, state)
        comparison = self.compared(monitor)
        assert monitor.readings == 8
        assert comparison.states == (CardState(sm_mhz=1980),) * 5
        assert comparison.marks == ()

    def test_rounds_that_stay_disturbed_are_kept_and_marked(self) -> None:
        monitor = DisturbedMonitor(10_000, CardState(throttled=("hardware", "thermal"), foreign=(4711,)))
        comparison = self.compared(monitor)
        assert monitor.readings == 15
        assert comparison.marks == ("contended", "throttled")

    def test_short_rounds_share_a_reading(self) -> None:
        monitor = DisturbedMonitor(1, CardState(foreign=(4711,)))
        comparison = self.compared(monitor, monitor_interval_s=60.0)
        assert monitor.readings == 2
        assert comparison.states == (CardState(sm_mhz=1980),) * len(comparison.rounds)
        assert (len(comparison.rounds), comparison.marks) == (5, ())

    def test_a_power_cap_is_no_disturbance(self) -> None:
        monitor = DisturbedMonitor(10_000, CardState(throttled=("power_cap",)))
        comparison = self.compared(monitor)
        assert monitor.readings == 5
        assert comparison.marks == ()
        assert comparison.states[0].throttled == ("power_cap",)


class TestComparison:
    def test_each_round_has_each_contender(self, worker: Worker, reports: list[Any]) -> None:
        contenders = (config(block=64), config(block=128))
        comparison = worker.compare(Rounds(contenders, rounds=7, seconds=60.0, seed=3))
        assert isinstance(comparison, Comparison)
        assert comparison.contenders == (contenders[0].text, contenders[1].text, VENDOR)
        assert len(comparison.rounds) == 7
        assert all(latency > 0 for latencies in comparison.rounds for latency in latencies)
        orders = [tuple(stage.config for stage in reports[3 * n : 3 * n + 3]) for n in range(7)]
        assert all(set(order) == {*contenders, None} for order in orders)
        assert len(set(orders)) > 1

    def test_it_ends_when_its_time_is_up(self, worker: Worker) -> None:
        comparison = worker.compare(Rounds((config(),), rounds=10_000, seconds=0.05, seed=0))
        assert isinstance(comparison, Comparison)
        assert 1 <= len(comparison.rounds) < 10_000

    def test_a_contender_that_fails_is_named(self, worker: Worker) -> None:
        failed = worker.compare(Rounds((config(), config("raises")), rounds=3, seconds=60.0, seed=0))
        assert isinstance(failed, Measurement)
        assert failed.config == config("raises")
        assert failed.stage == "comparison"


def test_a_vendor_that_writes_elsewhere_is_rejected() -> None:
    """Its outputs stay poisoned, and a tolerance from them would pass any result."""
    problem = KERNEL.signature.problem({"N": 64, "vendor": "elsewhere"})
    with pytest.raises(
        KernelFault,
        match=r"on_torch.py line \d+: vendor and reference differ by more than rounding: out\[0\] is nan by vendor and "
        r"-?\d.* by reference .*; let vendor write to its operands, or correct the wrong one$",
    ):
        on_cpu(Task(toy("on_torch"), problem, H200.limits), lambda message: None)


def test_the_memory_of_the_task_before_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = Pipe()
    made: list[weakref.ref[Worker]] = []
    alive_when_made = []

    def make(task: Task, tell: Callable[[Any], None]) -> Worker:
        alive_when_made.append(sum(worker() is not None for worker in made))
        if len(made) == 2:
            raise MeasureError("enough")
        worker = on_cpu(task, tell)
        made.append(weakref.ref(worker))
        return worker

    for N in (4096, 64, 1):
        ours.send(Task(toy("on_torch"), KERNEL.signature.problem({"N": N}), H200.limits))
        ours.send(Measure(config(), None, seed=1))
    serve(theirs, make)
    assert alive_when_made == [0, 0, 0]


def test_a_racy_config_is_never_the_answer_of_thirty_searches() -> None:
    """Half of the space is wrong in one launch of five, and as fast as the rest: without a recheck, the answer of one
    search in three is wrong."""
    random.seed(9)
    task = Task(toy("on_torch"), KERNEL.signature.problem({"N": 64}), H200.limits)
    space = [config(fault, block) for fault in ("none", "racy") for block in (64, 128, 256, 512)]
    racy_finalists = 0
    for seed in range(30):
        result = search(space, config(), InProcess(on_cpu(task, lambda message: None)), seed=seed, sampler="random")
        assert result.verdict is not None
        answers = [result.verdict.config, *(tie.config for tie in result.verdict.ties)]
        assert {answer["FAULT"] for answer in answers} == {"none"}
        racy_finalists += sum("repeated launch" in m.error for m in result.measurements)
    assert racy_finalists > 30  # most passed the first check


class TestRoles:
    """A sum that starts from zero, a state that is read and written, and 8-bit floats."""

    @pytest.fixture
    def worker(self) -> Worker:
        problem = catalog.resolve(toy("roles")).signature.problem({"N": 120})
        return on_cpu(Task(toy("roles"), problem, H200.limits), lambda message: None)

    def config(self, warps: int) -> Config:
        return catalog.resolve(toy("roles")).signature.config({"num_warps": warps, "num_stages": 1})

    def test_operands_read_and_written_are_restored_before_each_launch(self, worker: Worker) -> None:
        before = {name: value.clone() for name, value in worker.loaded.tensors.items()}
        for warps in (1, 2, 4, 1):
            measured = worker.measure(Measure(self.config(warps), None, seed=0))
            assert measured.ok, measured.error
            assert float(worker.loaded.tensors["total"]) in (0.0, 60.0)
            for name in ("x", "state", "total"):
                worker.loaded.draw(0)
                assert torch.equal(worker.loaded.tensors[name], before[name])

    def test_eight_bit_floats_are_compared(self, worker: Worker) -> None:
        evidence = worker.recheck(Recheck(self.config(2), seed=1))
        assert isinstance(evidence, Evidence), evidence
        assert evidence.max_error == 0


class ScriptedClock(HostClock):
    """A clock with one latency that counts the samples."""

    def __init__(self, latency_us: float) -> None:
        super().__init__()
        self._latency_us = latency_us
        self.taken = 0

    def timer(self, runs: Sequence[Run], restore: Run | None = None) -> Timer:
        def timer(count: int) -> list[float]:
            self.taken += count
            return [self._latency_us] * count

        return timer


@pytest.mark.parametrize(("latency_us", "launches"), [(6.0, 3 + 40), (180.0, 3 + 22), (1000.0, 3 + 10), (200_000.0, 3)])
def test_a_slow_config_gets_fewer_samples(latency_us: float, launches: int) -> None:
    clock = ScriptedClock(latency_us)
    worker = Worker(Task(toy("on_torch"), PROBLEM, H200.limits), lambda message: None, device="cpu", clock=clock)
    assert worker.measure(Measure(config(), None, seed=1)).latency_us == latency_us
    assert clock.taken == launches
    assert clock.taken * latency_us < 1e6


@pytest.mark.parametrize(("best_us", "launches"), [(9.0, 3 + 40), (7.9, 3 + 10), (4.9, 3)])
def test_a_config_further_behind_gets_fewer_samples(best_us: float, launches: int) -> None:
    clock = ScriptedClock(10.0)
    worker = Worker(Task(toy("on_torch"), PROBLEM, H200.limits), lambda message: None, device="cpu", clock=clock)
    assert worker.measure(Measure(config(), best_us, seed=1)).latency_us == 10.0
    assert clock.taken == launches


class TestClockWithoutALatency:
    """A latency is finite and above 0, whatever a clock says."""

    def worker(self, latency_us: float) -> Worker:
        clock = ScriptedClock(latency_us)
        return Worker(Task(toy("on_torch"), PROBLEM, H200.limits), lambda message: None, device="cpu", clock=clock)

    @pytest.mark.parametrize("latency_us", [0.0, -1.0, nan, inf])
    @pytest.mark.parametrize("best_us", [None, 10.0])
    def test_a_config_is_a_failed_trial(self, latency_us: float, best_us: float | None) -> None:
        failed = self.worker(latency_us).measure(Measure(config(), best_us, seed=1))
        assert (failed.outcome, failed.stage, failed.samples) == (Outcome.ERROR, "time", ())
        assert failed.error == f"ValueError: a latency is finite and above 0, not {latency_us:g} us"
        assert failed.max_error == 0

    def test_a_contender_fails_and_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(catalog, "resolve", lambda reference: replace(KERNEL, vendor=None))
        failed = self.worker(nan).compare(Rounds((config(),), rounds=5, seconds=60.0, seed=2))
        assert isinstance(failed, Measurement)
        assert (failed.config, failed.outcome, failed.stage) == (config(), Outcome.ERROR, "comparison")

    @pytest.mark.parametrize("latency_us", [0.0, -1.0, nan, inf])
    def test_the_rounds_go_on_without_a_latency_of_the_vendor(self, latency_us: float) -> None:
        found = self.worker(latency_us).compare(Rounds((), rounds=5, seconds=60.0, seed=2))
        assert isinstance(found, Comparison)
        assert (found.contenders, len(found.rounds), found.timed) == ((VENDOR,), 5, ())


def test_launches_use_all_operand_sets() -> None:
    """The launches of a graph use sets of operands in turn; all hold the inputs."""
    clock = HostClock(copies=3)
    worker = Worker(Task(toy("on_torch"), PROBLEM, H200.limits), lambda message: None, device="cpu", clock=clock)
    assert len({values["x"].data_ptr() for values in worker.loaded.sets}) == 3
    assert all(torch.equal(values["x"], worker.loaded.sets[0]["x"]) for values in worker.loaded.sets)
    assert worker.measure(Measure(config(), None, seed=1)).ok
    assert all(torch.equal(values["out"], 2 * values["x"]) for values in worker.loaded.sets)


def test_operands_written_in_place_are_restored_before_each_launch() -> None:
    from tuner.measure import tensors

    halve = catalog.resolve(toy("halve"))
    problem = halve.signature.problem({"N": 100})
    operands = halve.operands(problem)
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=1)
    before = values["x"].clone()
    HostClock().timer([lambda: values["x"].div_(2)], tensors.restorer(operands, values))(5)
    assert bool((values["x"] == before / 2).all())


@pytest.fixture(scope="module")
def workers() -> Iterator[WorkerPool]:
    """Make one worker for all searches, since its start takes longer than they do."""
    made = WorkerPool(0, "cpu_worker")
    yield made
    made.close()


class TestSearchOnCpu(SearchContract):
    """A search with real processes: pool, worker, pipes, recheck and comparison."""

    @pytest.fixture
    def subject(self, workers: WorkerPool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
        space = [c for c in feasible(KERNEL, PROBLEM, H200.limits) if c["FAULT"] in ("none", "wrong", "raises")]
        return Subject(
            space,
            KERNEL.default_config(PROBLEM, H200.limits),
            lambda: GpuMeasurer(toy("on_torch"), PROBLEM, H200.limits, jobs=2, workers=workers, spare=False),
        )

    @pytest.mark.usefixtures("forked_helpers")
    def test_a_vendor_that_writes_elsewhere_ends_the_search(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        problem = KERNEL.signature.problem({"N": 64, "vendor": "elsewhere"})
        measurer = GpuMeasurer(toy("on_torch"), problem, H200.limits, jobs=1, worker="cpu_worker")
        try:
            measurer.submit(config())
            with pytest.raises(
                KernelFault, match=r"vendor and reference differ by more than rounding: out\[0\] is nan"
            ):
                measurer.next(timeout_s=60)
        finally:
            measurer.close()
