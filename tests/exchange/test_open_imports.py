"""Configs of other tools for an op whose stored signature has open attributes."""

from __future__ import annotations

from dataclasses import replace

from called import UNSIZED, described

from tuner.exchange.convert import to_answers
from tuner.exchange.imported import ImportedConfig
from tuner.records.signatures import without_choices


def test_an_open_attribute_stays_open_and_takes_the_file_s_value() -> None:
    signature, _ = described(UNSIZED)
    known = without_choices(signature, ["BLOCK"])
    config = ImportedConfig(
        op=signature.op,
        dims={"n": 64},
        dtype="fp32",
        attributes={"act": "relu", "tag": "new"},
        config={"BLOCK": 32},
        device="NVIDIA H200",
        triton="3.6.0",
        policy="",
        file="a.json",
    )
    (answer, other), skipped = to_answers(
        [config, replace(config, attributes={"act": "gelu"})], lambda op: known, lambda id: None
    )
    assert skipped == []
    assert answer.answer.problem.values == {
        "n": 64,
        "dtype": "fp32",
        "k": "",
        "act": "relu",
        "x_dtype": "",
        "y_dtype": "",
        "tag": "new",
    }
    assert other.answer.problem["act"] == "gelu"
    choices = {attribute.name: attribute.choices for attribute in answer.signature.attributes}
    assert choices == {"k": None, "act": None, "x_dtype": None, "y_dtype": None, "tag": ("none", "new")}
