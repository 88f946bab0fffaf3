"""The examination of configs on torch's CPU: what each writes, and which agree."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from time import monotonic

import pytest
from cpu_worker import on_cpu
from helpers import H200, toy

from tuner import catalog
from tuner.kernels.spec import Config, Problem
from tuner.measure.compile_pool import CompilePool
from tuner.measure.deadline import CompileSettings
from tuner.measure.examiner import Examiner
from tuner.measure.messages import Examine, Ran, Task
from tuner.measure.worker import Worker
from tuner.measure.worker_pool import WorkerPool
from tuner.measure.worker_session import WorkerSettings
from tuner.records import Measurement, Outcome

KERNEL = catalog.resolve(toy("examined"))


def problem(inplace: str = "no", dtype: str = "fp32") -> Problem:
    return KERNEL.signature.problem({"M": 5, "N": 33, "dtype": dtype, "inplace": inplace})


def config(fault: str = "none", block: int = 64) -> Config:
    return KERNEL.signature.config({"BLOCK": block, "FAULT": fault, "num_warps": 4, "num_stages": 1})


def worker(inplace: str = "no", dtype: str = "fp32") -> Worker:
    random.seed(1)
    return on_cpu(Task(toy("examined"), problem(inplace, dtype), H200.limits, examines=True), lambda message: None)


def ran(result: Ran | Measurement) -> Ran:
    assert isinstance(result, Ran), result
    return result


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(
    ("inplace", "roles"),
    [
        ("no", {"x": "in", "out": "out", "total": "out", "count": "inout"}),
        ("x", {"x": "inout", "out": "in", "total": "out", "count": "inout"}),
        ("adds", {"x": "in", "out": "out", "total": "inout", "count": "inout"}),
    ],
)
def test_the_roles_are_found_by_what_changes_and_what_it_depends_on(
    inplace: str, roles: dict[str, str], dtype: str
) -> None:
    assert ran(worker(inplace, dtype).examine(Examine(config()))).roles == roles


def test_a_tensor_that_is_zeroed_before_each_launch_is_read() -> None:
    assert ran(worker("adds").examine(Examine(config(), reset=("total",)))).roles["total"] == "inout"


@pytest.mark.parametrize("fault", ["half", "reads outputs"])
def test_an_output_that_is_written_in_part_or_read_is_read_and_written(fault: str) -> None:
    assert ran(worker().examine(Examine(config(fault)))).roles["out"] == "inout"


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("stale row", "a repeated launch gives another result: out[4, 0] is "),
        ("racy", "a repeated launch gives another result: out[4, 0] is "),
        ("writes beside", "writes beside total"),
        ("nothing", "changes none of its tensors"),
        ("not finite", "has no finite value in out"),
    ],
)
def test_a_config_that_is_wrong_by_itself_fails(fault: str, error: str) -> None:
    result = worker().examine(Examine(config(fault)))
    assert isinstance(result, Measurement)
    assert result.outcome is Outcome.WRONG_RESULT
    assert error in result.error


@pytest.mark.parametrize("fault", ["twice", "half", "reads outputs", "beyond"])
def test_outputs_that_differ_are_told_by_their_first_element(fault: str) -> None:
    device = worker()
    ran(device.examine(Examine(config())))
    found = ran(device.examine(Examine(config(fault), (config(),))))
    assert found.agrees is None
    text = found.differs[config()]
    assert text.startswith("total[" if fault == "beyond" else "out[")
    assert ", not " in text


def test_outputs_within_rounding_agree_and_kept_ones_are_computed_again() -> None:
    device = worker()
    wrong = [config("twice", block) for block in (64, 128, 256)] + [config("half", 64), config("reads outputs", 64)]
    for each in wrong:
        ran(device.examine(Examine(each)))
    found = ran(device.examine(Examine(config("rounds"), (config("twice"), config("half"), config(block=256)))))
    assert found.agrees == config(block=256)
    assert [*found.differs] == [config("twice"), config("half")]


def test_a_config_that_fails_costs_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Real processes: it does not compile, or raises. One that hangs on other contents of a tensor reads it.

    A config that hangs does not delay the end of an examination that is stopped.
    """
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
    compilers, workers = CompilePool(2, CompileSettings()), WorkerPool(0, "cpu_worker")
    given = [config("twice"), config(), config("not compiled"), config("raises")]
    given += [config(block=128), config("rounds")]

    def examiner(stage_s: float, stop: Callable[[], bool] = lambda: False) -> Examiner:
        return Examiner(
            toy("examined"),
            problem("waits"),
            H200.limits,
            reset=(),
            compilers=compilers,
            workers=workers,
            stop=stop,
            settings=WorkerSettings(stage_s=stage_s),
        )

    try:
        found = examiner(stage_s=1.0).examine(given)
        begun = monotonic()
        assert not examiner(60.0, lambda: monotonic() > begun + 1).examine(given).groups
        assert monotonic() < begun + 20
    finally:
        compilers.close()
        workers.close()
    assert [[each.config for each in group] for group in found.groups] == [
        [config("twice")],
        [config(), config(block=128), config("rounds")],
    ]
    assert found.groups[1][0].roles["count"] == "inout"
    assert {each.config["FAULT"]: each.outcome for each in found.failed} == {
        "not compiled": Outcome.COMPILE_ERROR,
        "raises": Outcome.ERROR,
    }
    assert found.largest == [found.groups[1]]
    assert found.representatives == (config(), config("twice"))
