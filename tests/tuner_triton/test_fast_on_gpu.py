"""Repeated calls of autotuned functions on a real card: right, by the launcher in C, wherever model code calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from fresh_client import forget
from torch import Tensor
from triton import knobs
from triton.compiler import CompiledKernel

from tuner.triton import autotune, install, uninstall

pytestmark = pytest.mark.gpu
CONFIGS = [triton.Config({"BLOCK": block}, num_warps=4) for block in (128, 256)]


@triton.jit  # type: ignore[untyped-decorator]
def scale_(x, out, n, factor, step, BLOCK: tl.constexpr, EVEN: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (at < n) | EVEN
    tl.store(out + at * step, tl.load(x + at * step, mask=mask) * factor, mask=mask)


HEURISTICS = triton.heuristics({"EVEN": lambda named: named["n"] % named["BLOCK"] == 0})
scale = autotune(CONFIGS, key=["step"])(HEURISTICS(scale_))
plain = triton.autotune(CONFIGS, key=["step"])(HEURISTICS(scale_))


def grid(meta: dict[str, Any]) -> tuple[int]:
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    monkeypatch.delenv("TUNER_AUTOTUNE", raising=False)
    forget()
    yield
    forget()


@pytest.fixture
def only_in_c(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let Triton refuse to launch from now on, so that only kept launches run.

    Triton asks for a launch's metadata at each launch. A patch of `JITFunction.run` would be called in place of kept
    launches, since profilers patch it to count launches.
    """

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("asked Triton")

    return lambda: monkeypatch.setattr(CompiledKernel, "launch_metadata", refuse)


def call(x: Tensor, n: int, factor: float = 2.0, fn: Any = scale) -> Tensor:
    out = torch.zeros_like(x)
    fn[grid](x, out, n, factor, 1)
    return out


def right(out: Tensor, x: Tensor, n: int, factor: float = 2.0) -> bool:
    return torch.equal(out[:n], (x[:n].float() * factor).to(x.dtype)) and not bool(out[n:].any())


VIEWS = [(0, torch.float32), (1, torch.float32), (0, torch.float16), (3, torch.bfloat16)]
"""First element of a view, and dtype: two of the views are not aligned to 16 bytes."""


def test_sizes_that_vary_dtypes_and_views(only_in_c: Callable[[], None]) -> None:
    for first, dtype in VIEWS:
        x = torch.randn(5000, device="cuda").to(dtype)[first:]
        for n in (1, 16, 100, 1000, 1024):
            assert right(call(x, n), x, n)
    only_in_c()
    for first, dtype in VIEWS:
        for n in range(1000, 1030, 3):
            x = torch.randn(5000, device="cuda").to(dtype)[first:]
            for factor in (0.5, 3.0):
                assert right(call(x, n, factor), x, n, factor)


def test_installed(only_in_c: Callable[[], None]) -> None:
    install()
    try:
        x = torch.randn(1000, device="cuda")
        for _ in range(2):
            assert right(call(x, 1000, fn=plain), x, 1000)
        only_in_c()
        assert right(call(x, 1000, 3.0, fn=plain), x, 1000, 3.0)
    finally:
        uninstall()


def test_in_a_captured_graph(only_in_c: Callable[[], None]) -> None:
    x, out = torch.randn(1000, device="cuda"), torch.zeros(1000, device="cuda")
    scale[grid](x, out, 1000, 2.0, 1)
    out.zero_()
    only_in_c()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        scale[grid](x, out, 1000, 2.0, 1)
    assert not bool(out.any())
    x.copy_(torch.randn(1000, device="cuda"))
    graph.replay()
    assert torch.equal(out, 2 * x)


def test_streams_and_threads(only_in_c: Callable[[], None]) -> None:
    x = torch.randn(1 << 20, device="cuda")
    call(x, 1 << 20)
    only_in_c()

    def work(number: int) -> list[bool]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            return [
                right(call(own, 1 << 20, float(number)), own, 1 << 20, float(number))
                for own in (x + number for _ in range(20))
            ]

    with ThreadPoolExecutor(4) as threads:
        assert all(map(all, threads.map(work, range(4))))


def test_a_hook_is_called() -> None:
    x, seen = torch.randn(1000, device="cuda"), []
    call(x, 1000)
    hook = lambda metadata: seen.append(metadata.get()["name"])  # noqa: E731
    knobs.runtime.launch_enter_hook.add(hook)
    try:
        assert right(call(x, 1000), x, 1000)
    finally:
        knobs.runtime.launch_enter_hook.remove(hook)
    assert seen == ["scale_"]


def test_a_tensor_elsewhere_is_refused_as_triton_refuses_it() -> None:
    x = torch.randn(1000, device="cuda")
    for _ in range(2):
        call(x, 1000)
    with pytest.raises(ValueError, match="cannot be accessed from Triton"):
        call(x.cpu(), 1000)


def test_on_the_current_card(only_in_c: Callable[[], None]) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two cards")
    for _ in range(2):
        for index in (0, 1):
            with torch.cuda.device(index):
                x = torch.randn(1000, device="cuda")
                assert right(call(x, 1000), x, 1000)
