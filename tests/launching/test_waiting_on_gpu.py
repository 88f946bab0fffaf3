"""Rows that programs share, on more streams than there are places."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tuner import ops
from tuner.kernels.spec import WAITING_STREAMS
from tuner.launching.waiting import Places

pytestmark = pytest.mark.gpu


def test_rows_are_shared_on_many_streams_at_once() -> None:
    x = torch.randn(1, 2**18, device="cuda")
    expected = torch.nn.functional.rms_norm(x, (2**18,), eps=1e-6)
    streams = [torch.cuda.Stream() for _ in range(3 * WAITING_STREAMS)]
    outs = [torch.empty_like(x) for _ in streams]
    torch.cuda.synchronize()
    for _ in range(50):
        for stream, out in zip(streams, outs, strict=True):
            with torch.cuda.stream(stream):
                ops.rms_norm(x, out=out)
                ops.softmax(x, out=out)
                ops.rms_norm(x, out=out)
    torch.cuda.synchronize()
    for out in outs:
        torch.testing.assert_close(out, expected)


def test_a_launch_is_not_drawn_into_the_graph_of_another_stream() -> None:
    captured, other = torch.cuda.Stream(), torch.cuda.Stream()
    x, out = torch.zeros(1, device="cuda"), torch.zeros(1, device="cuda")
    add = Places(most=1).placed(lambda stream, pointers: out.add_(1))

    def launch(stream: torch.cuda.Stream) -> None:
        with torch.cuda.stream(stream):
            add(stream.cuda_stream, ())

    torch.cuda.synchronize()
    launch(captured)
    graph = torch.cuda.CUDAGraph()
    with (
        ThreadPoolExecutor(1) as pool,
        torch.cuda.graph(graph, stream=captured, capture_error_mode="thread_local"),
    ):
        x.add_(1)
        pool.submit(launch, other).result()
    graph.replay()
    torch.cuda.synchronize()
    assert (x.item(), out.item()) == (1, 2)
