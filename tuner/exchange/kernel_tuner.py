"""Kernel Tuner's cache files: every config of one problem with its times in milliseconds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.exchange.imported import unchecked_config
from tuner.kernels.spec import Value
from tuner.records import Measurement, Outcome

_OUTCOMES = {
    "CompilationFailedConfig": Outcome.COMPILE_ERROR,
    "InvalidConfig": Outcome.INFEASIBLE,
}
_ERRORS = {outcome: error for error, outcome in _OUTCOMES.items()}
"""Kernel Tuner's name of an outcome; `RuntimeFailedConfig` for the others that failed."""


def is_cache(document: Mapping[str, Any]) -> bool:
    """Return whether a JSON document is a Kernel Tuner cache."""
    return "cache" in document


def completed(text: str) -> str:
    """Return the JSON of a cache, closed if its search was interrupted: Kernel Tuner closes it when a search ends."""
    text = text.rstrip()
    return text if text.endswith("}") else f"{text.rstrip(',')}}}}}"


def read_cache(document: Mapping[str, Any]) -> tuple[Measurement, ...]:
    """Return the measurements of a cache, in its unit and order.

    Raises:
        MALFORMED: The document is not a cache.
    """
    names = document["tune_params_keys"]
    return tuple(_measurement(names, entry) for entry in document["cache"].values())


def to_cache(measurements: Sequence[Measurement], kernel: str, sizes: Sequence[int], device: str) -> str:
    """Return a cache file. `time` is the median of `times`, in milliseconds; a failure keeps its kind."""
    configs = [measurement.config for measurement in measurements]
    choices = {name: sorted({config[name] for config in configs}, key=_sort_key) for name in configs[0]}
    document = {
        "device_name": device,
        "kernel_name": kernel,
        "problem_size": [*sizes],
        "tune_params_keys": [*choices],
        "tune_params": choices,
        "objective": "time",
        "cache": {
            ",".join(str(measurement.config[name]) for name in choices): _entry(measurement)
            for measurement in measurements
        },
    }
    return json.dumps(document)


def _sort_key(value: Value) -> tuple[bool, Value]:
    """Return a key that sorts numbers before texts."""
    return isinstance(value, str), value


def _entry(measurement: Measurement) -> dict[str, Any]:
    times = [round(sample / 1000, 7) for sample in measurement.samples]
    measured = {"time": measurement.latency_us / 1000, "times": times}
    failed = {"time": _ERRORS.get(measurement.outcome, "RuntimeFailedConfig")}
    return {
        **measurement.config,
        **(measured if measurement.ok else failed),
        "compile_time": 1000 * (measurement.compile_s or 0.0),
        "verification_time": 0,
        "benchmark_time": sum(times),
        "strategy_time": 0,
        "framework_time": 0,
    }


def _measurement(names: Sequence[str], entry: Mapping[str, Any]) -> Measurement:
    config = unchecked_config({name: entry[name] for name in names})
    if isinstance(entry["time"], str):  # the name of an error
        return Measurement(config, _OUTCOMES.get(entry["time"], Outcome.ERROR))
    return Measurement(config, Outcome.OK, tuple(map(float, entry.get("times") or [entry["time"]])))
