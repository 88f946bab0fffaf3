"""The file format of a recorded space."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from math import inf
from pathlib import Path

import pytest
from shipped_spaces import shipped

from tuner import recorded
from tuner.errors import UsageError
from tuner.records import Outcome

T4_REQUIRED = {"configuration", "times", "invalidity", "correctness"}
T4_INVALIDITY = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}


@pytest.fixture(scope="module", params=recorded.names())
def space(request: pytest.FixtureRequest) -> recorded.RecordedSpace:
    return shipped(request.param)


@pytest.fixture(scope="module")
def written(space: recorded.RecordedSpace) -> bytes:
    return recorded.dumps(space)


def test_a_written_space_is_read_back_unchanged(space: recorded.RecordedSpace, written: bytes) -> None:
    assert recorded.loads(written, space.name) == space


def test_an_error_that_looks_like_a_result_is_not_counted() -> None:
    space = shipped("softmax-8192x8192-fp32-nvidia-h200")
    error = '{"configuration":{"name":"time","value":0.0,"unit":"ms"}}'
    failed = [replace(m, outcome=Outcome.ERROR, samples=(), error=error) for m in space.measurements[:2]]
    found = recorded.Outline.read(recorded.dumps(replace(space, measurements=tuple(failed))), space.name)
    assert (found.configs, found.best_us) == (2, inf)


def test_the_file_is_t4(written: bytes) -> None:
    document = json.loads(gzip.decompress(written))
    assert document["schema_version"] == "1.0.0"
    assert document["metadata"] == {"timeunit": "milliseconds"}
    for result in document["results"]:
        assert result.keys() >= T4_REQUIRED
        assert result["invalidity"] in T4_INVALIDITY
        assert all({"name", "value", "unit"} == item.keys() for item in result["measurements"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not json", "is not a recorded search space: Expecting value in line 1"),
        (b"{}", "is not a recorded search space: it has no 'tuner'"),
        (b'{"tuner": {"format": 99}}', "has format 99, and this version reads 1; update the tuner"),
        (b"\x1f\x8bbroken", "is not a recorded search space"),
        (b"[1, 2]", "is not a recorded search space: TypeError"),
        (b"[" * 100_000, "is not a recorded search space: RecursionError"),
        (gzip.compress(b"{}" * 100, mtime=0)[:-20] + b"x" * 20, "is not a recorded search space"),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "space.json.gz"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        recorded.load(str(file))
