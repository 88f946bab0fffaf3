"""Kernel Tuner's caches as answers: whole, interrupted, and tuned for something else than time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from others import imported, keys, put

from tuner.errors import UsageError
from tuner.exchange import measurements
from tuner.exchange.imported import ImportOptions
from tuner.records import Outcome

NAMED = ImportOptions(problem={"M": None, "N": None, "dtype": "fp16"})


def entry(block: int, time: Any, **others: Any) -> dict[str, Any]:
    return {"BLOCK": block, "num_warps": 4, "time": time, "compile_time": 12.5, "GFLOP/s": 1.0, **others}


def cache(*entries: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {
        "device_name": "NVIDIA A100-PCIE-40GB",
        "kernel_name": "Vector_Add",
        "problem_size": [64, 128],
        "tune_params_keys": ["BLOCK", "num_warps"],
        "tune_params": {"BLOCK": [16, 32], "num_warps": [4]},
        "objective": "time",
        **others,
        "cache": {f"{one['BLOCK']},4": one for one in entries},
    }


FAST = entry(32, 2.5, times=[2.6, 2.4, 2.5])
RAN = [entry(16, 3.9), FAST, entry(64, "CompilationFailedConfig"), entry(128, 1e20)]


def written(*entries: dict[str, Any], **others: Any) -> str:
    """Return a cache as Kernel Tuner writes it: an entry a line, closed when the search ends."""
    head = json.dumps(cache(**others), indent="")[:-3]
    return head + "".join(f"\n{json.dumps({str(one['BLOCK']): one})[1:-1]}," for one in entries)


def test_the_fastest_config_is_imported_with_its_card_and_sizes(tmp_path: Path) -> None:
    put(tmp_path, "cache.json", cache(*RAN))
    (one,), reasons = imported(tmp_path, options=NAMED)
    assert keys([one]) == ["vector_add M=64 N=128 dtype=fp16 on nvidia-a100-pcie-40gb"]
    assert dict(one.answer.config) == {"BLOCK": 32, "num_warps": 4}  # without num_stages, as in the file
    assert (one.answer.latency_us, one.provenance.policy, reasons) == (2500.0, "kernel-tuner", {})
    options = ImportOptions("mine", "h", "3.7.1", {"M": "7", "dtype": "bf16", "layout": "nt"})
    (one,), _ = imported(tmp_path, options=options)
    assert keys([one]) == ["mine M=7 dtype=bf16 layout=nt on h"]


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (written(*RAN), 4),  # interrupted after an entry
        (written(*RAN)[:-1], 4),  # between an entry and its comma
        (written(*RAN)[:-40], 3),  # in the middle of the last entry
        (written(*RAN)[:-1] + "}\n}", 4),
        (written(*RAN) + "\n\n", 4),
    ],
)
def test_an_interrupted_cache_is_read_up_to_its_last_whole_entry(tmp_path: Path, text: str, count: int) -> None:
    file = put(tmp_path, "cache.json", text)
    assert len(measurements.load(file)) == count
    (one,), _ = imported(file, options=NAMED)
    assert one.answer.latency_us == 2500.0


def test_a_search_that_was_interrupted_at_once_has_no_config(tmp_path: Path) -> None:
    file = put(tmp_path, "cache.json", written())
    with pytest.raises(UsageError, match=r"cache\.json has no config that ran"):
        measurements.load(file)
    assert imported(file, options=NAMED) == ([], {"cache.json": ["no config of it ran"]})


def test_no_other_file_is_completed(tmp_path: Path) -> None:
    for number, text in enumerate(('{"1": {"BLOCK": 16,', '{"results": [{"cache": {"a": 1},', '{"cache": {"a": 1},')):
        file = put(tmp_path, f"{number}.json", text)
        answers, reasons = imported(file, options=NAMED)
        assert (answers, reasons[file.name][0].startswith("it is not JSON: ")) == ([], True)


@pytest.mark.parametrize(
    "time", [0, 0.0, -1.0, float("nan"), float("inf"), 1e20, 10**400, True, "0.1", None, [0.1]], ids=repr
)
def test_a_time_that_is_not_finite_and_positive_is_a_failed_trial(tmp_path: Path, time: Any) -> None:
    """Older versions of Kernel Tuner wrote 1e20 for a config that failed."""
    file = put(tmp_path, "cache.json", cache(entry(16, time), FAST, entry(8, 0.1, times=[0.1, time])))
    read = measurements.load(file)
    assert [one.outcome for one in read] == [Outcome.ERROR, Outcome.OK, Outcome.ERROR]
    assert read[0].error.startswith("a time is a finite number above 0, not ")
    (one,), _ = imported(file, options=NAMED)
    assert one.answer.config["BLOCK"] == 32


def test_an_error_stands_under_any_objective(tmp_path: Path) -> None:
    failed = {"BLOCK": 8, "num_warps": 4, "GFLOP/s": "InvalidConfig"}
    file = put(tmp_path, "cache.json", cache(failed, FAST, objective=["time", "GFLOP/s"]))
    assert [one.outcome for one in measurements.load(file)] == [Outcome.INFEASIBLE, Outcome.OK]


@pytest.mark.parametrize("objective", ["GFLOP/s", "energy", ["energy", "GFLOPS/W"]])
def test_another_objective_than_time_is_refused_by_name(tmp_path: Path, objective: Any) -> None:
    file = put(tmp_path, "cache.json", cache(FAST, objective=objective))
    names = objective if isinstance(objective, str) else "energy, GFLOPS/W"
    reason = f"its configs were tuned for {names}, and only those tuned for time are read"
    assert imported(file, options=NAMED) == ([], {"cache.json": [reason]})
    with pytest.raises(UsageError, match=f"cache.json: {reason}"):
        measurements.load(file)


@pytest.mark.parametrize(
    ("document", "options", "reason"),
    [
        (
            cache(FAST),
            ImportOptions(),
            "a cache of Kernel Tuner names neither sizes nor dtype; give --problem M,N,dtype=",
        ),
        (
            cache(FAST),
            ImportOptions(problem={"M": None, "dtype": "fp16"}),
            "its problem_size has 2 sizes, and --problem n",
        ),
        (cache(FAST, device_name=None), NAMED, "this cache does not state its card; give --device ID"),
        (cache(FAST, tune_params_keys=["BLOCK", "MISSING"]), NAMED, "unknown format: it has no 'MISSING'"),
        (cache(FAST, kernel_name="../../x" * 20), NAMED, "an op is lower-case letters, digits and _, not "),
        (cache(entry(96, 1.0)), NAMED, "BLOCK is a power of two from 1 to 1,048,576, not 96"),
        (cache(entry(16, 1.0, BLOCK=[16])), NAMED, "BLOCK is a number, a boolean or a text, not [16]"),
    ],
)
def test_a_cache_that_lacks_something_is_skipped(
    tmp_path: Path, document: Any, options: ImportOptions, reason: str
) -> None:
    answers, reasons = imported(put(tmp_path, "cache.json", document), options=options)
    assert answers == []
    assert reasons["cache.json"][0].startswith(reason)
