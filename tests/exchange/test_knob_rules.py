"""Values of knobs that a kernel can be launched with, by its choices."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from others import imported, put

from tuner import catalog
from tuner.exchange.imported import LIMITS
from tuner.exchange.knob_rules import knobs_fault, whole
from tuner.kernels.spec import Knob

GEMM = catalog.load("gemm").signature
SOFTMAX = catalog.load("softmax").signature
TRANSPOSE = catalog.load("transpose").signature


@pytest.mark.parametrize(
    ("signature", "knobs", "fault"),
    [
        (GEMM, {"BLOCK_K": 48}, "gemm: BLOCK_K is a power of two from 1 to 1,048,576, not 48"),
        (GEMM, {"BLOCK_M": 512}, ""),  # no choice, and a kernel could have it
        (GEMM, {"BLOCK_N": 96}, ""),  # 192 is a choice, so it need not be a power of two
        (GEMM, {"BLOCK_N": 0}, "gemm: BLOCK_N is a whole number from 1 to 1,048,576, not 0"),
        (GEMM, {"BLOCK_K": "64"}, "gemm: BLOCK_K is a power of two from 1 to 1,048,576, not '64'"),
        (GEMM, {"BLOCK_K": True}, "gemm: BLOCK_K is a power of two from 1 to 1,048,576, not True"),
        (GEMM, {"BLOCK_K": 2**30}, "gemm: BLOCK_K is a power of two from 1 to 1,048,576, not 1073741824"),
        (GEMM, {"SPLIT_K": -4}, "gemm: SPLIT_K is a whole number from 1 to 1,048,576, not -4"),
        (GEMM, {"num_stages": 7}, ""),
        (SOFTMAX, {"num_stages": 3}, ""),
        (SOFTMAX, {"SHARED": 1}, "softmax: SHARED is true or false, not 1"),
        (TRANSPOSE, {"PAD": 0}, ""),  # 0 is a choice
        (TRANSPOSE, {"PAD": -1}, "transpose: PAD is a whole number from 0 to 1,048,576, not -1"),
        (TRANSPOSE, {"num_stages": 2}, ""),  # one choice states no rule but its kind
    ],
)
def test_a_value_follows_the_rule_that_the_choices_state(signature: Any, knobs: dict[str, Any], fault: str) -> None:
    assert knobs_fault(signature, knobs) == fault


def test_floats_texts_and_null_follow_the_choices_too() -> None:
    knobs = (Knob("SCALE", (0.5, 1.0)), Knob("MODE", ("a", "b")), Knob("maxnreg", (None, 96, 128)), *GEMM.knobs)
    own = replace(GEMM, knobs=knobs)
    for fine in ({"SCALE": 1}, {"SCALE": 0.25}, {"MODE": "c"}, {"maxnreg": None}, {"maxnreg": 64}):
        assert knobs_fault(own, fine) == ""
    assert knobs_fault(own, {"SCALE": "1"}) == "gemm: SCALE is a number from 0 to 1,048,576, not '1'"
    assert knobs_fault(own, {"SCALE": float("nan")}) == "gemm: SCALE is a number from 0 to 1,048,576, not nan"
    assert knobs_fault(own, {"MODE": 1}) == "gemm: MODE is a text, not 1"
    assert knobs_fault(own, {"maxnreg": 0}) == "gemm: maxnreg is a whole number from 1 to 1,048,576 or null, not 0"


def test_a_rule_of_the_choices_is_never_narrower_than_the_choices() -> None:
    for op in catalog.names():
        signature = catalog.load(op).signature
        for knob in signature.knobs:
            for choice in knob.choices:
                assert knobs_fault(signature, {knob.name: choice}, replace(LIMITS, max_size=1)) == ""


@pytest.mark.parametrize("knobs", [{"waves_per_eu": 0}, {"num_stages": 0}, {"GROUP_SIZE_M": 3}, {"block_size_x": 48}])
def test_values_of_other_kernels_that_are_no_fault(knobs: dict[str, Any]) -> None:
    assert knobs_fault(None, knobs) == ""


@pytest.mark.parametrize(
    ("value", "expected"),
    [(16.0, 16), (-1.0, -1), (1.5, 1.5), (True, True), ("16.0", "16.0"), (1e300, 1e300), (float("inf"), float("inf"))],
)
def test_a_float_without_a_fraction_is_a_whole_number(value: Any, expected: Any) -> None:
    assert (whole(value), type(whole(value))) == (expected, type(expected))


def test_an_op_with_a_kernel_is_imported_by_its_rules(tmp_path: Path) -> None:
    config = {knob.name: knob.choices[-1] for knob in GEMM.knobs} | {"BLOCK_M": 128.0, "num_warps": 4.0}
    name = "N=8,K=16,device_name=NVIDIA_H200.json"
    put(tmp_path, name, {"1": config, "2": {**config, "BLOCK_K": 24}, "4": {**config, "GROUP_M": "8"}})
    (one,), reasons = imported(tmp_path, known=replace(GEMM, op="block_scaled_mm"))
    assert (one.answer.config["BLOCK_M"], type(one.answer.config["BLOCK_M"])) == (128, int)
    assert reasons[name] == [
        "block_scaled_mm: BLOCK_K is a power of two from 1 to 1,048,576, not 24",
        "block_scaled_mm: GROUP_M is a power of two from 1 to 1,048,576, not '8'",
    ]
