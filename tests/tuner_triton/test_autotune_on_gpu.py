"""Autotuned functions on a real card: captured, tuned, served, in graphs, under torch.compile, and if refused."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import triton
from fresh_client import forget
from helpers import toy

from tuner.captured.kernel import kernel_of
from tuner.captured.problem import problem_of_call
from tuner.db.store import Store
from tuner.kernels.spec import Value
from tuner.measure import device
from tuner.records import Answer, Comparison, Provenance
from tuner.triton import install, uninstall
from tuner.triton.context import CONTEXT
from tuner.triton.describe import describe

pytestmark = pytest.mark.gpu
INDUCTOR_WARNS = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
LARGE: Mapping[str, Value] = {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 32, "num_warps": 8, "num_stages": 3}
TOO_LARGE: Mapping[str, Value] = {"BLOCK_M": 256, "BLOCK_N": 128, "BLOCK_K": 64, "num_warps": 4, "num_stages": 4}


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """The toy script as a module, with `install` in effect and a database of its own."""
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    monkeypatch.delenv("TUNER_AUTOTUNE", raising=False)
    forget()
    CONTEXT.warn.clear()
    spec = importlib.util.spec_from_file_location("served_script", toy("served_script"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "served_script", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module.matmul, "_do_bench", refuse)
    install()
    yield module
    uninstall()
    forget()


def refuse(*args: Any, **options: Any) -> Any:
    raise AssertionError("a config is timed")


def draw(size: int) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(size)
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in "ab")
    return a, b


def is_right(c: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> bool:
    return bool(torch.allclose(c.float(), a.float() @ b.float(), atol=0.5, rtol=0.02))


def keep(module: ModuleType, size: int, config: Mapping[str, Value]) -> None:
    """Store an answer for a matmul of such matrices."""
    a, b = draw(size)
    call = describe(module.matmul, (a, b, a, size, size, size), {})
    kernel, problem = kernel_of(call, function=module.matmul), problem_of_call(call)
    here = Provenance(device.describe(0), device.environment(0), kernel.source, "cold-events-1")
    known = kernel.signature.config(config)
    answer = Answer(problem, "tuned", known, 10.0, (9.9, 10.1), 1.25, (1.2, 1.3), 12.5, 9.75)
    store = Store.open(os.environ["TUNER_DB"])
    run = store.start_run(kernel.signature, problem, here, {"known": 0})
    store.add_answer(run, answer, here, "trials", {}, Comparison((known.text,), ((10.0,),)))
    store.close()


def test_a_stored_config_is_launched_and_nothing_is_timed(script: ModuleType) -> None:
    keep(script, 512, LARGE)
    for size in (512, 512, 300):
        a, b = draw(size)
        assert is_right(script.call(a, b), a, b)
    assert sorted(config.kwargs["BLOCK_M"] for config in script.matmul.cache.values()) == [16, 128]


def test_a_config_that_does_not_fit_the_card_is_replaced(script: ModuleType, caplog: pytest.LogCaptureFixture) -> None:
    keep(script, 512, {**TOO_LARGE, "num_stages": 4, "BLOCK_K": 64})
    a, b = draw(512)
    assert is_right(script.call(a, b), a, b)
    assert script.matmul.best_config.kwargs["BLOCK_M"] in (16, 256)  # the card may take it
    assert ("cannot be launched" in caplog.text) == (script.matmul.best_config.kwargs["BLOCK_M"] == 16)


def test_the_first_call_may_be_in_a_graph(script: ModuleType) -> None:
    keep(script, 512, LARGE)
    a, b = draw(512)
    warm = torch.zeros(8, device="cuda") + 1
    assert warm.sum().item() == 8
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        c = script.call(a, b)
    c.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert is_right(c, a, b)
    assert script.matmul.best_config.kwargs["BLOCK_M"] == 128


@INDUCTOR_WARNS
def test_torch_compile_launches_the_stored_config_without_a_benchmark(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._inductor import config as inductor
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    timed: list[str] = []
    benchmark = CachingAutotuner.benchmark_all_configs

    def counting(self: Any, *args: Any, **options: Any) -> Any:
        timed.append(self.fn.__name__)
        return benchmark(self, *args, **options)

    monkeypatch.setattr(CachingAutotuner, "benchmark_all_configs", counting)
    keep(script, 512, LARGE)
    compiled = torch.compile(lambda a, b: script.call(a, b) + 1, fullgraph=True)
    a, b = draw(512)
    with inductor.patch(force_disable_caches=True):  # else a benchmark would be left out in a second run
        assert is_right(compiled(a, b) - 1, a, b)
    assert [name for name in timed if not name.startswith("triton_")] == []  # those are of Inductor's own kernels
    torch._dynamo.reset()


def test_a_call_is_tuned_in_the_worker(script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TUNER_AUTOTUNE", "tune")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(script.matmul, "_do_bench", None)
    monkeypatch.setattr(triton.runtime.driver.active, "get_benchmarker", lambda: refuse)
    a, b = draw(512)
    before = a.clone()
    assert is_right(script.call(a, b), a, b)
    assert torch.equal(a, before)
    store = Store.open(os.environ["TUNER_DB"])
    (stored,) = store.answers()
    store.close()
    assert stored.answer.basis == "agreement"
    assert stored.answer.config["BLOCK_M"] == script.matmul.best_config.kwargs["BLOCK_M"]
    forget()
    CONTEXT.forget()
    monkeypatch.setenv("TUNER_AUTOTUNE", "serve")
    assert is_right(script.call(a, b), a, b)
    assert script.matmul.best_config.kwargs["BLOCK_M"] == stored.answer.config["BLOCK_M"]


def test_a_script_is_captured_tuned_and_served_without_an_edit(tmp_path: Path) -> None:
    environment = {**os.environ, "TUNER_DB": str(tmp_path / "tuner.db"), "XDG_CACHE_HOME": str(tmp_path)}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "tuner", *command], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    sizes = "1536", "2048"  # of smaller ones, the first config may be the best: it makes the most blocks
    captured = run("run", "--mode", "capture", toy("served_script"), *sizes)
    assert "timed 0 right True block 16" in captured
    assert "2 captured" in captured
    run("search", "--captured", "--effort", "quick")
    store = Store.open(tmp_path / "tuner.db")
    blocks = [
        stored.answer.config["BLOCK_M"] for stored in store.answers() if stored.answer.problem.values["M"] == 2048
    ]
    store.close()
    assert blocks in ([64], [128])
    served = run("run", toy("served_script"), *sizes)
    assert f"timed 0 right True block {blocks[0]}" in served
    assert "2 exact" in served
