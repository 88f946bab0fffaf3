"""Roofline limits of a card: best copy bandwidth, matmul rate and launch latency, timed by the policies' clocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
import triton

from tuner.measure.clock import Clock, EventClock, Run, clock_of
from tuner.measure.tensors import dtype_of
from tuner.records import POLICIES, RooflineLimits, median


@dataclass(frozen=True)
class RooflineSettings:
    """Sizes of the measured operations."""

    copy_bytes: int = 2**30
    """Size of the source and of the target of the copy, in bytes. Source: far larger than any L2."""
    matmul_size: Mapping[str, int] = field(
        default_factory=lambda: {"bf16": 8192, "fp16": 8192, "fp32": 4096, "tf32": 4096, "fp8e4m3": 8192}
    )
    """Rows and columns of the square matmuls, by dtype. Source: large enough to fill a data-centre card."""
    samples: int = 10
    """Number of samples whose median counts. Source: chosen."""


ROOFLINE_SETTINGS = RooflineSettings()


@triton.jit  # type: ignore[untyped-decorator]
def _nothing() -> None:
    pass


def measure(device: str, settings: RooflineSettings = ROOFLINE_SETTINGS) -> RooflineLimits:
    """Measure the limits of a card, in 1 to 2 s and with 2 GB of its memory."""
    events = EventClock(device)
    return RooflineLimits(
        copy_gb_per_s=_copy_gb_per_s(events, device, settings),
        tflops={
            dtype: _tflops(events, dtype, size, device, settings)
            for dtype, size in settings.matmul_size.items()
            if dtype != "fp8e4m3" or torch.cuda.get_device_capability(device) >= (8, 9)
        },
        launch_us={
            policy.text: _latency_us(clock_of(policy, device), _nothing[(1,)], settings) for policy in POLICIES.values()
        },
    )


def _copy_gb_per_s(clock: Clock, device: str, settings: RooflineSettings) -> float:
    source = torch.zeros(settings.copy_bytes, dtype=torch.int8, device=device)
    target = torch.empty_like(source)
    return 2 * settings.copy_bytes / _latency_us(clock, lambda: target.copy_(source), settings) / 1e3


def _tflops(clock: Clock, dtype: str, size: int, device: str, settings: RooflineSettings) -> float:
    """Measure a square matmul on random data, which lowers the clocks; zeros would seem faster."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = dtype == "tf32"
    try:
        a, b = (torch.randn(size, size, device=device).to(dtype_of(dtype.replace("tf32", "fp32"))) for _ in range(2))
        run = _scaled_matmul(a, b) if dtype == "fp8e4m3" else _matmul(a, b)
        return 2 * size**3 / _latency_us(clock, run, settings) / 1e6
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _matmul(a: torch.Tensor, b: torch.Tensor) -> Run:
    out = torch.empty_like(a)
    return lambda: torch.matmul(a, b, out=out)


def _scaled_matmul(a: torch.Tensor, b: torch.Tensor) -> Run:
    """Return a matmul of 8-bit floats with the tensor cores' own accumulation, the fastest mode."""
    one, out = torch.ones(1, device=a.device), torch.empty_like(a, dtype=torch.bfloat16)
    return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=out.dtype, use_fast_accum=True, out=out)


def _latency_us(clock: Clock, run: Run, settings: RooflineSettings) -> float:
    run()
    return median(clock.timer([run] * clock.operand_sets(1))(settings.samples))
