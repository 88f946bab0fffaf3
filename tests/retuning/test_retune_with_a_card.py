"""Nights on a card: a scripted driver, real worker and compile processes, a kernel on torch that states its latency."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from machines import Busy, Machine

import tuner
from tuner import catalog
from tuner.db.store import Store
from tuner.errors import NothingFound
from tuner.measure.processes import Child
from tuner.records import Environment
from tuner.records.retune import Action, Cause, Finding, Retune
from tuner.suites.suite import Entry

KERNEL = """
from types import SimpleNamespace
from tuner.kernels.spec import Dim, Kernel, Knob, Launch, Operand, Signature

class Double:
    def warmup(self, *args, grid, **kwargs):
        return SimpleNamespace(metadata=SimpleNamespace(shared=1024))
    def __getitem__(self, grid):
        return self.run
    def run(self, x, out, latency_us, factor, **config):
        out.copy_(factor * x)
        return SimpleNamespace(n_regs=32, n_spills=0, metadata=SimpleNamespace(shared=1024), latency_us=latency_us)

DOUBLE = Double()

def launch(problem, config, tensors):
    block = config["BLOCK"]
    latency_us = LATENCY
    factor = FACTOR
    return (Launch(DOUBLE, (1,), (tensors["x"], tensors["out"], latency_us, factor), dict(config)),)

KERNEL = Kernel(
    signature=Signature(op="telling", dims=(Dim("N"),), dtypes=("fp32",),
        knobs=(Knob("BLOCK", (64, 128, 256, 512)), Knob("num_warps", (1, 4)), Knob("num_stages", (1,)))),
    operands=lambda problem: {"x": Operand((problem["N"],), "fp32"), "out": Operand((problem["N"],), "fp32", "out")},
    launch=launch,
    reference=lambda problem, tensors, rows: {"out": tensors["x"][rows].double() * 2},
    vendor=lambda problem, tensors: tensors["out"].copy_(tensors["x"] * 2),
    default=lambda problem, limits: {"BLOCK": 64, "num_warps": 4, "num_stages": 1},
)
"""
SIZES = (1000, 2000)
BEST = {"BLOCK": 512, "num_warps": 4, "num_stages": 1}


class Nights:
    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine, self.folder = machine, folder
        self.store = Store.open(machine.db)

    def file(
        self, name: str, latency: str = "100.0 + 6400 / block + 10 * (config['num_warps'] == 1)", factor: str = "2"
    ) -> str:
        file = self.folder / f"{name}.py"
        file.write_text(KERNEL.replace("LATENCY", latency).replace("FACTOR", factor))
        return str(file)

    def tune(self) -> str:
        file = self.file("first")
        problems = [{"N": size} for size in SIZES]
        found = tuner.tune(file, problems, store=self.store, effort="exhaustive", on_event=tuner.Events())
        assert [dict(each.answer.config) for each in found if each.answer] == [BEST] * 2
        return file

    def __call__(self, file: str | None, **options: object) -> Retune:
        given = {"store": self.store, "on_event": tuner.Events(), **options}
        return tuner.retune(file, **given)  # type: ignore[arg-type]


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_helpers: None) -> Nights:
    machine = Machine(tmp_path, monkeypatch)
    monkeypatch.setattr(
        "tuner.measure.worker_pool.start_worker",
        lambda gpu, module="", python=None, *, watches=True: Child("telling_worker", python=python),
    )
    return Nights(machine, tmp_path)


def outcomes(retune: Retune) -> set[tuple[Cause, Action]]:
    return {(finding.cause, finding.action) for finding in retune.findings}


def test_nights_of_one_card(night: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    file = night.tune()
    quiet = night(file)
    assert outcomes(quiet) == {(Cause.UNCHANGED, Action.KEPT)}
    assert {finding.now.rounds for finding in quiet.findings if finding.now} == {20}
    assert len(night.store.answers()) == 2

    # A driver change alone confirms each answer, once.
    monkeypatch.setattr(
        "tuner.measure.device.environment", lambda index=0: Environment("3.7.1", "12.8", "2.13.0", "590")
    )
    assert outcomes(night(file)) == {(Cause.UNCHANGED, Action.CONFIRMED)}
    assert outcomes(night(file)) == {(Cause.UNCHANGED, Action.KEPT)}
    assert [stored.answer.evidence.launches for stored in night.store.answers()] == [51] * 4

    # Another source, in which the configs are slower and another one is the fastest.
    slower = night.file("slower", "160.0 + block / 64 + 10 * (config['num_warps'] == 1)")
    found = night(slower)
    assert outcomes(found) == {(Cause.SLOWER_CODE, Action.REPLACED)}
    assert all("the kernel's source" in finding.reasons for finding in found.findings)
    assert outcomes(night(slower)) == {(Cause.UNCHANGED, Action.KEPT)}
    assert outcomes(night(file)) == {(Cause.UNCHANGED, Action.KEPT)}  # whose answers are still there

    # A wrong kernel, and one that is wrong with the answer's config.
    wrong = night(night.file("wrong", factor="3"))
    assert outcomes(wrong) == {(Cause.BROKEN, Action.KEPT)}
    partly = night(night.file("partly", factor="3 if block == 512 or block == 64 else 2"))
    assert outcomes(partly) == {(Cause.BROKEN, Action.REPLACED)}
    assert {dict(finding.new_config or {}).get("BLOCK") for finding in partly.findings} == {256}


def test_a_planted_answer_is_replaced_and_the_others_stay(night: Nights) -> None:
    file = night.tune()
    (stored,) = [each for each in night.store.answers() if each.answer.problem["N"] == 2000]
    signature = stored.signature
    assert signature is not None
    run = night.store.start_run(signature, stored.answer.problem, stored.provenance, stored.settings)
    comparison = night.store.comparison(stored.run_id)
    assert comparison is not None
    planted = replace(stored.answer, config=signature.config({**BEST, "BLOCK": 128}), ties=())
    night.store.add_answer(run, planted, stored.provenance, "trials", {}, comparison)
    found = {finding.problem["N"]: finding for finding in night(file).findings}
    assert {size: finding.action for size, finding in found.items()} == {
        1000: Action.KEPT,
        2000: Action.REPLACED,
    }
    assert found[2000].cause is Cause.ORDER
    assert dict(found[2000].new_config or {}) == BEST
    assert outcomes(night(file)) == {(Cause.UNCHANGED, Action.KEPT)}
    warm = night(file, policy="warm")  # whose latencies are not compared with those before
    assert outcomes(warm) == {(Cause.METHOD, Action.CONFIRMED)}


def test_answers_without_code_here_are_left_out_and_named(night: Nights) -> None:
    file = night.tune()
    with pytest.raises(NothingFound, match=r"name the kernel's file: tuner retune FILE\.py"):
        night(None)
    kernel = catalog.resolve(file)
    entry = Entry(file, kernel.signature, kernel.signature.problem({"N": 1000}))  # of a suite, which names the file
    assert [finding.problem for finding in night(None, problem=[entry]).findings] == [entry.problem]


def test_others_on_the_card_and_failures_are_outcomes_of_one_answer(
    night: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = night.tune()
    broken = night.file("broken", "1 / 0")
    found = night(broken, check_only=True)
    assert {finding.cause for finding in found.findings} == {Cause.BROKEN}
    assert all("ZeroDivisionError" in finding.error for finding in found.findings)
    night.machine.card(lambda address: Busy())
    shared: list[Finding] = [*night(file, shared=True, check_only=True).findings]
    assert {finding.cause for finding in shared} == {Cause.UNCHANGED}
