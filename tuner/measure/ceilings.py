"""What a card reaches at best: a copy, matmuls, and nothing at all, timed by the clocks that time configs."""

from __future__ import annotations

import torch
import triton

from tuner.measure.clock import Clock, EventClock, Run, clock_of
from tuner.measure.tensors import dtype_of
from tuner.records import POLICIES, Ceilings, median

_COPY_BYTES = 2**30
"""Of either side: far more than any L2."""
_MATMUL_SIZE = {"bf16": 8192, "fp16": 8192, "fp32": 4096, "tf32": 4096}
_SAMPLES = 10


@triton.jit  # type: ignore[untyped-decorator]
def _nothing() -> None:
    pass


def measure(device: str) -> Ceilings:
    """Takes a second or two, and 2 GB."""
    events = EventClock(device)
    return Ceilings(
        copy_gb_per_s=_copy_gb_per_s(events, device),
        tflops={dtype: _tflops(events, dtype, size, device) for dtype, size in _MATMUL_SIZE.items()},
        launch_us={policy.text: _latency(clock_of(policy, device), _nothing[(1,)]) for policy in POLICIES.values()},
    )


def _copy_gb_per_s(clock: Clock, device: str) -> float:
    source = torch.zeros(_COPY_BYTES, dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    return 2 * _COPY_BYTES / _latency(clock, lambda: target.copy_(source)) / 1e3


def _tflops(clock: Clock, dtype: str, size: int, device: str) -> float:
    """Of a square matmul on random data, which costs the clocks some of what zeros would reach."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    try:
        a, b = (torch.randn(size, size, device=device).to(dtype_of(dtype.replace("tf32", "fp32"))) for _ in range(2))
        out = torch.empty_like(a)
        return 2 * size**3 / _latency(clock, lambda: torch.matmul(a, b, out=out)) / 1e6
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _latency(clock: Clock, run: Run) -> float:
    run()
    return median(clock.timer([run] * clock.copies(1))(_SAMPLES))
