"""The worker's own part, on torch's CPU: what it makes of configs that are right, wrong, or fail in their own way."""

from __future__ import annotations

import os
import random
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from multiprocessing import Pipe
from pathlib import Path
from typing import Any

import pytest
import torch
from contracts import SearchContract, Subject
from cpu_worker import HostClock, on_cpu
from helpers import H200, toy

from tuner import catalog
from tuner.errors import MeasureError
from tuner.kernels.spec import Config
from tuner.measure.clock import Run, Timer
from tuner.measure.gpu import GpuMeasurer, WorkerPool
from tuner.measure.messages import Measure, Recheck, Rounds, Stage, Task
from tuner.measure.worker import Worker, serve
from tuner.records import VENDOR, CardState, Comparison, Evidence, Measurement, Outcome
from tuner.search.loop import search
from tuner.search.space import feasible

KERNEL = catalog.resolve(toy("on_torch"))
PROBLEM = KERNEL.signature.problem({"N": 4096})


def config(fault: str = "none", block: int = 256) -> Config:
    return KERNEL.signature.config({"BLOCK": block, "FAULT": fault, "num_warps": 4, "num_stages": 1})


@pytest.fixture
def told() -> list[Any]:
    return []


@pytest.fixture
def worker(told: list[Any]) -> Worker:
    return on_cpu(Task(toy("on_torch"), PROBLEM, H200.limits), told.append)


class TestMeasure:
    def test_a_right_config_has_all_its_facts(self, worker: Worker, told: list[Any]) -> None:
        measured = worker.measure(Measure(config(), best_us=None, seed=1))
        assert measured.ok
        assert 10 <= len(measured.samples) <= 40
        assert measured.latency_us > 0
        assert measured.max_error == 0
        assert measured.tolerance == 2 * 2.0**-23
        assert (measured.registers, measured.spills, measured.shared_bytes) == (32, 0, 1024)
        assert told == [Stage("launch"), Stage("check"), Stage("time")]

    def test_a_beaten_config_gets_a_look(self, worker: Worker) -> None:
        assert len(worker.measure(Measure(config(), best_us=1e-6, seed=1)).samples) == 3

    @pytest.mark.parametrize(
        ("fault", "outcome", "stage", "error"),
        [
            ("half", Outcome.WRONG_RESULT, "check", "deviates from the reference by inf of its largest value"),
            ("wrong", Outcome.WRONG_RESULT, "check", "deviates from the reference by 0.5 of its largest value"),
            ("nothing", Outcome.WRONG_RESULT, "check", "deviates from the reference by inf of its largest value"),
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

    def test_an_input_that_a_config_spoils_makes_it_wrong(self, worker: Worker) -> None:
        """It is compared with the reference of what it was given, not of what it left."""
        assert worker.measure(Measure(config("spoils"), None, seed=1)).outcome is Outcome.WRONG_RESULT


class TestRecheck:
    def test_a_right_config_is_right_on_every_input(self, worker: Worker) -> None:
        evidence = worker.recheck(Recheck(config(), seed=1))
        assert evidence == Evidence(0.0, 2 * 2.0**-23, ("normal", "normal", "special"), 51)

    @pytest.mark.parametrize(
        ("fault", "error"),
        [
            ("changes its input", "it writes to x, which it may only read"),
            ("writes beside", "it writes beside its outputs"),
            ("denies NaN", "deviates from the reference by inf of its largest value"),
        ],
    )
    def test_what_one_comparison_does_not_show(self, worker: Worker, fault: str, error: str) -> None:
        failed = worker.recheck(Recheck(config(fault), seed=1))
        assert isinstance(failed, Measurement)
        assert failed.outcome is Outcome.WRONG_RESULT
        assert error in failed.error

    def test_who_writes_beside_its_outputs_spoils_nobody_elses(self, worker: Worker) -> None:
        assert not worker.measure(Measure(config("writes beside"), None, seed=1)).ok
        assert worker.measure(Measure(config(), None, seed=1)).ok
        assert isinstance(worker.recheck(Recheck(config(), seed=1)), Evidence)

    def test_a_kernel_that_promises_nothing_for_nan_is_not_asked(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(catalog, "resolve", lambda reference: replace(KERNEL, finite_only=True))
        worker = on_cpu(Task(toy("on_torch"), PROBLEM, H200.limits), lambda message: None)
        assert isinstance(worker.recheck(Recheck(config("denies NaN"), seed=1)), Evidence)

    def test_one_that_is_wrong_at_times_is_found_every_time(self, worker: Worker) -> None:
        """Wrong with p = 0.2: it passes a single check four times out of five."""
        random.seed(9)
        passed = [worker.measure(Measure(config("racy"), None, seed)).ok for seed in range(100)]
        assert 70 < sum(passed) < 90
        again = [worker.recheck(Recheck(config("racy"), seed)) for seed in range(100)]
        assert all(isinstance(each, Measurement) and each.outcome is Outcome.WRONG_RESULT for each in again)


class Hot:
    """A card that is disturbed in its first looks."""

    def __init__(self, disturbed: int, state: CardState) -> None:
        self._left, self._state = disturbed, state
        self.looks = 0

    def claim(self) -> None:
        pass

    def state(self) -> CardState:
        self.looks += 1
        return self._state if self.looks <= self._left else CardState(sm_mhz=1980)


class TestDuelOnADisturbedCard:
    @pytest.fixture(autouse=True)
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tuner.measure.worker._PAUSE_S", 0.0)
        monkeypatch.setattr("tuner.measure.worker._LOOK_EVERY_S", 0.0)

    def compared(self, card: Hot) -> Comparison:
        worker = on_cpu(Task(toy("on_torch"), PROBLEM, H200.limits), lambda message: None, card)
        comparison = worker.compare(Rounds((config(),), rounds=5, seconds=60.0, seed=0))
        assert isinstance(comparison, Comparison)
        return comparison

    @pytest.mark.parametrize("state", [CardState(throttled=("thermal",)), CardState(foreign=(4711,))])
    def test_disturbed_rounds_are_done_again(self, state: CardState) -> None:
        card = Hot(3, state)
        comparison = self.compared(card)
        assert card.looks == 8
        assert comparison.states == (CardState(sm_mhz=1980),) * 5
        assert comparison.marks == ()

    def test_what_stays_disturbed_is_kept_and_marked(self) -> None:
        card = Hot(10_000, CardState(throttled=("hardware", "thermal"), foreign=(4711,)))
        comparison = self.compared(card)
        assert card.looks == 15
        assert comparison.marks == ("contended", "throttled")

    def test_short_rounds_share_a_look_and_its_fate(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("tuner.measure.worker._LOOK_EVERY_S", 60.0)
        card = Hot(1, CardState(foreign=(4711,)))
        comparison = self.compared(card)
        assert card.looks == 2
        assert comparison.states == (CardState(sm_mhz=1980),) * len(comparison.rounds)
        assert (len(comparison.rounds), comparison.marks) == (5, ())

    def test_a_power_cap_is_how_big_kernels_run(self) -> None:
        card = Hot(10_000, CardState(throttled=("power_cap",)))
        comparison = self.compared(card)
        assert card.looks == 5
        assert comparison.marks == ()
        assert comparison.states[0].throttled == ("power_cap",)


class TestDuel:
    def test_every_round_has_every_contender(self, worker: Worker, told: list[Any]) -> None:
        contenders = (config(block=64), config(block=128))
        comparison = worker.compare(Rounds(contenders, rounds=7, seconds=60.0, seed=3))
        assert isinstance(comparison, Comparison)
        assert comparison.contenders == (contenders[0].text, contenders[1].text, VENDOR)
        assert len(comparison.rounds) == 7
        assert all(latency > 0 for latencies in comparison.rounds for latency in latencies)
        orders = [tuple(stage.config for stage in told[3 * n : 3 * n + 3]) for n in range(7)]
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


def test_a_vendor_that_writes_elsewhere_is_refused() -> None:
    """Its outputs stay poisoned: with such a tolerance everything would pass."""
    problem = KERNEL.signature.problem({"N": 64, "vendor": "elsewhere"})
    with pytest.raises(MeasureError, match="the vendor's own result of on_torch is wrong, or it is not written to out"):
        on_cpu(Task(toy("on_torch"), problem, H200.limits), lambda message: None)


def test_the_next_task_finds_the_memory_of_the_one_before(monkeypatch: pytest.MonkeyPatch) -> None:
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


class InProcess:
    """The real worker as a measurer, without the processes: for many small searches."""

    def __init__(self) -> None:
        self._worker = on_cpu(
            Task(toy("on_torch"), KERNEL.signature.problem({"N": 64}), H200.limits), lambda message: None
        )
        self._waiting: deque[Config] = deque()
        self._seed = 0

    @property
    def capacity(self) -> int:
        return 4

    @property
    def waits_for_device(self) -> bool:
        return False

    def submit(self, config: Config) -> None:
        self._waiting.append(config)

    def next(self, timeout_s: float) -> Measurement | None:
        self._seed += 1
        return self._worker.measure(Measure(self._waiting.popleft(), None, self._seed)) if self._waiting else None

    def settle(self, timeout_s: float) -> Sequence[Measurement]:
        return ()

    def recheck(self, configs: Sequence[Config], seed: int) -> Sequence[Evidence | Measurement]:
        return [self._worker.recheck(Recheck(config, seed)) for config in configs]

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        return self._worker.compare(Rounds(tuple(configs), rounds, seconds, seed))

    def close(self) -> None:
        pass


def test_a_racy_config_is_never_the_answer_of_a_hundred_searches() -> None:
    """Half of the space is wrong in one launch of five, and no slower than the rest."""
    random.seed(9)
    space = [config(fault, block) for fault in ("none", "racy") for block in (64, 128, 256, 512)]
    racy_finalists = 0
    for seed in range(100):
        result = search(space, config(), InProcess(), seed=seed, sampler="random")
        assert result.verdict is not None
        answers = [result.verdict.config, *(tie.config for tie in result.verdict.ties)]
        assert {answer["FAULT"] for answer in answers} == {"none"}
        racy_finalists += sum("again" in m.error for m in result.measurements)
    assert racy_finalists > 100  # most of them got through the first check


class TestRoles:
    """A sum that must start from zero, a state that must start from what it was, 8-bit floats that are compared."""

    @pytest.fixture
    def worker(self) -> Worker:
        problem = catalog.resolve(toy("roles")).signature.problem({"N": 120})
        return on_cpu(Task(toy("roles"), problem, H200.limits), lambda message: None)

    def config(self, warps: int) -> Config:
        return catalog.resolve(toy("roles")).signature.config({"num_warps": warps, "num_stages": 1})

    def test_what_is_added_to_starts_anew_in_every_launch(self, worker: Worker) -> None:
        before = {name: value.clone() for name, value in worker._tensors.items()}
        for warps in (1, 2, 4, 1):
            measured = worker.measure(Measure(self.config(warps), None, seed=0))
            assert measured.ok, measured.error
            assert float(worker._tensors["total"]) in (0.0, 60.0)
            for name in ("x", "state", "total"):
                worker._draw(0)
                assert torch.equal(worker._tensors[name], before[name])

    def test_eight_bit_floats_are_compared(self, worker: Worker) -> None:
        evidence = worker.recheck(Recheck(self.config(2), seed=1))
        assert isinstance(evidence, Evidence), evidence
        assert evidence.max_error == 0


class Scripted(HostClock):
    """Says what a kernel takes, and counts its launches."""

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
def test_a_slow_config_keeps_to_its_time(latency_us: float, launches: int) -> None:
    clock = Scripted(latency_us)
    worker = Worker(Task(toy("on_torch"), PROBLEM, H200.limits), lambda message: None, device="cpu", clock=clock)
    assert worker.measure(Measure(config(), None, seed=1)).latency_us == latency_us
    assert clock.taken == launches
    assert clock.taken * latency_us < 1e6


@pytest.mark.parametrize(("best_us", "launches"), [(9.0, 3 + 40), (7.9, 3 + 10), (4.9, 3)])
def test_the_farther_behind_a_config_is_the_less_it_is_launched(best_us: float, launches: int) -> None:
    clock = Scripted(10.0)
    worker = Worker(Task(toy("on_torch"), PROBLEM, H200.limits), lambda message: None, device="cpu", clock=clock)
    assert worker.measure(Measure(config(), best_us, seed=1)).latency_us == 10.0
    assert clock.taken == launches


def test_every_set_of_operands_is_launched_on() -> None:
    """A graph's launches go round sets of operands, which all hold the inputs."""
    clock = HostClock(copies=3)
    worker = Worker(Task(toy("on_torch"), PROBLEM, H200.limits), lambda message: None, device="cpu", clock=clock)
    assert len({values["x"].data_ptr() for values in worker._sets}) == 3
    assert all(torch.equal(values["x"], worker._sets[0]["x"]) for values in worker._sets)
    assert worker.measure(Measure(config(), None, seed=1)).ok
    assert all(torch.equal(values["out"], 2 * values["x"]) for values in worker._sets)


def test_what_is_written_in_place_is_restored_before_every_launch() -> None:
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
    """One serves all searches: to start it takes longer than they do."""
    made = WorkerPool(0, "cpu_worker")
    yield made
    made.close()


class TestSearchOnCpu(SearchContract):
    """The whole way of a search on a GPU, with real processes: pool, worker, pipes, recheck, duel."""

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

    def test_a_vendor_that_writes_elsewhere_ends_the_search_in_a_sentence(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
        problem = KERNEL.signature.problem({"N": 64, "vendor": "elsewhere"})
        measurer = GpuMeasurer(toy("on_torch"), problem, H200.limits, jobs=1, worker="cpu_worker")
        try:
            measurer.submit(config())
            with pytest.raises(MeasureError, match=r"^the vendor's own result of on_torch is wrong"):
                measurer.next(timeout_s=60)
        finally:
            measurer.close()
