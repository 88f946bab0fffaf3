"""Rows that programs share, on more streams than there are places."""

from __future__ import annotations

import pytest
import torch

from tuner import ops
from tuner.kernels.spec import WAITING_STREAMS

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
