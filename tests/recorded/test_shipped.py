"""The recorded spaces that ship: complete, current, and found by name, problem and card."""

from __future__ import annotations

from dataclasses import replace

import pytest
from shipped_spaces import shipped

from tuner import catalog, recorded
from tuner.errors import UnknownName
from tuner.records import VENDOR, Outcome, median

RECORDED = {
    "add", "attention", "avg_pool2d", "conv2d", "copy_column", "gelu", "gemm", "layer_norm", "max_pool2d", "reduce",
    "rms_norm", "scaled_gemm", "silu", "silu_mul", "softmax", "transpose",
}  # fmt: skip
CHANGED = {"attention", "avg_pool2d", "conv2d", "gemm", "max_pool2d", "scaled_gemm", "softmax", "transpose"}
"""Ops whose source has changed since they were recorded; their spaces are replayed as they were."""
H100 = "transpose-8192x8192-fp32-nvidia-h100-80gb-hbm3"
SOFTMAX = [
    "softmax-4096x65536-fp32-nvidia-h200",
    "softmax-8192x8192-fp32-nvidia-h100-80gb-hbm3",
    "softmax-8192x8192-fp32-nvidia-h200",
]


@pytest.fixture(scope="module", params=recorded.names())
def space(request: pytest.FixtureRequest) -> recorded.RecordedSpace:
    return shipped(request.param)


class TestShippedSpaces:
    def test_each_recorded_kernel_has_spaces(self) -> None:
        assert {name.partition("-")[0] for name in recorded.names()} == RECORDED

    def test_a_space_has_the_name_of_its_file(self, space: recorded.RecordedSpace) -> None:
        assert space.name in recorded.names()

    def test_its_outline_is_that_of_the_whole_file(self, space: recorded.RecordedSpace) -> None:
        read, whole = recorded.outline(space.name), recorded.Outline.of(space)
        assert read == replace(whole, best_us=read.best_us)
        assert read.best_us == pytest.approx(whole.best_us, abs=1e-4)

    def test_its_signature_and_card_are_read_from_the_head(self, space: recorded.RecordedSpace) -> None:
        assert recorded.signatures()[space.problem.op] == space.signature
        assert recorded.devices()[space.device.id].is_same_card(space.device)

    def test_its_source_hash_is_that_of_the_kernel_unless_that_has_changed(self, space: recorded.RecordedSpace) -> None:
        assert (space.source != catalog.load(space.problem.op).source) is (space.problem.op in CHANGED)

    def test_its_own_signature_states_all_its_configs_once(self, space: recorded.RecordedSpace) -> None:
        configs = [measurement.config for measurement in space.measurements]
        assert len(set(configs)) == len(configs)
        assert space.default in set(configs)
        assert all(space.signature.config(config) == config for config in configs)

    def test_it_holds_the_whole_feasible_set_in_order(self, space: recorded.RecordedSpace) -> None:
        from tuner.search.space import feasible

        if space.problem.op in CHANGED:
            return  # the kernel has other configs now
        kernel = catalog.load(space.problem.op)
        expected = list(feasible(kernel, space.problem, space.device.limits))
        measured = [measurement.config for measurement in space.measurements]
        refused_since = set(measured) - set(expected)  # rules that were added after the recording
        assert [config for config in measured if config not in refused_since] == expected
        assert len(refused_since) <= 0.05 * len(measured)
        assert space.default in set(expected)  # that of the day, which may have changed since

    def test_no_config_was_wrong_and_most_ran(self, space: recorded.RecordedSpace) -> None:
        outcomes = {measurement.outcome for measurement in space.measurements}
        assert outcomes <= {Outcome.OK, Outcome.INFEASIBLE}
        assert sum(measurement.ok for measurement in space.measurements) > 0.9 * len(space.measurements)

    def test_measurements_are_complete(self, space: recorded.RecordedSpace) -> None:
        for measurement in space.measurements:
            if measurement.ok:
                assert len(measurement.samples) >= 10
                on_host = measurement.config.get("WAY") in ("driver", "packed")
                assert (bool(measurement.registers), measurement.spills is not None) == (not on_host, not on_host)
                assert measurement.max_error is not None
                assert measurement.tolerance is not None
                assert measurement.max_error <= measurement.tolerance
                assert measurement.compiled_by == ("" if on_host else "pool")

    def test_the_comparison_has_the_best_the_default_and_the_vendor(self, space: recorded.RecordedSpace) -> None:
        assert space.default is not None
        assert {space.best.text, space.default.text, VENDOR} <= set(space.comparison.contenders)
        assert len(space.comparison.contenders) >= 33
        assert len(space.comparison.rounds) >= 20
        best = median(space.comparison.of(space.best.text))
        ranked = sorted((m for m in space.measurements if m.ok), key=lambda m: m.latency_us)
        timed_by_host = catalog.load(space.problem.op).is_on_host(space.problem)
        assert best == pytest.approx(ranked[0].latency_us, rel=0.15 if timed_by_host else 0.05)


def _some(name: str) -> recorded.RecordedSpace:
    return shipped(next(found for found in recorded.names() if found.startswith(name)))


def test_the_spaces_of_a_problem_are_found() -> None:
    space = _some("gemm-4096")
    assert space in recorded.of_problem(space.problem)
    other = space.signature.problem({"M": 4096, "layout": "nt"})
    assert recorded.of_problem(other) == []


def test_the_card_with_the_most_spaces_comes_first() -> None:
    """26 of the 28 spaces are of the H200."""
    for name in ("softmax-8192x8192-fp32", "transpose-8192x8192-fp32"):
        found = recorded.of_problem(_some(name).problem)
        assert [space.name for space in found] == [f"{name}-nvidia-h200", f"{name}-nvidia-h100-80gb-hbm3"]
        assert found[0].recorded_at < found[1].recorded_at


def test_several_problems_are_replayed_on_the_first_card_that_has_them_all() -> None:
    both, other = (recorded.of_problem(_some(name).problem) for name in ("softmax-8192", "transpose-8192x8192-fp32"))
    assert recorded.on_one_card([both, other]) == [both[0], other[0]]
    assert recorded.on_one_card([both, other[1:]]) == [both[1], other[1]]
    assert recorded.on_one_card([both[:1], other[1:]]) == []


def test_names_tell_attributes_apart() -> None:
    signature = catalog.load("layer_norm").signature
    names = [recorded.problem_stem(signature.problem({"M": 16, "N": 16, name: False})) for name in ("weight", "bias")]
    assert names == ["layer_norm-16x16-bf16-no_weight", "layer_norm-16x16-bf16-no_bias"]


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
