"""T4 results, written by Kernel Tuner and by us."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from others import imported, keys, put
from stored import FULL, config, measured

from tuner import recorded
from tuner.exchange import measurements, t4
from tuner.exchange.imported import ImportOptions
from tuner.records import Outcome

NAN, INF = float("nan"), float("inf")
OPTIONS = ImportOptions("scale", "nvidia-a100-pcie-40gb", problem={"M": "64", "dtype": "fp16", "layout": "nt"})


def result(block: int, *runtimes: Any, invalidity: str = "correct", **others: Any) -> dict[str, Any]:
    return {
        "timestamp": "2026-06-01 10:00:00.000000+00:00",
        "configuration": {"BLOCK": block, "num_warps": 4, "num_stages": 1},
        "times": {"compilation": 100.0, "benchmark": 1.0, "framework": 0.1, "runtimes": list(runtimes)},
        "invalidity": invalidity,
        "correctness": 1,
        "measurements": [],
        "objectives": ["time"],
        **others,
    }


def results(*of: dict[str, Any], unit: str = "milliseconds") -> dict[str, Any]:
    return {"results": list(of), "schema_version": "1.0.0", "metadata": {"timeunit": unit}}


def test_the_fastest_correct_config_is_imported(tmp_path: Path) -> None:
    only_mean = result(32, measurements=[{"name": "time", "value": 0.015, "unit": "ms"}])
    wrong = result(16, 0.001, correctness=0)
    document = results(result(8, 0.02, 0.03, 0.02), only_mean, wrong, result(4, invalidity="compile"))
    put(tmp_path, "t4.json", document)
    (one,), reasons = imported(tmp_path, options=OPTIONS)
    assert keys([one]) == ["scale M=64 dtype=fp16 layout=nt on nvidia-a100-pcie-40gb"]
    assert one.answer.config["BLOCK"] == 32
    assert (one.answer.latency_us, one.provenance.policy) == (15.0, "t4")
    assert reasons == {}


@pytest.mark.parametrize(
    ("document", "options", "reason"),
    [
        (results(result(8, 0.1)), ImportOptions(), "T4 names no kernel, problem or card; give --op, --device, "),
        (
            results(result(8, 0.1), unit="seconds"),
            OPTIONS,
            "unknown format: T4 times are in milliseconds, not in 'seconds'",
        ),
        (results(result(8, invalidity="runtime")), OPTIONS, "no config of it ran"),
        (results({"configuration": {}}), OPTIONS, "unknown format: it has no 'invalidity'"),
        ({"results": [None], "metadata": []}, OPTIONS, "unknown format: AttributeError"),
        (results(result(8, 10**400)), OPTIONS, "no config of it ran"),
        (results(*(result(8, time) for time in (0, -1.0, NAN, INF, True, "0.1"))), OPTIONS, "no config of it ran"),
        (results(result(8, 0.1, NAN)), OPTIONS, "no config of it ran"),
        (
            results(result(8, 0.1), result(4, 0.2, objectives=["GFLOP/s"])),
            OPTIONS,
            "its configs were tuned for GFLOP/s, and only those tuned for time are read",
        ),
        (
            results(result(8, objectives=["energy"], measurements=[{"name": "energy", "value": 0.1, "unit": "J"}])),
            OPTIONS,
            "its configs were tuned for energy, and only those tuned for time are read",
        ),
        (
            results(result(8, measurements=[{"name": "time", "value": 0.1, "unit": "s"}])),
            OPTIONS,
            "unknown format: T4 times are in milliseconds, not in 's'",
        ),
        (
            results(result(8, 0.1, configuration=[8])),
            OPTIONS,
            "a config is an object with a value for each knob, not [8]",
        ),
        (results(result(8, 0.1, configuration={})), OPTIONS, "a config has 1 to 32 knobs, not 0"),
    ],
)
def test_a_file_that_lacks_something_is_skipped_with_the_reason(
    tmp_path: Path, document: Any, options: ImportOptions, reason: str
) -> None:
    file = put(tmp_path, "t4.json", document)
    answers, reasons = imported(file, options=options)
    assert answers == []
    assert reasons["t4.json"][0].startswith(reason)


def test_a_recorded_space_is_not_imported(tmp_path: Path) -> None:
    from importlib.resources import files

    name = f"{recorded.names()[0]}.json.gz"
    file = tmp_path / name
    file.write_bytes((files("tuner") / "recorded" / name).read_bytes())
    reason = "a recorded space is searched, not imported; run tuner search OP --replay FILE"
    assert imported(file, options=OPTIONS) == ([], {name: [reason]})


def test_a_written_document_is_read_by_import_and_by_replay(tmp_path: Path) -> None:
    fast, failed = measured(10.0, 64), measured(block=256, outcome=Outcome.COMPILE_ERROR)
    document = t4.to_document([fast, replace(FULL, samples=(20.0,)), failed])
    file = put(tmp_path, "ours.json", json.dumps(document, allow_nan=False))  # an error may be infinite, JSON is not
    (one,), _ = imported(file, options=OPTIONS)
    assert dict(one.answer.config) == dict(config(64))
    assert one.answer.latency_us == 10.0
    assert [measurement.outcome for measurement in measurements.load(file)][-1] is Outcome.COMPILE_ERROR
