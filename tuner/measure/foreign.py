"""Search spaces as others write them: Kernel Tuner's cache files and files in the auto-tuning community's T4 schema.

Latencies come out as they went in; which unit they have does not matter to a replay. Configs keep the file's order.
Ours are T4 as they are, and are written as a cache for Kernel Tuner's simulation mode.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.errors import UsageError, reason
from tuner.kernels.spec import Config, Value
from tuner.records import Measurement, Outcome

_T4_OUTCOMES = {
    "compile": Outcome.COMPILE_ERROR,
    "timeout": Outcome.TIMEOUT,
    "correctness": Outcome.WRONG_RESULT,
    "constraints": Outcome.INFEASIBLE,
}
_CACHE_OUTCOMES = {
    "CompilationFailedConfig": Outcome.COMPILE_ERROR,
    "InvalidConfig": Outcome.INFEASIBLE,
}
_CACHE_ERRORS = {outcome: error for error, outcome in _CACHE_OUTCOMES.items()}


def load(path: Path) -> tuple[Measurement, ...]:
    """Every config of the file, gzipped or not.

    Raises:
        UsageError: the file cannot be read, or is in neither format.
    """
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
        document = json.loads(text if text.rstrip().endswith("}") else f"{text.rstrip().rstrip(',')}}}}}")
        if "cache" in document:
            names = document["tune_params_keys"]
            measurements = tuple(_of_cache(names, entry) for entry in document["cache"].values())
        else:
            measurements = tuple(map(of_t4, document["results"]))
        if not any(measurement.ok for measurement in measurements):
            raise UsageError(f"{path.name} has no config that ran right, so there is nothing to find")
        return measurements
    except (OSError, EOFError, zlib.error, ValueError, KeyError, TypeError, AttributeError) as error:
        what = "neither a Kernel Tuner cache nor a T4 file"
        raise UsageError(f"{path.name} is {what}: {reason(error)}") from error


def as_cache(measurements: Sequence[Measurement], kernel: str, sizes: Sequence[int], device: str) -> str:
    """A Kernel Tuner cache file. `time` is the median of `times`, in milliseconds; a failure keeps its kind."""
    configs = [measurement.config for measurement in measurements]
    choices = {name: sorted({config[name] for config in configs}, key=_in_order) for name in configs[0]}
    document = {
        "device_name": device,
        "kernel_name": kernel,
        "problem_size": [*sizes],
        "tune_params_keys": [*choices],
        "tune_params": choices,
        "objective": "time",
        "cache": {
            ",".join(str(measurement.config[name]) for name in choices): _cache_entry(measurement)
            for measurement in measurements
        },
    }
    return json.dumps(document)


def _in_order(value: Value) -> tuple[bool, Value]:
    return isinstance(value, str), value


def _cache_entry(measurement: Measurement) -> dict[str, Any]:
    times = [round(sample / 1000, 7) for sample in measurement.samples]
    measured = {"time": measurement.latency_us / 1000, "times": times}
    failed = {"time": _CACHE_ERRORS.get(measurement.outcome, "RuntimeFailedConfig")}
    return {
        **measurement.config,
        **(measured if measurement.ok else failed),
        "compile_time": 1000 * (measurement.compile_s or 0.0),
        "verification_time": 0,
        "benchmark_time": sum(times),
        "strategy_time": 0,
        "framework_time": 0,
    }


def _of_cache(names: list[str], entry: dict[str, Any]) -> Measurement:
    config = _config({name: entry[name] for name in names})
    if isinstance(entry["time"], str):  # the name of what went wrong
        return Measurement(config, _CACHE_OUTCOMES.get(entry["time"], Outcome.ERROR))
    return Measurement(config, Outcome.OK, tuple(map(float, entry.get("times") or [entry["time"]])))


def of_t4(result: Mapping[str, Any]) -> Measurement:
    """One of a T4 file's results, in the file's unit of time. One that has no times did not run right.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is none.
    """
    config = _config(result["configuration"])
    if result["invalidity"] != "correct":
        return Measurement(config, _T4_OUTCOMES.get(result["invalidity"], Outcome.ERROR))
    if not result.get("correctness", 1):
        return Measurement(config, Outcome.WRONG_RESULT)
    times = result["times"].get("runtimes") or [m["value"] for m in result["measurements"] if m["name"] == "time"]
    return Measurement(config, Outcome.OK if times else Outcome.ERROR, tuple(map(float, times)))


def _config(values: Mapping[str, Any]) -> Config:
    return Config(values, " ".join(f"{name}={values[name]}" for name in sorted(values)))
