"""Values of knobs and attributes: None, floats and strings of any kind, in one canonical text each, through JSON."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from typing import Any

import pytest

from tuner.errors import KernelFault, UsageError
from tuner.kernels.spec import Attribute, Config, Dim, Knob, Signature
from tuner.kernels.values import UNSET, Value, canonical_text, listed, ordering, parsed
from tuner.records.signatures import checked_config, signature_from_json

WARPS = (Knob("num_warps", (4,)), Knob("num_stages", (1,)))
REST = {"num_warps": 4, "num_stages": 1}


def signature(*knobs: Knob, attributes: Sequence[Attribute] = ()) -> Signature:
    made = Signature("op", (Dim("M"),), ("fp32",), (*knobs, *WARPS), tuple(attributes))
    made.check()
    return made


class TestNone:
    def test_it_is_a_value(self) -> None:
        op = signature(Knob("MAXNREG", (None, 64)))
        config = op.config({"MAXNREG": None, **REST})
        assert config["MAXNREG"] is None
        assert config.text == "MAXNREG=None num_stages=1 num_warps=4"
        assert pickle.loads(pickle.dumps(config)) == config
        assert op.config(json.loads(json.dumps(dict(config)))) == config
        assert checked_config(op, dict(config)) == config

    def test_a_missing_knob_is_not_none(self) -> None:
        with pytest.raises(UsageError, match="states every knob; MAXNREG is missing"):
            signature(Knob("MAXNREG", (None, 64))).config(REST)

    def test_it_may_be_the_default(self) -> None:
        op = signature(Knob("MAXNREG", (None, 64), default=None))
        assert op.config(REST)["MAXNREG"] is None
        assert op.config(REST).text == "num_stages=1 num_warps=4"
        assert op.config({"MAXNREG": 64, **REST}).text == "MAXNREG=64 num_stages=1 num_warps=4"

    def test_without_it_among_the_choices_it_is_no_default_and_no_value(self) -> None:
        assert Knob("BLOCK", (64,), default=None) == Knob("BLOCK", (64,))
        assert Knob("BLOCK", (64,)).default is UNSET
        with pytest.raises(UsageError, match="BLOCK is missing"):
            signature(Knob("BLOCK", (64,))).config({"BLOCK": None, **REST})

    @pytest.mark.parametrize(
        "knob",
        [
            Knob("A", (None, 64)),
            Knob("A", (None, 64), default=None),
            Knob("A", (None, 64), default=64),
            Knob("A", (64,)),
            Knob("A", (64, 128), default=64),
        ],
    )
    def test_a_signature_comes_back_from_json(self, knob: Knob) -> None:
        op = signature(knob)
        written = json.loads(json.dumps(op.as_json()))
        assert Signature.from_json(written) == op
        assert signature_from_json(written) == op

    def test_the_json_of_a_knob_without_none_is_as_it_was(self) -> None:
        (knob, *_) = signature(Knob("BLOCK", (64,))).as_json()["knobs"]
        assert knob == {"name": "BLOCK", "choices": (64,), "help": "", "default": None}

    def test_an_attribute_has_none_for_not_given(self) -> None:
        with pytest.raises(KernelFault, match=r"Attribute act: choices is a tuple of numbers.* and has None"):
            signature(attributes=(Attribute("act", (None, 1), 1),))
        written = json.loads(json.dumps(signature(attributes=(Attribute("act", (1,), 1),)).as_json()))
        written["attributes"][0]["choices"] = [1, None]
        with pytest.raises(UsageError, match="choices are numbers"):
            signature_from_json(written)


class TestFloats:
    OP = signature(
        Knob("THRESHOLD", (0, 0.5, 1)),
        attributes=(Attribute("eps", (1e-5, 1e-6), 1e-5), Attribute("p", (0.0, 0.5), 0.5)),
    )

    @pytest.mark.parametrize("given", [1e-6, "1e-6", "1e-06", "0.000001", ".000001"])
    def test_an_attribute_may_be_spelled_in_any_way(self, given: object) -> None:
        problem = self.OP.problem({"M": 1, "eps": given})
        assert problem["eps"] == 1e-6
        assert problem.text == "op M=1 dtype=fp32 eps=1e-06"

    @pytest.mark.parametrize("given", [1, "1", True, "nan", "", "1e-5x", "\uff11e-6"])
    def test_another_number_is_refused(self, given: object) -> None:
        with pytest.raises(UsageError, match="op: eps is one of 1e-05, 1e-06, not "):
            self.OP.problem({"M": 1, "eps": given})

    def test_zero_may_be_whole(self) -> None:
        assert self.OP.problem({"M": 1, "p": "0"}).text == "op M=1 dtype=fp32 p=0.0"

    @pytest.mark.parametrize(("given", "text"), [(1, "1"), (1.0, "1"), (0.5, "0.5"), (0.0, "0")])
    def test_a_knob_has_one_text_for_a_number(self, given: Value, text: str) -> None:
        config = self.OP.config({"THRESHOLD": given, **REST})
        assert config.text == f"THRESHOLD={text} num_stages=1 num_warps=4"
        assert checked_config(self.OP, json.loads(json.dumps(dict(config)))).text == config.text

    def test_true_is_no_number(self) -> None:
        with pytest.raises(UsageError, match="THRESHOLD is float or int, not 'True'"):
            checked_config(self.OP, {"THRESHOLD": True, **REST})

    def test_only_finite_ones_are_values(self) -> None:
        with pytest.raises(
            UsageError, match="a op config has finite numbers, bools, strings or None; THRESHOLD is nan"
        ):
            self.OP.config({"THRESHOLD": float("nan"), **REST})

    def test_a_signature_comes_back_from_json(self) -> None:
        assert signature_from_json(json.loads(json.dumps(self.OP.as_json()))) == self.OP


STRINGS = ("a", "", "a b", "a b=c", 'say "x"', "None", "a\nb", "\\", "é ü", "a=b", '"')


class TestStrings:
    def test_different_values_have_different_texts(self) -> None:
        op = signature(Knob("A", STRINGS), Knob("B", ("x", "y B=x")))
        configs = [op.config({"A": a, "B": b, **REST}) for a in STRINGS for b in ("x", "y B=x")]
        assert len({config.text for config in configs}) == len(configs)
        assert all("\n" not in config.text for config in configs)
        collided = {op.config({"A": "x B=y", "B": "x", **REST}).text, op.config({"A": "x", "B": "y B=x", **REST}).text}
        assert len(collided) == 2

    @pytest.mark.parametrize("value", STRINGS)
    def test_a_text_is_read_back(self, value: str) -> None:
        text = canonical_text({"A": value, "B": 1})
        assert parsed(text) == {"A": value, "B": "1"}
        config = signature(Knob("A", STRINGS), Knob("B", (1,), default=1)).config({"A": value, **REST})
        assert config.stated == {"A": value, **REST}

    def test_plain_strings_stay_without_quotes(self) -> None:
        assert canonical_text({"VARIANT": "stream_k", "block": "128x128"}) == "VARIANT=stream_k block=128x128"

    @pytest.mark.parametrize("text", ['op A="x', 'op A="\\q"', "op A=", "op"])
    def test_a_broken_text_raises_nothing(self, text: str) -> None:
        parsed(text)


def test_none_and_numbers_have_an_order() -> None:
    values: list[Any] = ["b", 4, None, 0.5, True, "a", False, -1]
    assert sorted(values, key=ordering) == [None, False, True, -1, 0.5, 4, "a", "b"]


def test_configs_with_none_can_be_keys() -> None:
    op = signature(Knob("A", (None, 0, 1)))
    made: set[Config] = {op.config({"A": a, **REST}) for a in (None, 0, 1)}
    assert len(made) == 3


def test_many_successive_numbers_are_shown_as_a_range() -> None:
    assert listed(tuple(range(65))) == "0 to 64"
    assert listed((1, 2, 3), "|") == "1|2|3"
    assert listed(tuple(range(0, 40, 2))).startswith("0, 2, 4")
    assert listed((False, True)) == "False, True"
    assert listed(()) == ""
