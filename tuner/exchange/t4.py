"""The T4 results schema of the auto-tuning community: every config of one problem with its times.

The schema has no fields for the kernel, the problem or the card. What Triton's configs need beyond it, such as the
stage a config failed in, stands under the key `tuner` of a result.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import isfinite
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
from tuner.kernels.dtypes import shown
from tuner.kernels.spec import Signature
from tuner.records import Measurement, Outcome
from tuner.records.strict import MALFORMED

HEAD: Mapping[str, Any] = {"schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds"}}
"""First fields of a T4 document that is written here."""
_POLICY = "t4"
_UNITS = ("milliseconds", "miliseconds", "ms")
"""Spellings of the unit in the schema, in published files, and in their measurements."""
_INVALIDITY = {
    Outcome.OK: "correct",
    Outcome.INFEASIBLE: "constraints",
    Outcome.COMPILE_ERROR: "compile",
    Outcome.TIMEOUT: "timeout",
    Outcome.WRONG_RESULT: "correctness",
}
"""The schema's word for an outcome; `runtime` for the others."""
_OUTCOMES = {word: outcome for outcome, word in _INVALIDITY.items()}


def imported_config(file: ImportFile, options: ImportOptions) -> ImportedConfig | None:
    """Return the fastest config of a T4 file, or None if the file is not T4.

    Raises:
        UsageError: The times are not in milliseconds, it was not tuned for time, no config ran, or the options do not
            state the problem.
    """
    document = file.document
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        return None
    if "tuner" in document:
        raise UsageError("a recorded space is searched, not imported; run tuner search OP --replay FILE")
    values = {name: value for name, value in options.problem.items() if value is not None}
    if options.op is None or options.device is None or len(values) < 2 or "dtype" not in values:
        raise UsageError("T4 names no kernel, problem or card; give --op, --device, --problem M=SIZE,dtype=DTYPE")
    config, milliseconds = _fastest(document)
    sizes, attributes = sizes_and_attributes(values)
    return ImportedConfig(
        file=file.shown,
        op=options.op,
        dims=sizes,
        config=config,
        device=options.device,
        dtype=values["dtype"],
        attributes=attributes,
        triton=options.triton,
        policy=_POLICY,
        latency_us=1000 * milliseconds,
    )


def read_results(document: Mapping[str, Any]) -> tuple[Measurement, ...]:
    """Return the measurements of a T4 document of any tool, in the document's unit and order.

    Raises:
        UsageError: A config was tuned for another objective than time.
        MALFORMED: The document is not T4.
    """
    return tuple(map(_measurement, document["results"]))


def read_own_result(signature: Signature, result: Mapping[str, Any]) -> Measurement:
    """Return the measurement that `to_result` wrote.

    Raises:
        MALFORMED: The result has other fields.
    """
    facts = {item["name"]: item["value"] for item in result["measurements"] if item["name"] != "time"}
    own = result["tuner"]
    return Measurement(
        config=signature.config(result["configuration"]),
        samples=tuple(round(runtime * 1000, 4) for runtime in result["times"]["runtimes"]),
        **own | {"outcome": Outcome(own["outcome"])},
        **facts,
    )


def to_document(measurements: Iterable[Measurement]) -> dict[str, Any]:
    """Return the T4 document of one problem's measurements. Values that are not finite are left out."""
    results = [to_result(measurement) for measurement in measurements]
    for result in results:
        result["measurements"] = [one for one in result["measurements"] if isfinite(one["value"])]
    return {**HEAD, "results": results}


def to_result(measurement: Measurement) -> dict[str, Any]:
    """Return one result of a T4 document, times in milliseconds, with our further fields under `tuner`."""
    facts = {
        "registers": measurement.registers,
        "spills": measurement.spills,
        "shared_bytes": measurement.shared_bytes,
        "max_error": measurement.max_error,
        "tolerance": measurement.tolerance,
    }
    units = {"spills": "bytes", "shared_bytes": "bytes"}
    time = [{"name": TIME, "value": measurement.latency_us / 1000, "unit": "ms"}] if measurement.ok else []
    return {
        "configuration": dict(measurement.config),
        "objectives": [TIME],
        "times": {
            "compilation_time": 1000 * (measurement.compile_s or 0.0),
            "runtimes": [round(sample / 1000, 7) for sample in measurement.samples],
        },
        "invalidity": _INVALIDITY.get(measurement.outcome, "runtime"),
        "correctness": int(measurement.outcome is not Outcome.WRONG_RESULT),
        "measurements": time
        + [
            {"name": name, "value": value, "unit": units.get(name, "")}
            for name, value in facts.items()
            if value is not None
        ],
        "tuner": {
            "outcome": str(measurement.outcome),
            "stage": measurement.stage,
            "error": measurement.error,
            "compile_s": measurement.compile_s,
            "compiled_by": measurement.compiled_by,
        },
    }


def _measurement(result: Mapping[str, Any]) -> Measurement:
    """Return the measurement of one result. A correct result without times is an error."""
    check_objectives(result.get("objectives"))
    config = unchecked_config(result["configuration"])
    if result["invalidity"] != "correct":
        return Measurement(config, _OUTCOMES.get(result["invalidity"], Outcome.ERROR))
    if not result.get("correctness", 1):
        return Measurement(config, Outcome.WRONG_RESULT)
    times = result["times"].get("runtimes") or [_value(one) for one in result["measurements"] if one["name"] == TIME]
    return measured(config, times)


def _value(time: Mapping[str, Any]) -> Any:
    _check_unit(time.get("unit") or _UNITS[0])
    return time["value"]


def _check_unit(unit: object) -> None:
    if unit not in _UNITS:
        raise UsageError(f"{UNKNOWN_FORMAT}: T4 times are in {_UNITS[0]}, not in {shown(unit)}")


def _fastest(document: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
    """Return the config with the lowest median latency, and that latency in milliseconds."""
    try:
        _check_unit(document.get("metadata", {}).get("timeunit", _UNITS[0]))
        measurements = read_results(document)
    except MALFORMED as error:
        raise UsageError(f"{UNKNOWN_FORMAT}: {reason(error)}") from error
    return fastest(measurements)
