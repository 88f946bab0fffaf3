"""T4 results, as Kernel Tuner writes them and as we do."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from others import put, questions, taken
from stored import FULL, config, measured

from tuner.exchange import t4
from tuner.exchange.claim import Given
from tuner.measure import foreign, recorded
from tuner.records import Outcome

GIVEN = Given("scale", "nvidia-a100-pcie-40gb", problem={"M": "64", "dtype": "fp16", "layout": "nt"})


def result(block: int, *runtimes: float, invalidity: str = "correct", **others: Any) -> dict[str, Any]:
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


def test_the_fastest_that_ran_right(tmp_path: Path) -> None:
    only_mean = result(32, measurements=[{"name": "time", "value": 0.015, "unit": "ms"}])
    wrong = result(16, 0.001, correctness=0)
    document = results(result(8, 0.02, 0.03, 0.02), only_mean, wrong, result(4, invalidity="compile"))
    put(tmp_path, "t4.json", document)
    (arrival,), reasons = taken(tmp_path, given=GIVEN)
    assert questions([arrival]) == ["scale M=64 dtype=fp16 layout=nt on nvidia-a100-pcie-40gb"]
    assert arrival.answer.config["BLOCK"] == 32
    assert (arrival.answer.latency_us, arrival.provenance.policy) == (15.0, "t4")
    assert reasons == {}


@pytest.mark.parametrize(
    ("document", "given", "reason"),
    [
        (results(result(8, 0.1)), Given(), "T4 does not say what was tuned, and where; give --op, --device, "),
        (results(result(8, 0.1), unit="seconds"), GIVEN, "schema not known: its times are in 'seconds'"),
        (results(result(8, invalidity="runtime")), GIVEN, "no config of it ran"),
        (results({"configuration": {}}), GIVEN, "schema not known: it has no 'invalidity'"),
        ({"results": [None], "metadata": []}, GIVEN, "schema not known: AttributeError"),
        (results(result(8, 0.1, configuration={"block_size_x": 8})), GIVEN, "no Triton config: its num_warps is no "),
    ],
)
def test_what_it_does_not_say_is_asked_for(tmp_path: Path, document: Any, given: Given, reason: str) -> None:
    file = put(tmp_path, "t4.json", document)
    arrivals, reasons = taken(file, given=given)
    assert arrivals == []
    assert reasons["t4.json"][0].startswith(reason)


def test_a_recorded_space_is_searched_instead(tmp_path: Path) -> None:
    from importlib.resources import files

    name = f"{recorded.names()[0]}.json.gz"
    file = tmp_path / name
    file.write_bytes((files("tuner") / "recorded" / name).read_bytes())
    reason = "a recorded space is searched, not imported: tuner search OP --replay FILE"
    assert taken(file, given=GIVEN) == ([], {name: [reason]})


def test_what_we_write_is_read_by_ourselves_and_by_replay(tmp_path: Path) -> None:
    fast, failed = measured(10.0, 64), measured(block=256, outcome=Outcome.COMPILE_ERROR)
    document = t4.document([fast, replace(FULL, samples=(20.0,)), failed])
    file = put(tmp_path, "ours.json", json.dumps(document, allow_nan=False))  # an error may be infinite, JSON is not
    (arrival,), _ = taken(file, given=GIVEN)
    assert dict(arrival.answer.config) == dict(config(64))
    assert arrival.answer.latency_us == 10.0
    assert [measurement.outcome for measurement in foreign.load(file)][-1] is Outcome.COMPILE_ERROR
