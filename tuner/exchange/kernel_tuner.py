"""Kernel Tuner's cache files: every config of one problem with its times in milliseconds.

A cache names the card, the kernel and the sizes of its problem, but neither the sizes' names nor the dtype.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.errors import UsageError, reason
from tuner.exchange.imported import (
    UNKNOWN_FORMAT,
    ImportedConfig,
    ImportFile,
    ImportOptions,
    sizes_and_attributes,
    unchecked_config,
)
from tuner.exchange.timings import TIME, check_objectives, fastest, measured
from tuner.kernels.values import ordering
from tuner.records import Measurement, Outcome
from tuner.records.strict import MALFORMED

_POLICY = "kernel-tuner"
_OUTCOMES = {
    "CompilationFailedConfig": Outcome.COMPILE_ERROR,
    "InvalidConfig": Outcome.INFEASIBLE,
    "RuntimeFailedConfig": Outcome.ERROR,
    "ErrorConfig": Outcome.ERROR,
}
"""Outcomes by Kernel Tuner's names, which stand in place of a failed config's objective."""
_NAMES: Mapping[Outcome, str] = {outcome: name for name, outcome in _OUTCOMES.items() if outcome is not Outcome.ERROR}


def is_cache(document: Mapping[str, Any]) -> bool:
    """Return whether a JSON document is a Kernel Tuner cache."""
    return "cache" in document and "tune_params_keys" in document


def imported_config(file: ImportFile, options: ImportOptions) -> ImportedConfig | None:
    """Return the fastest config of a cache, or None if the file is not one.

    Raises:
        UsageError: It was not tuned for time, no config ran, or the options do not state the problem.
    """
    document = file.document
    if not isinstance(document, dict) or not is_cache(document):
        return None
    try:
        config, milliseconds = fastest(read_cache(document))
    except MALFORMED as error:
        raise UsageError(f"{UNKNOWN_FORMAT}: {reason(error)}") from error
    values = _problem(document, options.problem)
    sizes, attributes = sizes_and_attributes(values)
    device = options.device or document.get("device_name")
    if not isinstance(device, str):
        raise UsageError("this cache does not state its card; give --device ID")
    return ImportedConfig(
        file=file.shown,
        op=options.op or re.sub(r"\W", "_", str(document.get("kernel_name", ""))).lower().lstrip("_"),
        dims=sizes,
        config=config,
        device=device,
        dtype=values["dtype"],
        attributes=attributes,
        triton=options.triton,
        policy=_POLICY,
        latency_us=1000 * milliseconds,
    )


def read_cache(document: Mapping[str, Any]) -> tuple[Measurement, ...]:
    """Return the measurements of a cache, in its unit and order.

    Raises:
        UsageError: It was tuned for another objective than time.
        MALFORMED: The document is not a cache.
    """
    check_objectives(document.get("objective"))
    names = document["tune_params_keys"]
    return tuple(_measurement(names, entry) for entry in document["cache"].values())


def to_cache(measurements: Sequence[Measurement], kernel: str, sizes: Sequence[int], device: str) -> str:
    """Return a cache file. `time` is the median of `times`, in milliseconds; a failure keeps its kind."""
    configs = [measurement.config for measurement in measurements]
    choices = {name: sorted({config[name] for config in configs}, key=ordering) for name in configs[0]}
    document = {
        "device_name": device,
        "kernel_name": kernel,
        "problem_size": [*sizes],
        "tune_params_keys": [*choices],
        "tune_params": choices,
        "objective": TIME,
        "cache": {
            ",".join(str(measurement.config[name]) for name in choices): _entry(measurement)
            for measurement in measurements
        },
    }
    return json.dumps(document)


def _entry(measurement: Measurement) -> dict[str, Any]:
    times = [round(sample / 1000, 7) for sample in measurement.samples]
    ran = {"time": measurement.latency_us / 1000, "times": times}
    failed = {"time": _NAMES.get(measurement.outcome, "RuntimeFailedConfig")}
    return {
        **measurement.config,
        **(ran if measurement.ok else failed),
        "compile_time": 1000 * (measurement.compile_s or 0.0),
        "verification_time": 0,
        "benchmark_time": sum(times),
        "strategy_time": 0,
        "framework_time": 0,
    }


def _measurement(names: Sequence[str], entry: Mapping[str, Any]) -> Measurement:
    config = unchecked_config({name: entry[name] for name in names})
    for name, value in entry.items():
        if name not in names and isinstance(value, str) and value in _OUTCOMES:
            return Measurement(config, _OUTCOMES[value])
    times = entry.get("times")
    return measured(config, times if isinstance(times, list) and times else [entry["time"]])


def _problem(document: Mapping[str, Any], named: Mapping[str, str | None]) -> dict[str, str]:
    """Return the values of the problem: those of the options, and the file's sizes under the names in the options.

    Raises:
        UsageError: The options state no dtype, or another number of names than the file has sizes.
    """
    stated = {name: value for name, value in named.items() if value is not None}
    names = [name for name, value in named.items() if value is None]
    sizes = document.get("problem_size")
    sizes = [size for size in (sizes if isinstance(sizes, list) else [sizes]) if type(size) is int]
    if "dtype" not in stated or len(named) < 2:
        raise UsageError("a cache of Kernel Tuner names neither sizes nor dtype; give --problem M,N,dtype=DTYPE")
    if names and len(names) != len(sizes):
        raise UsageError(f"its problem_size has {len(sizes)} sizes, and --problem names {len(names)}; name each size")
    return {**dict(zip(names, map(str, sizes), strict=True)), **stated} if names else stated
