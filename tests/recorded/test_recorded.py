"""Recorded spaces: the files that ship, their format, and the measurer that replays them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from tuner import catalog, recorded
from tuner.errors import UnknownName, UsageError
from tuner.records import VENDOR, Outcome, median

RECORDED = {"gemm", "softmax", "transpose"}
H100 = "transpose-8192x8192-fp32-nvidia-h100-80gb-hbm3"
SOFTMAX = [
    "softmax-4096x65536-fp32-nvidia-h200",
    "softmax-8192x8192-fp32-nvidia-h100-80gb-hbm3",
    "softmax-8192x8192-fp32-nvidia-h200",
]
T4_REQUIRED = {"configuration", "times", "invalidity", "correctness"}
T4_INVALIDITY = {"timeout", "compile", "runtime", "correctness", "constraints", "correct"}


@pytest.fixture(scope="module", params=recorded.names())
def space(request: pytest.FixtureRequest) -> recorded.RecordedSpace:
    return recorded.load(request.param)


class TestShippedSpaces:
    def test_each_recorded_kernel_has_spaces(self) -> None:
        assert {name.partition("-")[0] for name in recorded.names()} == RECORDED

    def test_a_space_has_the_name_of_its_file(self, space: recorded.RecordedSpace) -> None:
        assert space.name in recorded.names()

    def test_its_signature_and_card_are_read_from_the_head(self, space: recorded.RecordedSpace) -> None:
        assert recorded.signatures()[space.problem.op] == space.signature
        assert recorded.devices()[space.device.id].is_same_card(space.device)

    def test_its_source_hash_is_that_of_the_kernel(self, space: recorded.RecordedSpace) -> None:
        assert space.source == catalog.load(space.problem.op).source

    def test_it_holds_the_whole_feasible_set_in_order(self, space: recorded.RecordedSpace) -> None:
        from tuner.search.space import feasible

        kernel = catalog.load(space.problem.op)
        expected = list(feasible(kernel, space.problem, space.device.limits))
        assert [measurement.config for measurement in space.measurements] == expected
        assert space.default in set(expected)  # that of the day, which may have changed since

    def test_no_config_was_wrong_and_most_ran(self, space: recorded.RecordedSpace) -> None:
        outcomes = {measurement.outcome for measurement in space.measurements}
        assert outcomes <= {Outcome.OK, Outcome.INFEASIBLE}
        assert sum(measurement.ok for measurement in space.measurements) > 0.9 * len(space.measurements)

    def test_measurements_are_complete(self, space: recorded.RecordedSpace) -> None:
        for measurement in space.measurements:
            if measurement.ok:
                assert len(measurement.samples) >= 10
                assert measurement.registers
                assert measurement.spills is not None
                assert measurement.max_error is not None
                assert measurement.tolerance is not None
                assert measurement.max_error <= measurement.tolerance
                assert measurement.compiled_by == "pool"

    def test_the_comparison_has_the_best_the_default_and_the_vendor(self, space: recorded.RecordedSpace) -> None:
        assert space.default is not None
        assert {space.best.text, space.default.text, VENDOR} <= set(space.comparison.contenders)
        assert len(space.comparison.contenders) >= 33
        assert len(space.comparison.rounds) >= 20
        best = median(space.comparison.of(space.best.text))
        ranked = sorted((m for m in space.measurements if m.ok), key=lambda m: m.latency_us)
        assert best == pytest.approx(ranked[0].latency_us, rel=0.05)

    def test_a_written_space_is_read_back_unchanged(self, space: recorded.RecordedSpace) -> None:
        assert recorded.loads(recorded.dumps(space), space.name) == space

    def test_the_file_is_t4(self, space: recorded.RecordedSpace) -> None:
        document = json.loads(gzip.decompress(recorded.dumps(space)))
        assert document["schema_version"] == "1.0.0"
        assert document["metadata"] == {"timeunit": "milliseconds"}
        for result in document["results"]:
            assert result.keys() >= T4_REQUIRED
            assert result["invalidity"] in T4_INVALIDITY
            assert all({"name", "value", "unit"} == item.keys() for item in result["measurements"])


def _some(name: str) -> recorded.RecordedSpace:
    return recorded.load(next(found for found in recorded.names() if found.startswith(name)))


def test_the_spaces_of_a_problem_are_found() -> None:
    space = _some("gemm-4096")
    assert space in recorded.of_problem(space.problem)
    other = space.signature.problem({"M": 4096, "layout": "nt"})
    assert recorded.of_problem(other) == []


def test_the_card_with_the_most_spaces_comes_first() -> None:
    """Of the 14 that ship, 12 are the H200's."""
    for name in ("softmax-8192x8192-fp32", "transpose-8192x8192-fp32"):
        found = recorded.of_problem(_some(name).problem)
        assert [space.name for space in found] == [f"{name}-nvidia-h200", f"{name}-nvidia-h100-80gb-hbm3"]
        assert found[0].recorded_at < found[1].recorded_at


def test_several_problems_are_replayed_on_the_first_card_that_has_them_all() -> None:
    both, other = (recorded.of_problem(_some(name).problem) for name in ("softmax-8192", "transpose-8192x8192-fp32"))
    assert recorded.on_one_card([both, other]) == [both[0], other[0]]
    assert recorded.on_one_card([both, other[1:]]) == [both[1], other[1]]
    assert recorded.on_one_card([both[:1], other[1:]]) == []


def test_signatures_need_no_kernel_code() -> None:
    assert recorded.signatures().keys() == RECORDED


@pytest.mark.parametrize(
    ("name", "op", "says"),
    [
        ("../x", None, "tuner spaces lists all"),
        ("", None, "tuner spaces lists all"),
        ("transpose-8192x8192-fp32", None, f"did you mean {H100} or transpose-8192x8192-fp32-nvidia-h200?"),
        ("transpose-8192x8192-f32-nvidia-h100-80gb-hbm3", None, f"did you mean {H100}?"),
        ("gemm-16x4096x4096-bf16-nvidia-h100", "softmax", f"there are {', '.join(SOFTMAX)}"),
        ("softmax-1x1", None, f"there are {', '.join(SOFTMAX)}"),
        ("softmax-1x1", "double", "there are none of double"),
    ],
)
def test_an_unknown_name_is_refused_with_a_suggestion(name: str, op: str | None, says: str) -> None:
    with pytest.raises(UnknownName) as refused:
        recorded.load(name, op)
    assert str(refused.value) == f"no recorded space is called {name!r}; {says}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not json", "is not a recorded search space: Expecting value in line 1"),
        (b"{}", "is not a recorded search space: it has no 'tuner'"),
        (b'{"tuner": {"format": 99}}', "has format 99, and this version reads 1; update the tuner"),
        (b"\x1f\x8bbroken", "is not a recorded search space"),
        (b"[1, 2]", "is not a recorded search space: TypeError"),
        (gzip.compress(b"{}" * 100, mtime=0)[:-20] + b"x" * 20, "is not a recorded search space"),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "space.json.gz"
    file.write_bytes(content)
    with pytest.raises(UsageError, match=message):
        recorded.load(str(file))


class TestRecordedMeasurer:
    def test_rounds_are_returned_in_order_and_once(self) -> None:
        space = _some("softmax")
        measurer = recorded.RecordedMeasurer(space)
        first = measurer.compare([space.best], 5, 1.0, seed=0)
        second = measurer.compare([space.best], 5, 1.0, seed=0)
        assert first.contenders == (space.best.text, VENDOR)
        assert first.of(space.best.text) + second.of(space.best.text) == space.comparison.of(space.best.text)[:10]
        assert measurer.compare([space.best], 1000, 1.0, seed=0).of(VENDOR) == space.comparison.of(VENDOR)[10:]
        assert measurer.compare([space.best], 5, 1.0, seed=0).rounds == ()

    def test_a_config_outside_the_comparison_contributes_its_own_samples(self) -> None:
        space = _some("transpose")
        outside = max((m for m in space.measurements if m.ok), key=lambda m: m.latency_us)
        assert outside.config.text not in space.comparison.contenders
        comparison = recorded.RecordedMeasurer(space).compare([space.best, outside.config], 5, 1.0, seed=0)
        assert comparison.of(outside.config.text) == outside.samples[:5]
