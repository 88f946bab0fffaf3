"""What a card reaches at best: a copy, matmuls, and nothing at all, timed by the clocks that time configs."""

from __future__ import annotations

import torch
import triton

from tuner.measure.clock import Clock, EventClock, Run, clock_of
from tuner.measure.tensors import dtype_of
from tuner.records import POLICIES, RooflineLimits, median

_COPY_BYTES = 2**30
"""Of either side: far more than any L2."""
_MATMUL_SIZE = {"bf16": 8192, "fp16": 8192, "fp32": 4096, "tf32": 4096, "fp8e4m3": 8192}
_SAMPLES = 10


@triton.jit  # type: ignore[untyped-decorator]
def _nothing() -> None:
    pass


def measure(device: str) -> RooflineLimits:
    """Takes a second or two, and 2 GB."""
    events = EventClock(device)
    return RooflineLimits(
        copy_gb_per_s=_copy_gb_per_s(events, device),
        tflops={
            dtype: _tflops(events, dtype, size, device)
            for dtype, size in _MATMUL_SIZE.items()
            if dtype != "fp8e4m3" or torch.cuda.get_device_capability(device) >= (8, 9)
        },
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
        return 2 * size**3 / _latency(clock, _scaled(a, b) if dtype == "fp8e4m3" else _plain(a, b)) / 1e6
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _plain(a: torch.Tensor, b: torch.Tensor) -> Run:
    out = torch.empty_like(a)
    return lambda: torch.matmul(a, b, out=out)


def _scaled(a: torch.Tensor, b: torch.Tensor) -> Run:
    """Of 8-bit floats, with sums as the tensor cores keep them, which is the fastest there is."""
    one, out = torch.ones(1, device=a.device), torch.empty_like(a, dtype=torch.bfloat16)
    return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=out.dtype, use_fast_accum=True, out=out)


def _latency(clock: Clock, run: Run) -> float:
    run()
    return median(clock.timer([run] * clock.copies(1))(_SAMPLES))
