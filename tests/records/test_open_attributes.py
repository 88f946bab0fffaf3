"""Open attributes: any text is a value, and a signature that has them is read as it was written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from called import SIZED, UNSIZED, described

from tuner.errors import KernelFault, UsageError
from tuner.kernels.spec import Attribute, Dim, Knob, Signature, SizeLimit
from tuner.kernels.values import parsed
from tuner.records.signatures import signature_from_json

OPEN = Signature(
    op="open",
    dims=(Dim("M"),),
    dtypes=("bf16", "fp32"),
    knobs=(Knob("num_warps", (4,)), Knob("num_stages", (1,))),
    attributes=(Attribute("act", None, "none"), Attribute("mode", ("a", "b"), "a"), Attribute("tag", None, "")),
)
ODD = ["", "a b", "a=b", 'quoted "x"', "\\", "None", "[red]", "\u4e2d\U0001f600", "x" * 200, "--help", "'"]


@pytest.mark.parametrize("value", ODD)
def test_a_text_is_kept_and_its_canonical_text_is_read_back(value: str) -> None:
    problem = OPEN.problem({"M": 3, "act": value, "tag": value})
    assert (problem["act"], problem["tag"]) == (value, value)
    names = parsed(problem.text.removeprefix("open "))
    assert {name: names.get(name, default) for name, default in (("act", "none"), ("tag", ""))} == {
        "act": value,
        "tag": value,
    }
    assert OPEN.problem(dict(problem.values)) == problem
    assert OPEN.problem(dict(problem.stated)) == problem


def test_different_texts_are_different_problems() -> None:
    assert len({OPEN.problem({"M": 3, "act": value}).text for value in ODD}) == len(ODD)


@pytest.mark.parametrize(("value", "text"), [(5, "5"), (0.1, "0.1"), (True, "True"), (float("nan"), "nan")])
def test_a_number_is_its_text(value: Any, text: str) -> None:
    assert OPEN.problem({"M": 3, "act": value})["act"] == text


def test_without_a_value_it_has_its_default() -> None:
    assert (
        OPEN.problem({"M": 3}).text == OPEN.problem({"M": 3, "act": "none", "tag": None}).text == "open M=3 dtype=bf16"
    )


@pytest.mark.parametrize("value", ["x" * 201, "a\nb", "\x00", [], {}, b"x", object])
def test_nothing_else_is_a_value(value: Any) -> None:
    with pytest.raises(UsageError, match="open: act is a text of up to 200 printable characters, not"):
        OPEN.problem({"M": 3, "act": value})


@pytest.mark.parametrize("signature", [OPEN, described(SIZED)[0], described(UNSIZED)[0]], ids=lambda one: one.op)
def test_a_signature_is_read_as_it_was_written(signature: Signature) -> None:
    written = json.loads(json.dumps(signature.as_json()))
    assert signature_from_json(written) == signature
    signature.check()
    assert {one["choices"] for one in written["attributes"] if one["name"] != "mode"} == {None}
    assert written.get("captured", False) == signature.captured


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"default": None}, "act: the default of an open attribute is a text"),
        ({"default": 5}, "act: the default of an open attribute is a text"),
        ({"default": "x" * 201}, "act: the default of an open attribute is a text"),
        ({"choices": []}, "act: choices are numbers, yes or no, or texts, and at least one"),
        ({"choices": [None]}, "act: choices are numbers, yes or no, or texts, and at least one"),
        ({"dtypes": None}, "one of attributes has a list as dtypes"),
    ],
)
def test_a_wrong_one_is_refused(change: dict[str, Any], reason: str) -> None:
    written = json.loads(json.dumps(OPEN.as_json()))
    written["attributes"][0] |= change
    with pytest.raises(UsageError, match=reason):
        signature_from_json(written)


def test_knobs_have_choices_and_the_mark_is_a_bool() -> None:
    written = json.loads(json.dumps(OPEN.as_json()))
    with pytest.raises(UsageError, match="one of knobs has a list as choices"):
        signature_from_json({**written, "knobs": [{**written["knobs"][0], "choices": None}]})
    with pytest.raises(UsageError, match="a signature has true or false as captured"):
        signature_from_json({**written, "captured": 1})


def test_a_kernel_file_states_a_text_as_default() -> None:
    with pytest.raises(KernelFault, match="Attribute act: default of an open attribute is a string, not 5; quote it"):
        Attribute("act", None, 5).check()


def test_a_size_limit_may_be_that_of_any_text() -> None:
    limited = replace(OPEN, size_limits=(SizeLimit("M", 10, "act", ("gelu",)),))
    limited.check()
    assert limited.problem({"M": 11, "act": "relu"})["M"] == 11
    with pytest.raises(UsageError, match="M is at most 10 with act=gelu"):
        limited.problem({"M": 11, "act": "gelu"})
    with pytest.raises(KernelFault, match="choices are those of its attribute, not 5"):
        replace(OPEN, size_limits=(SizeLimit("M", 10, "act", (5,)),)).check()
