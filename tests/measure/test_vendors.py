"""Vendors by name, on torch's CPU: which are timed, which are left out and why, and the one that stands for all."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from cpu_worker import HostClock, on_cpu
from helpers import H200, toy

from tuner import catalog
from tuner.errors import KernelFault
from tuner.kernels.spec import Config, Kernel, Problem
from tuner.kernels.vendors import COMPILED, chosen_vendors, vendor_names
from tuner.measure import tensors
from tuner.measure.gpu import GpuMeasurer
from tuner.measure.messages import Rounds, Stage, Task
from tuner.measure.timed_vendors import VendorSettings
from tuner.measure.vendors import run_vendor, vendor_function
from tuner.measure.worker import Worker
from tuner.records import VENDOR, Comparison

FILE = toy("vendors")
KERNEL: Kernel = catalog.resolve(FILE)
PROBLEM = KERNEL.signature.problem({"N": 4096})
CONFIG: Config = KERNEL.signature.config({"BLOCK": 256, "FAULT": "none", "num_warps": 4, "num_stages": 1})
REASONS = {
    "wrong": "deviates from the reference by 0.5 of a row's largest value",
    "spoiling": "writes to x, which is only read",
    "misnamed": "KernelFault: vendor returns tensors by the names of written operands (out), not 'y'",
    "missing": "not installed: No module named 'a_library_that_is_not_installed'",
    "refusing": "not for this problem: it takes no vectors",
}


def worker(reports: list[Any] | None = None, **task: Any) -> Worker:
    told = [] if reports is None else reports
    return on_cpu(Task(FILE, PROBLEM, H200.limits, **task), told.append)


def compared(worker: Worker, rounds: int = 3) -> Comparison:
    found = worker.compare(Rounds((CONFIG,), rounds, 5.0, seed=1))
    assert isinstance(found, Comparison)
    return found


def test_each_chosen_vendor_takes_part_and_the_others_are_left_out_with_reasons() -> None:
    reports: list[Any] = []
    at_work = worker(reports, vendors=("torch", "returning", *REASONS), each_vendor=True)
    found = compared(at_work)
    assert found.contenders == (CONFIG.text, "vendor:torch", "vendor:returning")
    assert found.vendors == {"torch": "vendor:torch", "returning": "vendor:returning"}
    assert found.left_out.keys() == REASONS.keys()
    for name, reason in REASONS.items():
        assert found.left_out[name].startswith(reason)
    assert found.vendor == ""
    assert found.ahead_s > 0
    ahead = [report for report in reports if report.name == "vendor"]
    assert ahead == [Stage("vendor", vendor=name) for name in ("returning", *REASONS)]
    reports.clear()
    assert compared(at_work).left_out == found.left_out
    assert {report.name for report in reports} == {"comparison"}  # the second time they are known


def test_by_itself_the_kernels_own_vendor_takes_part() -> None:
    found = compared(worker())
    assert found.contenders == (CONFIG.text, VENDOR)
    assert (found.vendor, found.left_out) == ("torch", {})


class Slow(HostClock):
    """A clock by which the kernel's own vendor is slow."""

    def timer(self, runs: Any, restore: Any = None) -> Any:
        latency_us = 90.0 if getattr(runs[0], "func", None) is KERNEL.vendor else 30.0
        return lambda count: [latency_us] * count


def test_the_fastest_by_a_short_timing_stands_for_all() -> None:
    task = Task(FILE, PROBLEM, H200.limits, vendors=("torch", "returning", "wrong"))
    found = compared(Worker(task, [].append, device="cpu", clock=Slow()))
    assert found.contenders == (CONFIG.text, VENDOR)
    assert found.vendor == "returning"
    assert found.of(VENDOR) == (30.0,) * 3
    assert list(found.left_out) == ["wrong"]


def test_a_vendor_that_fails_in_rounds_is_left_out_of_them() -> None:
    class Failing(HostClock):
        def timer(self, runs: Any, restore: Any = None) -> Any:
            if getattr(runs[0], "func", None) is KERNEL.vendors["returning"]:
                raise ValueError("no stream")
            return lambda count: [1.0] * count

    task = Task(FILE, PROBLEM, H200.limits, vendors=("torch", "returning"), each_vendor=True)
    found = compared(Worker(task, [].append, device="cpu", clock=Failing()))
    assert list(found.vendors) == ["torch"]
    assert found.left_out == {"returning": "ValueError: no stream"}


@pytest.mark.usefixtures("forked_helpers")
def test_a_vendor_that_ends_the_worker_is_left_out_by_the_measurer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    measurer = GpuMeasurer(
        *(FILE, PROBLEM, H200.limits),
        jobs=1,
        vendors=("torch", "ending", "returning"),
        each_vendor=True,
        worker="cpu_worker",
    )
    try:
        measurer.settle(0.0)
        found = measurer.compare([CONFIG], 3, 5.0, seed=1)
    finally:
        measurer.close()
    assert isinstance(found, Comparison)
    assert list(found.vendors) == ["torch", "returning"]
    assert found.left_out == {"ending": "crashed: the worker process died: exit code 3"}
    assert measurer.vendors == ("torch", "returning")


def values_of(kernel: Kernel, problem: Problem) -> dict[str, torch.Tensor]:
    made = tensors.allocate(kernel.operands(problem), "cpu")
    tensors.draw(kernel.operands(problem), made, seed=1)
    return made


def test_results_by_name_are_copied_into_the_operands() -> None:
    values, operands = values_of(KERNEL, PROBLEM), KERNEL.operands(PROBLEM)
    run_vendor(KERNEL.vendors["returning"], PROBLEM, operands, values)
    assert torch.equal(values["out"], values["x"] * 2)
    with pytest.raises(KernelFault, match=r"vendor returns out in shape \(4096,\), not \(1, 4096\); correct it"):
        run_vendor(lambda _, given: {"out": given["x"][None]}, PROBLEM, operands, values)


def test_an_own_vendor_that_returns_its_results_is_calibrated_and_timed(tmp_path: Path) -> None:
    file = tmp_path / "returns.py"
    file.write_text(
        f"from tuner import catalog\nfrom dataclasses import replace\nKERNEL = catalog.resolve({FILE!r})\n"
        "KERNEL = replace(KERNEL, vendor=KERNEL.vendors['returning'], vendors={})\n"
    )
    made = on_cpu(Task(str(file), PROBLEM, H200.limits), [].append)
    assert compared(made).contenders == (CONFIG.text, VENDOR)


def with_scalars(problem: Problem, given: Mapping[str, Any]) -> object:
    return {"out": given["x"] * given["factor"]}


@pytest.mark.parametrize("returns", [True, False])
def test_torch_compile_takes_a_kernels_own_vendor_as_it_is(returns: bool) -> None:
    kernel = replace(KERNEL, vendor=with_scalars, scalars={"factor": 2.0}) if returns else KERNEL
    for size in (16, 32):
        problem = kernel.signature.problem({"N": size})
        values = values_of(kernel, problem)
        vendor = vendor_function(kernel, COMPILED, problem, "aot_eager")
        for _ in range(2):
            run_vendor(vendor, problem, kernel.operands(problem), values)
        assert torch.equal(values["out"], values["x"] * 2)


def test_what_torch_compile_refuses_is_left_out() -> None:
    task = Task(FILE, PROBLEM, H200.limits, vendors=("torch", COMPILED), each_vendor=True)
    found = compared(
        Worker(task, [].append, device="cpu", clock=HostClock(), vendors=VendorSettings(backend="none_such"))
    )
    assert list(found.vendors) == ["torch"]
    assert "none_such" in found.left_out[COMPILED]


def test_vendors_are_chosen_by_group_or_by_name() -> None:
    names = tuple(KERNEL.vendors)
    assert vendor_names(KERNEL) == chosen_vendors(KERNEL, "all") == ("torch", COMPILED, *names)
    assert chosen_vendors(KERNEL, "libraries") == ("torch", *names)
    assert chosen_vendors(KERNEL, "eager") == ("torch",)
    assert chosen_vendors(KERNEL, "wrong, torch.compile,unknown") == (COMPILED, "wrong")
    assert chosen_vendors(KERNEL, "eager,torch.compile") == ("torch", COMPILED)
    assert vendor_names(replace(KERNEL, vendor=None)) == names


@pytest.mark.parametrize(
    ("vendors", "text"),
    [
        ("liger", "on_torch: vendors is a dict, not 'liger'"),
        ({"torch": with_scalars}, "a name in vendors is another than vendor_name, not 'torch'; rename one"),
        ({"all": with_scalars}, "a name in vendors is a name of its own, and --vendors takes 'all' for others"),
        ({"a,b": with_scalars}, r"a name in vendors is up to 24 letters, digits, spaces and . \+ -, not 'a,b'"),
        ({"liger": 3}, r"on_torch: vendors\['liger'\] is a function, not 3; define it"),
    ],
)
def test_vendors_are_functions_with_names_of_their_own(vendors: Any, text: str) -> None:
    with pytest.raises(KernelFault, match=text):
        replace(KERNEL, vendors=vendors)
