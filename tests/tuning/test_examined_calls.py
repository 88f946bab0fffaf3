"""Results of examinations: the largest group is right, if one is larger than all others."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest
from calls import blocks, call_of, configs, tensor
from cpu_worker import InProcess, StatedClock, on_cpu
from helpers import H200, toy
from scripted import ScriptedMeasurer

from tuner import catalog
from tuner.captured import document
from tuner.captured.call import (
    AGREEMENT,
    REFERENCE,
    Argument,
    CapturedCall,
    Contents,
    DescriptorArgument,
    Examined,
)
from tuner.captured.problem import problem_of_call
from tuner.db.store import Store
from tuner.errors import NothingFound
from tuner.kernels.spec import Config, Value
from tuner.measure.examiner import Groups
from tuner.measure.messages import Examine, Ran, Task
from tuner.measure.worker import Worker
from tuner.records import COLD, Environment, Measurement, Outcome, Provenance
from tuner.search import search
from tuner.search.space import FeasibleSpace
from tuner.suites.suite import Entry
from tuner.tuning.effort import Effort
from tuner.tuning.events import Events, StopToken
from tuner.tuning.judged import judged, listed
from tuner.tuning.several import tune_target
from tuner.tuning.target import Target
from tuner.tuning.tuned import Tuned

KERNEL = catalog.resolve(toy("examined"))
N = 100
BLOCKS = configs(BLOCK=(32, 64), num_warps=(1, 4))
DESCRIPTOR = DescriptorArgument(tensor(48, 96), (48, 96), (96, 1), (1, 1))
Role = Literal["in", "out", "inout"]


def config(fault: str = "none", block: int = 64) -> Config:
    return KERNEL.signature.config({"BLOCK": block, "FAULT": fault, "num_warps": 4, "num_stages": 1})


def ran(of: Config, agrees: Config | None = None, out: Role = "out", differs: str = "") -> Ran:
    return Ran(of, {"x": "in", "out": out}, agrees, {config("twice"): differs} if differs else {})


def found(*given: Ran) -> Groups:
    groups = Groups()
    for each in given:
        groups.add(each)
    return groups


TIED = found(ran(config("twice")), ran(config(), differs="out[0, 0] is 1, not 2"))


def examination(call: CapturedCall, path: Path) -> Examined:
    """Examine the listed configs in this process."""
    document.write(call, path)
    kernel = catalog.resolve(str(path))
    worker = on_cpu(Task(str(path), problem_of_call(call), H200.limits, examines=True), lambda message: None)
    groups = Groups()
    for each in listed(kernel, call, H200.limits):
        result = worker.examine(Examine(each, groups.representatives, reset=call.reset))
        if isinstance(result, Ran):
            groups.add(result)
        else:
            groups.failed.append(result)
    return judged(groups, kernel, AGREEMENT, "3.7.1")


def test_the_largest_group_is_right_whichever_config_came_first() -> None:
    groups = found(
        ran(config("twice")), ran(config()), ran(config("rounds"), config()), ran(config(block=128), config())
    )
    examined = judged(groups, KERNEL, AGREEMENT, "3.7.1")
    assert examined.agreed == dict(config())
    assert (examined.agreeing, examined.differing) == (3, 1)
    assert examined.roles == {"x": "in", "out": "out"}
    assert (examined.source, examined.triton) == (KERNEL.source, "3.7.1")


def test_a_tensor_that_one_config_reads_is_read() -> None:
    examined = judged(found(ran(config()), ran(config("rounds"), config(), "inout")), KERNEL, AGREEMENT, "3.7.1")
    assert examined.roles["out"] == "inout"


def test_a_lone_config_is_right() -> None:
    groups = found(ran(config()))
    groups.failed.append(Measurement(config("raises"), Outcome.ERROR, stage="launch", error="no"))
    assert judged(groups, KERNEL, AGREEMENT, "3.7.1").agreeing == 1


def test_a_tie_is_refused() -> None:
    with pytest.raises(NothingFound) as refused:
        judged(TIED, KERNEL, AGREEMENT, "3.7.1")
    assert str(refused.value) == (
        "the result that most configs of examined agree on is right, and as many agree with "
        f"{config('twice').text} as with {config().text}: out[0, 0] is 1, not 2; "
        "state the right one with autotune(reference=...)"
    )


def test_a_reference_decides_a_tie() -> None:
    examined = judged(TIED, KERNEL, REFERENCE, "3.7.1")
    assert (examined.basis, examined.agreed) == (REFERENCE, None)
    assert examined.roles["out"] == "out"


def test_configs_that_all_fail_are_counted_with_the_first_error() -> None:
    error = f"CompilationError: at 2:16:\n    y = {'x' * 200}\n        ^\nNameError('x is not defined')\n"
    failed = [Measurement(config(fault), Outcome.ERROR, stage="launch", error=error) for fault in ("a", "b")]
    with pytest.raises(NothingFound) as refused:
        judged(Groups(failed=failed), KERNEL, AGREEMENT, "3.7.1")
    assert str(refused.value) == (
        f"no config of examined ran when it was examined: 2 error; {config('a').text}: "
        "CompilationError: at 2:16: NameError('x is not defined')"
    )
    lone = Measurement(config(), Outcome.ERROR, stage="launch", error=f"KernelFault: {'x' * 200}; capture it again")
    with pytest.raises(NothingFound, match=r"KernelFault: x{200}; capture it again$"):
        judged(Groups(failed=[lone]), KERNEL, AGREEMENT, "3.7.1")


def test_a_group_that_loses_its_first_config_goes_on_with_the_next() -> None:
    groups = found(ran(config()), ran(config("rounds"), config()), ran(config("twice")))
    groups.drop(Measurement(config(), Outcome.CRASHED))
    assert groups.representatives == (config("rounds"), config("twice"))
    assert [each.config for each in groups.failed] == [config()]


@pytest.mark.parametrize(
    ("call", "roles"),
    [
        (
            call_of("biased", {"x": tensor(N), "bias": tensor(N), "out": tensor(N), "n": N}, BLOCKS, blocks(N)),
            {"x": "in", "bias": "in", "out": "out"},
        ),
        (
            call_of("biased", {"x": tensor(N), "bias": None, "out": tensor(N + 1), "n": N}, BLOCKS, blocks(N)),
            {"x": "in", "out": "inout"},  # its last element is kept
        ),
        (
            call_of(
                "biased", {"x": tensor(N, strides=(0,)), "bias": None, "out": tensor(N), "n": N}, BLOCKS[:1], blocks(N)
            ),
            {"x": "in", "out": "out"},
        ),
        (
            call_of(
                "copied",
                {"x": DESCRIPTOR, "out": DESCRIPTOR, "M": 48, "N": 96},
                configs(ROWS=(8, 16), COLUMNS=(32,)),
                lambda meta: (-(-48 // meta["ROWS"]), -(-96 // meta["COLUMNS"])),
                key=("M", "N"),
                knobs=("ROWS", "COLUMNS"),
            ),
            {"x": "in", "out": "out"},
        ),
        (
            call_of("count", {"x": tensor(N), "total": tensor(1), "n": N}, BLOCKS, blocks(N), reset=("total",)),
            {"x": "in", "total": "inout"},
        ),
        (
            call_of(
                "scale_in_place",
                {"x": tensor(N), "y": replace(tensor(N), same_as="x"), "n": N, "factor": 3.0},
                BLOCKS,
                blocks(N),
            ),
            {"x": "inout"},
        ),
        (
            call_of(
                "gathered",
                {
                    "x": tensor(N),
                    "index": tensor(N, dtype="int64", contents=Contents(low=0, high=N - 1)),
                    "out": tensor(N),
                    "n": N,
                },
                BLOCKS,
                blocks(N),
            ),
            {"x": "in", "index": "in", "out": "out"},
        ),
    ],
)
def test_the_roles_of_kernels_in_the_interpreter(call: CapturedCall, roles: dict[str, str], tmp_path: Path) -> None:
    """All configs agree, whatever their blocks."""
    examined = examination(call, tmp_path / f"one{document.SUFFIX}")
    assert examined.roles == roles
    assert (examined.agreeing, examined.differing) == (len(call.configs), 0)


PLANTED = ("twice", "half", "reads outputs", "zeros", "racy", "stale row")
"""Ways to be wrong, each five times as fast as what is right."""


@pytest.mark.parametrize("seed", range(8))
def test_no_planted_config_is_the_answer(seed: int, tmp_path: Path) -> None:
    """Wrong configs are listed first, in any order; those that are right are in the minority of all."""
    random.seed(seed)
    wrong = random.sample(PLANTED, len(PLANTED))
    listed_configs: list[dict[str, Value]] = [
        {"BLOCK": block, "FAULT": fault, "num_warps": 4, "num_stages": 1}
        for fault, blocks in (*((fault, (64,)) for fault in wrong), ("none", (64, 128)), ("rounds", (64,)))
        for block in blocks
    ]
    arguments: dict[str, Argument] = {"x": tensor(5, 33), "out": tensor(5, 33), "total": tensor(5)}
    arguments |= {"count": tensor(1, dtype="int32"), "N": 33}
    call = call_of(
        "SCALE",
        arguments,
        listed_configs,
        lambda meta: (1,),
        key=("N",),
        knobs=(),
        file=toy("agreeing"),
        module="agreeing",
    )
    examined = examination(call, tmp_path / f"unknown{document.SUFFIX}")
    assert examined.roles == {"x": "in", "out": "out", "total": "out", "count": "inout"}
    assert examined.agreed is not None
    assert examined.agreed["FAULT"] == "none"
    assert examined.agreeing >= 3  # and one that is racy, once in 50 times
    path = tmp_path / f"known{document.SUFFIX}"
    document.write(replace(call, examined=examined), path)
    kernel, problem = catalog.resolve(str(path)), problem_of_call(call)
    task = Task(str(path), problem, H200.limits)
    measurer = InProcess(Worker(task, lambda message: None, device="cpu", clock=StatedClock(seed)), seed)
    space = list(FeasibleSpace.of(kernel, problem, H200.limits))
    result = search(space, kernel.default_config(problem, H200.limits), measurer, seed=seed, sampler="random")
    assert result.verdict is not None
    answers = [result.verdict.config, *(tie.config for tie in result.verdict.ties)]
    assert {answer["FAULT"] for answer in answers} <= {"none", "rounds"}


class TestTargets:
    """Searches of scripted latencies on targets as captured calls have them."""

    signature = catalog.resolve(toy("on_torch")).signature
    problem = signature.problem({"N": 33})
    space = tuple(FeasibleSpace.of(catalog.resolve(toy("on_torch")), problem, H200.limits))[:70]
    entry = Entry(toy("on_torch"), signature, problem)
    provenance = Provenance(H200, Environment("3.7.1", "12.8", "2.13.0", "580.1"), "source", COLD.text)

    def tuned(self, store: Store, effort: str = "quick", **target: Any) -> Tuned:
        made = Target(
            *(self.space, self.space[0], self.provenance, COLD),
            flops=0,
            bytes=1,
            measurer=lambda: ScriptedMeasurer(lambda config: 10.0 + len(config.text)),
            **target,
        )
        return tune_target(self.entry, made, Effort.named(effort, sampler="random"), store, Events(), StopToken())

    def test_what_only_agreed_is_measured_again_with_a_reference(self, tmp_path: Path) -> None:
        with closing(Store.open(tmp_path / "tuner.db")) as store:
            assert self.tuned(store, basis=AGREEMENT).result is not None
            assert self.tuned(store, basis=AGREEMENT).result is None
            again = self.tuned(store, basis=REFERENCE)
            assert again.result is not None
            assert again.answer is not None
            assert again.answer.basis == REFERENCE
            assert self.tuned(store, basis=REFERENCE).result is None

    def test_the_listed_configs_are_all_measured_whatever_the_effort(self, tmp_path: Path) -> None:
        with closing(Store.open(tmp_path / "tuner.db")) as store:
            found = self.tuned(store, is_exhausted=True)
            assert found.result is not None
            assert len(found.result.measurements) == len(self.space)
            assert self.tuned(store, "exhaustive").result is None
