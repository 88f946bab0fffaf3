"""copy_column on a real card: every way from every memory, streams, threads, captured graphs, and a search."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pytest
import torch
from fresh_client import forget
from torch import Tensor

import tuner
from tuner import catalog, ops
from tuner.errors import UsageError
from tuner.kernels.calling import PreparedLaunch
from tuner.kernels.spec import Config, Limits
from tuner.launching.calls import PREPARED
from tuner.launching.launcher import prepare_launch
from tuner.measure.gpu import GpuMeasurer
from tuner.records import Comparison, Evidence

pytestmark = pytest.mark.gpu
KERNEL = catalog.load("copy_column")
WAYS = [
    ("device", "kernel"), ("device", "driver"), ("pinned", "kernel"), ("pinned", "driver"), ("pinned", "packed"),
    ("pageable", "driver"), ("pageable", "packed"),
]  # fmt: skip
MEMORIES = ("device", "pinned", "pageable")
_SLEEP = 200_000_000
"""Cycles for which a stream is kept busy, about 0.1 s."""


@pytest.fixture(autouse=True)
def nothing_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    forget()
    PREPARED.prepared.clear()
    yield
    forget()
    PREPARED.prepared.clear()


def limits() -> Limits:
    from tuner.measure.device import describe

    return describe(0).limits


def matrix(M: int, N: int, memory: str, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return a matrix of random bits."""
    drawn = torch.randint(-128, 127, (M, N * dtype.itemsize), dtype=torch.int8).view(dtype)
    return drawn.cuda() if memory == "device" else drawn.pin_memory() if memory == "pinned" else drawn


def bits(tensor: Tensor) -> Tensor:
    return tensor.cpu().reshape(-1).clone(memory_format=torch.contiguous_format).view(torch.int8)


def config(way: str) -> Config:
    knobs = {"BLOCK": 128, "WIDE": 0, "num_warps": 4, "num_stages": 1}
    return KERNEL.signature.config({"WAY": way, **knobs})


def prepared(way: str, memory: str, x: Tensor, out: Tensor) -> PreparedLaunch:
    names = {torch.float32: "fp32", torch.float16: "fp16", torch.int8: "int8", torch.int64: "int64"}
    values = {"M": x.shape[0], "N": max(1, x.stride(0)), "dtype": names[x.dtype], "memory": memory}
    return prepare_launch(KERNEL, KERNEL.signature.problem(values), config(way), {"x": x, "out": out}, limits())


@pytest.mark.parametrize("dtype", [torch.int8, torch.float16, torch.float32, torch.int64])
@pytest.mark.parametrize(("memory", "way"), WAYS)
def test_every_way_copies_every_bit(memory: str, way: str, dtype: torch.dtype) -> None:
    for M, N, column, apart in ((1, 1, 0, 1), (127, 3, 2, 1), (1311, 129, 128, 1), (70001, 17, 5, 3), (5000, 1, 0, 1)):
        x = matrix(M, N, memory, dtype)[:, column]
        out = torch.zeros(M, apart, dtype=dtype, device="cuda")
        prepared(way, memory, x, out[:, 0])((x.data_ptr(), out.data_ptr()))
        torch.cuda.synchronize()
        assert torch.equal(bits(out[:, 0]), bits(x)), (M, N)
        assert not out[:, 1:].any()


@pytest.mark.parametrize(("memory", "way"), WAYS)
def test_a_single_element_of_long_rows_is_copied(memory: str, way: str) -> None:
    """Its strides are larger than the driver takes."""
    x, out = matrix(1, 1, memory)[:, 0].as_strided((1,), (2**33,)), torch.zeros(1, device="cuda")
    problem = KERNEL.signature.problem({"M": 1, "N": 1, "memory": memory})
    given = {"x": x, "out": out.as_strided((1,), (2**33,))}
    prepare_launch(KERNEL, problem, config(way), given, limits())((x.data_ptr(), out.data_ptr()))
    torch.cuda.synchronize()
    assert torch.equal(bits(out), bits(x))


def test_the_host_packs_no_buffer_that_a_copy_still_reads() -> None:
    """The stream is busy, so all copies wait; the third call waits for the first."""
    inputs = [matrix(10_001, 5, "pinned") for _ in range(6)]
    outs = [torch.zeros(10_001, device="cuda") for _ in inputs]
    launch = prepared("packed", "pinned", inputs[0][:, 2], outs[0])
    torch.cuda._sleep(_SLEEP)
    for x, out in zip(inputs, outs, strict=True):
        launch((x[:, 2].data_ptr(), out.data_ptr()))
    torch.cuda.synchronize()
    assert all(torch.equal(bits(out), bits(x[:, 2])) for x, out in zip(inputs, outs, strict=True))


def test_a_dropped_launch_keeps_its_buffer_until_the_copy_is_done() -> None:
    x, out = matrix(10_001, 5, "pinned"), torch.zeros(10_001, device="cuda")
    launch = prepared("packed", "pinned", x[:, 1], out)
    torch.cuda._sleep(_SLEEP)
    launch((x[:, 1].data_ptr(), out.data_ptr()))
    del launch
    torch.empty(10_001, pin_memory=True).zero_()  # may be the same memory
    torch.cuda.synchronize()
    assert torch.equal(bits(out), bits(x[:, 1]))


@pytest.mark.parametrize("through_launch", [False, True])
def test_a_dropped_pinned_matrix_is_kept_until_it_is_read(through_launch: bool) -> None:
    def copied(x: Tensor) -> Tensor:
        out = torch.zeros(x.shape[0], device="cuda")
        if through_launch:
            tuner.launch("copy_column", x=x[:, 1], out=out, memory="pinned")
        else:
            ops.copy_column(x, 1, out=out)
        return out

    copied(matrix(10_001, 5, "pinned"))  # prepares the launch
    x = matrix(10_001, 5, "pinned")
    expected = bits(x[:, 1]).clone()
    torch.cuda.synchronize()
    torch.cuda._sleep(_SLEEP)
    out = copied(x)
    del x
    for _ in range(3):
        torch.empty(10_001, 5, pin_memory=True).zero_()  # may be the same memory
    torch.cuda.synchronize()
    assert torch.equal(bits(out), expected)


@pytest.mark.parametrize(("memory", "way"), WAYS)
def test_streams_and_threads_work_side_by_side(memory: str, way: str) -> None:
    """A thread begins without a context of the driver."""
    inputs = [matrix(20_011, 7, memory) for _ in range(4)]
    outs = [torch.zeros(20_011, device="cuda") for _ in inputs]
    torch.cuda.synchronize()
    launch = prepared(way, memory, inputs[0][:, 3], outs[0])
    failures: list[BaseException] = []

    def work(x: Tensor, out: Tensor) -> None:
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                for _ in range(5):
                    launch((x[:, 3].data_ptr(), out.data_ptr()))
        except BaseException as error:
            failures.append(error)
            raise

    threads = [Thread(target=work, args=each) for each in zip(inputs, outs, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert not failures
    assert all(torch.equal(bits(out), bits(x[:, 3])) for x, out in zip(inputs, outs, strict=True))


@pytest.mark.parametrize(("memory", "way"), [each for each in WAYS if each[0] != "pageable"])
def test_a_graph_copies_what_is_there_at_its_replay(memory: str, way: str, caplog: pytest.LogCaptureFixture) -> None:
    x, out = matrix(3001, 9, memory), torch.zeros(3001, device="cuda")
    launch, at = prepared(way, memory, x[:, 4], out), (x[:, 4].data_ptr(), out.data_ptr())
    launch(at)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with caplog.at_level(logging.WARNING, "tuner"), torch.cuda.graph(graph):
        launch(at)
    assert len(caplog.records) == (way == "packed")
    x.copy_(matrix(3001, 9, memory))
    torch.cuda.synchronize()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(bits(out), bits(x[:, 4]))


def test_a_graph_of_pageable_memory_is_refused_by_name() -> None:
    x, out, y = matrix(3001, 9, "pageable"), torch.zeros(3001, device="cuda"), torch.zeros(3, device="cuda")
    ops.copy_column(x, 4, out=out)
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        y.add_(1)
        with pytest.raises(UsageError, match="a CUDA graph repeats the work of the card alone, and copy_column M=3001"):
            ops.copy_column(x, 4, out=out)


@pytest.mark.parametrize("memory", MEMORIES)
def test_the_op_takes_each_memory_and_dtypes_of_each_width(memory: str) -> None:
    for dtype in (torch.bool, torch.float8_e4m3fn, torch.bfloat16, torch.float64, torch.complex64):
        x = matrix(1311, 5, memory, torch.int8 if dtype is torch.bool else dtype)
        x = x.gt(0) if dtype is torch.bool else x
        for column in (0, 3, -1):
            out = ops.copy_column(x, column)
            assert (out.is_cuda, out.dtype, out.shape) == (True, dtype, (1311,))
            assert torch.equal(bits(out), bits(x[:, column]))


@pytest.mark.parametrize("memory", MEMORIES)
def test_strides_that_no_way_takes_are_copied(memory: str) -> None:
    x = matrix(1, 5, memory).expand(300, 5)
    assert torch.equal(bits(ops.copy_column(x, 2)), bits(x[:, 2]))
    turned = matrix(7, 300, memory).t()
    assert torch.equal(bits(ops.copy_column(turned, 2)), bits(turned[:, 2]))
    assert ops.copy_column(matrix(3, 4, memory)[:0], 1).shape == (0,)


def test_torch_compiles_a_column_of_the_host_and_of_the_device() -> None:
    def twice(x: Tensor, y: Tensor) -> Tensor:
        return ops.copy_column(x, 1) + ops.copy_column(y, 2)

    x, y = torch.randn(301, 5).pin_memory(), torch.randn(301, 7, device="cuda")
    compiled = torch.compile(twice, fullgraph=True)
    assert torch.equal(compiled(x, y), x[:, 1].cuda() + y[:, 2])


@pytest.mark.parametrize("memory", MEMORIES)
def test_tuner_launch_takes_tensors_on_the_host(memory: str) -> None:
    x, out = matrix(1311, 5, memory), torch.zeros(1311, device="cuda")
    for _ in range(2):
        tuner.launch("copy_column", x=x[:, 1], out=out, memory=memory)
    torch.cuda.synchronize()
    assert torch.equal(bits(out), bits(x[:, 1]))
    if memory == "pinned":
        with pytest.raises(UsageError, match="pinned memory here, and it is pageable"):
            tuner.launch("copy_column", x=x.clone()[:, 1], out=out, memory=memory)


@pytest.mark.parametrize("memory", MEMORIES)
def test_every_way_is_checked_and_timed_beside_torch(memory: str) -> None:
    problem = KERNEL.signature.problem({"M": 20_011, "N": 65, "memory": memory})
    configs = [config(way) for each, way in WAYS if each == memory]
    measurer = GpuMeasurer("copy_column", problem, limits(), stop_beaten=False)
    try:
        for each in configs:
            measurer.submit(each)
        found = [measurer.next(timeout_s=60) for _ in configs]
        checked = measurer.recheck(configs, 1)
        rounds = measurer.compare(configs, 5, 30.0, 0)
    finally:
        measurer.close()
    assert all(each is not None and each.ok for each in found), found
    assert all(isinstance(each, Evidence) for each in checked), checked
    assert isinstance(rounds, Comparison)
    assert len(rounds.contenders) == len(configs) + 1
    assert all(1 < latency < 1e5 for each in rounds.rounds for latency in each)
