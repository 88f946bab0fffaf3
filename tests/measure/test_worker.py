"""The worker's own part, on torch's CPU: what it makes of configs that are right, wrong, or fail in their own way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from contracts import SearchContract, Subject
from cpu_worker import HostClock, on_cpu
from helpers import H200, toy

from tuner import catalog
from tuner.errors import MeasureError
from tuner.kernels.spec import Config
from tuner.measure.gpu import GpuMeasurer
from tuner.measure.messages import Measure, Recheck, Rounds, Stage, Task
from tuner.measure.worker import Worker
from tuner.records import VENDOR, Duel, Measurement, Outcome
from tuner.space import feasible

KERNEL = catalog.resolve(toy("on_torch"))
PROBLEM = KERNEL.signature.problem({"N": 4096})


def config(fault: str = "none", block: int = 256) -> Config:
    return KERNEL.signature.config({"BLOCK": block, "FAULT": fault, "num_warps": 4, "num_stages": 1})


@pytest.fixture
def told() -> list[Any]:
    return []


@pytest.fixture
def worker(told: list[Any]) -> Worker:
    return on_cpu(Task(toy("on_torch"), PROBLEM), told.append)


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
        assert worker.recheck(Recheck(config(), (1, 2, 3))) == 0.0

    def test_a09_one_that_is_wrong_at_times_is_found(self, worker: Worker) -> None:
        failed = worker.recheck(Recheck(config("wrong at times"), tuple(range(12))))
        assert isinstance(failed, Measurement)
        assert failed.outcome is Outcome.WRONG_RESULT


class TestDuel:
    def test_every_round_has_every_contender(self, worker: Worker, told: list[Any]) -> None:
        contenders = (config(block=64), config(block=128))
        duel = worker.duel(Rounds(contenders, rounds=7, seconds=60.0, seed=3))
        assert isinstance(duel, Duel)
        assert duel.contenders == (contenders[0].text, contenders[1].text, VENDOR)
        assert len(duel.rounds) == 7
        assert all(latency > 0 for latencies in duel.rounds for latency in latencies)
        orders = [tuple(stage.config for stage in told[3 * n : 3 * n + 3]) for n in range(7)]
        assert all(set(order) == {*contenders, None} for order in orders)
        assert len(set(orders)) > 1

    def test_it_ends_when_its_time_is_up(self, worker: Worker) -> None:
        duel = worker.duel(Rounds((config(),), rounds=10_000, seconds=0.05, seed=0))
        assert isinstance(duel, Duel)
        assert 1 <= len(duel.rounds) < 10_000

    def test_a_contender_that_fails_is_named(self, worker: Worker) -> None:
        failed = worker.duel(Rounds((config(), config("raises")), rounds=3, seconds=60.0, seed=0))
        assert isinstance(failed, Measurement)
        assert failed.config == config("raises")
        assert failed.stage == "duel"


def test_a_vendor_that_writes_elsewhere_is_refused() -> None:
    """Its outputs stay poisoned: with such a tolerance everything would pass."""
    problem = KERNEL.signature.problem({"N": 64, "vendor": "elsewhere"})
    with pytest.raises(MeasureError, match="the vendor's own result of on_torch is wrong, or it is not written to out"):
        on_cpu(Task(toy("on_torch"), problem), lambda message: None)


def test_a01_what_is_written_in_place_is_restored_before_every_launch() -> None:
    from tuner.measure import tensors

    halve = catalog.resolve(toy("halve"))
    problem = halve.signature.problem({"N": 100})
    operands = halve.operands(problem)
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=1)
    before = values["x"].clone()
    clock = HostClock()
    clock.samples(lambda: values["x"].div_(2), 5, tensors.restorer(operands, values))
    assert clock.prepared == 5
    assert bool((values["x"] == before / 2).all())


class TestSearchOnCpu(SearchContract):
    """The whole way of a search on a GPU, with real processes: pool, worker, pipes, recheck, duel."""

    @pytest.fixture
    def subject(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Subject:
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
        space = [c for c in feasible(KERNEL, PROBLEM, H200.limits) if c["FAULT"] in ("none", "wrong", "raises")]
        return Subject(
            space,
            KERNEL.default_config(PROBLEM, H200.limits),
            lambda: GpuMeasurer(toy("on_torch"), PROBLEM, H200.limits, jobs=2, worker="cpu_worker"),
        )

    def test_a_vendor_that_writes_elsewhere_ends_the_search_in_a_sentence(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
        problem = KERNEL.signature.problem({"N": 64, "vendor": "elsewhere"})
        measurer = GpuMeasurer(toy("on_torch"), problem, H200.limits, jobs=1, worker="cpu_worker")
        try:
            measurer.submit(config())
            with pytest.raises(MeasureError, match=r"^the vendor's own result of on_torch is wrong"):
                measurer.next(timeout_s=60)
        finally:
            measurer.close()
