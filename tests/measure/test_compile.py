"""The compile pool with real compilers: it needs neither GPU nor torch, and keeps its deadline."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import pytest
from helpers import A100, H200, OURS, RTX_4090, able, alive, drawn, toy, until, usual

from tuner import catalog
from tuner.kernels.spec import Config, Problem
from tuner.measure.deadline import CompileSettings
from tuner.measure.messages import Compile, Compiled, Drop, Pool
from tuner.measure.processes import Child
from tuner.records import Device, Outcome


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_helpers: None) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    return folder


@contextmanager
def pool(kernel: str, problem: Problem, card: Device, deadline_s: float = 60.0) -> Iterator[Child]:
    child = Child("tuner.measure.compile")
    child.send(Pool(kernel, problem, card.limits, jobs=2, settings=CompileSettings(deadline_s, adaptive=None)))
    try:
        yield child
    finally:
        child.kill(grace_s=5.0)


def test_a_compile_may_end_while_it_is_dropped() -> None:
    """The pool finds the request to drop a compile and the compile's result at once."""
    kernel = catalog.load("gemm")
    problem = kernel.signature.problem({"M": 512, "dtype": "fp16"})
    configs = drawn(kernel, problem, H200.limits, count=3)
    with pool("gemm", problem, H200) as child:
        children = Path(f"/proc/{child.pid}/task/{child.pid}/children")
        for config in configs[:2]:
            child.send(config)
        until(lambda: len(children.read_text().split()) == 2)
        forks = [int(pid) for pid in children.read_text().split()]
        os.kill(child.pid, signal.SIGSTOP)
        until(lambda: Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        child.send(Drop())
        until(lambda: not any(map(alive, forks)))
        os.kill(child.pid, signal.SIGCONT)
        assert isinstance(child.receive(), Drop)
        assert compiled(child, configs[2:])[configs[2]].outcome is Outcome.OK


def compiled(child: Child, configs: list[Config]) -> dict[Config, Compiled]:
    for config in configs:
        child.send(config)
    found: list[Compiled] = [child.receive() for _ in configs]
    return {result.config: result for result in found}


def faulty(fault: str, block: int = 256) -> Config:
    signature = catalog.resolve(toy("faulty")).signature
    return signature.config({"BLOCK": block, "FAULT": fault, "num_warps": 1, "num_stages": 1})


FAULTY = catalog.resolve(toy("faulty")).signature.problem({"N": 1000})


@pytest.mark.parametrize(
    ("op", "card"),
    [pytest.param(op, card, id=f"{op} {card.id}") for op in OURS for card in (A100, H200) if able(op, card.limits)],
)
def test_a_sample_of_every_kernel_compiles_for_ampere_and_hopper(op: str, card: Device) -> None:
    """The cards take turns with the first three dtypes: Hopper has the first and the third."""
    kernel = catalog.load(op)
    dtypes = kernel.signature.dtypes[:3]
    usual_ones = [usual(op, dtype=dtype) for dtype in (dtypes[::2] if card is H200 else dtypes[1::2] or dtypes)]
    (other,) = drawn(kernel, usual_ones[0], card.limits, count=1, seed=3)
    defaults = [(problem, kernel.default_config(problem, card.limits)) for problem in usual_ones]
    requests = [Compile(*each) for each in dict.fromkeys([*defaults, (usual_ones[0], other)])]
    with pool(op, requests[0].problem, card) as child:
        for one in requests:
            child.send(one)
        found: list[Compiled] = [child.receive() for _ in requests]
    assert {(result.problem, result.config) for result in found} == {(one.problem, one.config) for one in requests}
    for result in found:
        assert result.outcome is Outcome.OK, result
        assert result.compile_s is not None
        assert result.shared_bytes is not None
        assert 0 <= result.shared_bytes <= card.shared_bytes


def test_a_second_pool_finds_what_the_first_compiled(cache: Path) -> None:
    kernel = catalog.load("softmax")
    problem = kernel.signature.problem({"M": 64})
    configs = drawn(kernel, problem, H200.limits, count=3)
    with pool("softmax", problem, H200) as child:
        first = compiled(child, configs)
    entries = sorted(path.name for path in cache.iterdir())
    with pool("softmax", problem, H200) as child:
        second = compiled(child, configs)
    assert entries == sorted(path.name for path in cache.iterdir())
    assert all(result.compile_s is not None for result in first.values())
    assert all(result.compile_s is None for result in second.values())
    assert [first[c].shared_bytes for c in configs] == [second[c].shared_bytes for c in configs]


def test_configs_that_differ_in_warps_alone_are_different_code(cache: Path) -> None:
    kernel = catalog.resolve(toy("double"))
    problem = kernel.signature.problem({"N": 1000})
    configs = [kernel.signature.config({"BLOCK": 256, "num_warps": warps, "num_stages": 1}) for warps in (1, 2, 4)]
    with pool(toy("double"), problem, H200) as child:
        compiled(child, configs)
    assert len(list(cache.rglob("double.cubin"))) == 3


def test_more_shared_memory_than_the_card_has_is_infeasible() -> None:
    kernel = catalog.load("gemm")
    problem = kernel.signature.problem({"M": 4096})
    knobs = {"BLOCK_M": 128, "BLOCK_N": 256, "BLOCK_K": 64, "GROUP_M": 8, "num_warps": 8, "num_stages": 4}
    config = kernel.signature.config(knobs)
    with pool("gemm", problem, RTX_4090) as child:
        (on_a_smaller_card,) = compiled(child, [config]).values()
    assert on_a_smaller_card.outcome is Outcome.INFEASIBLE
    assert on_a_smaller_card.shared_bytes == 147456
    assert on_a_smaller_card.error == "needs 147456 bytes of shared memory, a block has 101376"


def test_each_failure_ends_one_config() -> None:
    faults = ["none", "refused", "raises", "aborts"]
    with pool(toy("faulty"), FAULTY, H200) as child:
        found = compiled(child, [faulty(fault) for fault in faults])
        again = compiled(child, [faulty("none", block=512)])
    outcomes = {fault: found[faulty(fault)].outcome for fault in faults}
    assert outcomes == {
        "none": Outcome.OK,
        "refused": Outcome.COMPILE_ERROR,
        "raises": Outcome.ERROR,
        "aborts": Outcome.CRASHED,
    }
    assert "refused on purpose" in found[faulty("refused")].error
    assert re.fullmatch(
        r"ZeroDivisionError: .*faulty\.py line \d+: launch raises ZeroDivisionError: a bug in the launch code",
        found[faulty("raises")].error,
    )
    assert found[faulty("aborts")].error.startswith("the compiler ended by SIGABRT")
    assert again[faulty("none", block=512)].outcome is Outcome.OK


def test_an_endless_compile_is_killed_with_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pids = tmp_path / "pids"
    monkeypatch.setenv("FAULTY_PIDS", str(pids))
    with pool(toy("faulty"), FAULTY, H200, deadline_s=2.0) as child:
        started = monotonic()
        found = compiled(child, [faulty("sleeps"), faulty("none")])
        assert monotonic() - started < 20
        assert found[faulty("none")].outcome is Outcome.OK
        assert found[faulty("sleeps")].outcome is Outcome.TIMEOUT
        assert found[faulty("sleeps")].error == "the compile took longer than its deadline of 2 s"
        until(lambda: not alive(int(pids.read_text())))


def test_the_pool_touches_neither_torch_nor_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.measure.processes.subprocess", subprocess)  # no fork of another process
    kernel = catalog.load("gemm")
    problem = kernel.signature.problem({"M": 64})
    with pool("gemm", problem, H200) as child:
        compiled(child, [kernel.default_config(problem, H200.limits)])
        mapped = Path(f"/proc/{child.pid}/maps").read_text()
    assert "libtriton" in mapped
    assert "libtorch" not in mapped
    assert "libcuda" not in mapped


def test_killing_the_caller_ends_pool_forks_and_their_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After kill -9 no code of the caller runs."""
    pids = tmp_path / "pids"
    monkeypatch.setenv("FAULTY_PIDS", str(pids))
    story = f"""
import time
from tuner import catalog
from tuner.kernels.spec import Limits
from tuner.measure.deadline import CompileSettings
from tuner.measure.messages import Pool
from tuner.measure.processes import Child
signature = catalog.resolve({toy("faulty")!r}).signature
child = Child("tuner.measure.compile")
limits, settings = Limits((9, 0), 132, 232448), CompileSettings(600.0)
child.send(Pool({toy("faulty")!r}, signature.problem({{"N": 1000}}), limits, 2, settings))
child.send(signature.config({{"BLOCK": 256, "FAULT": "sleeps", "num_warps": 1, "num_stages": 1}}))
print(child.pid, flush=True)
time.sleep(600)
"""
    caller = subprocess.Popen([sys.executable, "-P", "-c", story], stdout=subprocess.PIPE, text=True)
    assert caller.stdout is not None
    pool_pid = int(caller.stdout.readline())
    until(pids.exists)
    fork_pid = next(
        int(entry.name)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and _parent(int(entry.name)) == pool_pid
    )
    caller.send_signal(signal.SIGKILL)
    caller.wait()
    caller.stdout.close()
    left = [pool_pid, fork_pid, int(pids.read_text())]
    until(lambda: not any(map(alive, left)))


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def test_another_shape_uses_the_same_compiled_code() -> None:
    """A gemm's sizes are arguments: its code depends only on whether 16 divides them."""
    signature = catalog.load("gemm").signature
    decode, other = (signature.problem({"M": M, "N": N, "K": 4096}) for M, N in ((16, 4096), (64, 6144)))
    small = {"BLOCK_M": 16, "BLOCK_N": 32, "BLOCK_K": 32, "GROUP_M": 1, "num_warps": 2, "num_stages": 3}
    configs = [signature.config({**small, "VARIANT": variant}) for variant in ("tiles", "persistent")]
    with pool("gemm", decode, H200) as child:
        assert all(result.compile_s for result in compiled(child, configs).values())
        for config in configs:
            child.send(Compile(other, config))
        found: list[Compiled] = [child.receive() for _ in configs]
    assert [(result.outcome, result.compile_s, result.problem) for result in found] == [(Outcome.OK, None, other)] * 2


def test_a_cache_that_cannot_be_written_is_no_fault_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "file"
    folder.write_text("no folder")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    kernel = catalog.load("softmax")
    problem = kernel.signature.problem({"M": 64, "N": 64, "dtype": "fp32"})
    config = kernel.default_config(problem, H200.limits)
    with pool("softmax", problem, H200) as child:
        found = compiled(child, [config])[config]
    assert (found.outcome, found.place) == (Outcome.ERROR, "")
    assert found.error.startswith(f"Triton's cache is a folder that can be written, and {folder} cannot (")
