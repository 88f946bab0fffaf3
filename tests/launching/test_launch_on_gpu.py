"""`tuner.launch` on a real card: right, by prepared launches, with the tuned config."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from fresh_client import forget
from helpers import toy
from stored_on_card import keep
from triton.runtime.jit import JITFunction

import tuner
from tuner import catalog
from tuner.errors import UsageError
from tuner.kernels.spec import Config, Launch, Problem
from tuner.launching.launch import LAUNCHES

pytestmark = pytest.mark.gpu
DOUBLE = toy("double")


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    forget()
    LAUNCHES.clear()
    yield tmp_path / "tuner.db"
    forget()
    LAUNCHES.clear()


def refuse(*args: Any, **kwargs: Any) -> None:
    raise AssertionError("asked Triton")


def test_a_kernel_file_and_no_second_question_to_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    for n in (1, 129, 1000):
        x, out = torch.randn(n, device="cuda"), torch.zeros(n, device="cuda")
        tuner.launch(DOUBLE, x=x, out=out)
        assert torch.equal(out, 2 * x)
    monkeypatch.setattr(JITFunction, "run", refuse)
    x, out = torch.randn(1000, device="cuda"), torch.zeros(1000, device="cuda")
    tuner.launch(DOUBLE, x=x, out=out)
    assert torch.equal(out, 2 * x)


def test_the_tuned_config_is_what_runs(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    stored = keep(database, "softmax", {"M": 64, "N": 300}, num_warps=8)
    x, out = torch.randn(64, 300, device="cuda"), torch.zeros(64, 300, device="cuda")
    with caplog.at_level(logging.DEBUG, "tuner"):
        tuner.launch("softmax", x=x, out=out)
    assert f"launched with {stored.text} (exact)" in caplog.text
    assert torch.allclose(out, x.softmax(1))


def test_strides_that_launch_passes_on() -> None:
    a, b, out = torch.randn(64, 96).cuda().half(), torch.randn(48, 32).cuda().half(), torch.zeros(64, 32).cuda().half()
    tuner.launch("gemm", a=a[:, :48], b=b, out=out)
    assert torch.allclose(out.float(), a[:, :48].float() @ b.float(), atol=0.05)
    with pytest.raises(UsageError, match=r"double takes x with strides \(1,\) here, not \(2,\)"):
        tuner.launch(DOUBLE, x=torch.randn(200, device="cuda")[::2], out=torch.zeros(100, device="cuda"))


def test_in_a_captured_graph() -> None:
    x, out = torch.randn(1000, device="cuda"), torch.zeros(1000, device="cuda")
    tuner.launch(DOUBLE, x=x, out=out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        tuner.launch(DOUBLE, x=x, out=out)
    x.copy_(torch.randn(1000, device="cuda"))
    graph.replay()
    assert torch.equal(out, 2 * x)


def hooked(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    (launch,) = catalog.resolve(DOUBLE).launch(problem, config, tensors)
    return (replace(launch, pre_hook=lambda named: named["x"].add_(1)),)


def test_a_launch_with_a_hook_gets_its_tensors() -> None:
    kernel = replace(catalog.resolve(DOUBLE), launch=hooked)
    x, out = torch.zeros(1000, device="cuda"), torch.zeros(1000, device="cuda")
    for count in (1, 2, 3):
        tuner.launch(kernel, x=x, out=out)
        assert torch.equal(x, torch.full_like(x, count))
        assert torch.equal(out, 2 * x)


def test_after_a_refresh_newer_answers_run(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    x, out = torch.randn(64, 300, device="cuda"), torch.zeros(64, 300, device="cuda")
    tuner.launch("softmax", x=x, out=out)
    stored = keep(database, "softmax", {"M": 64, "N": 300}, num_warps=8)
    with caplog.at_level(logging.DEBUG, "tuner"):
        tuner.launch("softmax", x=x, out=out)
        assert stored.text not in caplog.text
        tuner.refresh()
        tuner.launch("softmax", x=x, out=out)
    assert f"launched with {stored.text} (exact)" in caplog.text


def test_a_tensor_on_the_cpu_is_refused() -> None:
    x, out = torch.randn(1000, device="cuda"), torch.zeros(1000, device="cuda")
    tuner.launch(DOUBLE, x=x, out=out)
    with pytest.raises(UsageError, match="x is on cpu but out is on cuda:0"):
        tuner.launch(DOUBLE, x=x.cpu(), out=out)
