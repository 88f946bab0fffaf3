"""Samples of one config: the more, the closer it is to the best."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.measure.clock import Timer
from tuner.records import FEWEST_SAMPLES, SLOW_US, median
from tuner.records.measurement import are_latencies


@dataclass(frozen=True)
class SamplingSettings:
    """Number of samples of a config, by how far it is behind the best."""

    first_samples: int = 3
    """Number of samples of the first look at a config. Source: chosen."""
    much_slower: float = 2.0
    """Latency over the best from which a config gets only the first samples. Source: chosen."""
    slower: float = 1.25
    """Latency over the best from which a config gets `FEWEST_SAMPLES`. Source: chosen."""
    device_ms: float = 4.0
    """Device time of the samples beyond `FEWEST_SAMPLES`, in ms, without flushes. Source: chosen."""
    most_samples: int = 40
    """Largest number of samples. Source: 10 give a 180 us GEMM within 1 %; a 6 us kernel needs 40 for 3 %."""


SAMPLING_SETTINGS = SamplingSettings()


def samples_of(
    timer: Timer, launches_per_sample: int, best_us: float | None, settings: SamplingSettings = SAMPLING_SETTINGS
) -> tuple[float, ...]:
    """Return samples of a config, in us.

    Args:
        best_us: best latency so far; None gives each config all samples.

    Raises:
        ValueError: a sample is not finite and above 0.
    """
    first = checked(timer(settings.first_samples))
    behind = 1.0 if best_us is None else min(first) / best_us
    if median(first) >= SLOW_US or behind > settings.much_slower:
        return tuple(first)
    sample_us = median(first) * launches_per_sample
    count = max(FEWEST_SAMPLES, min(settings.most_samples, int(settings.device_ms * 1000 / sample_us)))
    return tuple(checked(timer(FEWEST_SAMPLES if behind > settings.slower else count)))


def checked(samples: list[float]) -> list[float]:
    """Return samples, in us. Raises ValueError if one is not finite and above 0."""
    for sample in samples:
        if not are_latencies([sample]):
            raise ValueError(f"a latency is finite and above 0, not {sample:g} us")
    return samples
