"""Signatures, problems and configs: one canonical text, and refusals that state the rule."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest
from helpers import H200

from tuner import catalog
from tuner.errors import KernelFault, UsageError
from tuner.kernels.softmax.call import CALL
from tuner.kernels.spec import (
    Attribute,
    Dim,
    Knob,
    Operand,
    Signature,
    cdiv,
    dtype_name,
    next_power_of_2,
)

OP = Signature(
    op="op",
    dims=(Dim("M"), Dim("N", default="M"), Dim("B", default=1)),
    dtypes=("bf16", "fp32"),
    attributes=(
        Attribute("layout", ("nn", "nt"), "nn"),
        Attribute("precision", ("ieee", "tf32"), "ieee", dtypes=("fp32",)),
    ),
    knobs=(
        Knob("BLOCK", (64, 128)),
        Knob("num_warps", (4, 8)),
        Knob("num_stages", (1,)),
        Knob("FAST", (True, False), default=False),
    ),
)


class TestProblem:
    def test_missing_dims_follow_their_rule(self) -> None:
        problem = OP.problem({"M": 7})
        assert problem.values == {"M": 7, "N": 7, "B": 1, "dtype": "bf16", "layout": "nn"}
        assert problem.sizes == (7, 7, 1)
        assert problem["layout"] == "nn"

    def test_one_text_whatever_the_order_and_the_spelling(self) -> None:
        a = OP.problem({"layout": "nt", "N": "5", "M": 7, "dtype": "torch.float32"})
        b = OP.problem({"M": "7", "dtype": "fp32", "N": 5, "B": 1, "layout": "nt", "precision": "ieee"})
        assert a == b
        assert hash(a) == hash(b)
        assert a.text == "op M=7 N=5 B=1 dtype=fp32 layout=nt"

    def test_every_difference_is_another_problem(self) -> None:
        base: dict[str, object] = {"M": 64, "dtype": "fp32"}
        others: list[dict[str, object]] = [
            {},
            {"M": 65},
            {"N": 1},
            {"B": 2},
            {"dtype": "bf16"},
            {"layout": "nt"},
            {"precision": "tf32"},
        ]
        texts = {OP.problem({**base, **other}).text for other in others}
        assert len(texts) == 7

    def test_an_attribute_added_later_leaves_old_texts_valid(self) -> None:
        later = Signature(
            OP.op, OP.dims, OP.dtypes, OP.knobs, (*OP.attributes, Attribute("bias", (True, False), False))
        )
        assert later.problem({"M": 7}) == OP.problem({"M": 7})

    def test_an_attribute_that_does_not_apply_is_not_there(self) -> None:
        assert "precision" not in OP.problem({"M": 7}).values
        assert OP.problem({"M": 7, "dtype": "fp32"})["precision"] == "ieee"

    def test_it_travels_to_other_processes(self) -> None:
        problem = OP.problem({"M": 7})
        assert pickle.loads(pickle.dumps(problem)) == problem

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({}, "op needs M; give M=SIZE"),
            ({"M": 0}, "op: M is a whole number from 1 to 2147483647, not 0"),
            ({"M": -1}, "op: M is a whole number from 1 to 2147483647, not -1"),
            ({"M": 2**63}, "op: M is a whole number from 1 to 2147483647, not 9223372036854775808"),
            ({"M": True}, "op: M is a whole number from 1 to 2147483647, not True"),
            ({"M": 1.0}, "op: M is a whole number from 1 to 2147483647, not 1.0"),
            ({"M": "٤"}, "op: M is a whole number from 1 to 2147483647, not '٤'"),
            ({"M": " 4"}, "op: M is a whole number from 1 to 2147483647, not ' 4'"),
            ({"M": 1, "X": 2}, "op is described by M, N, B, dtype, layout, precision, not by 'X'"),
            ({"M": 1, "dtype": "fp16"}, "op knows dtype bf16, fp32, not fp16"),
            ({"M": 1, "dtype": ""}, "a dtype is one of fp64, fp32, .* or torch's name for it, not ''"),
            ({"M": 1, "layout": "tt"}, "op: layout is one of nn, nt, not 'tt'"),
            ({"M": 1, "precision": "tf32"}, "op: precision applies to dtype fp32, not to bf16"),
        ],
    )
    def test_refusals_state_the_rule_and_the_value(self, values: dict[str, object], message: str) -> None:
        with pytest.raises(UsageError, match=f"^{message}$"):
            OP.problem(values)

    def test_a_long_value_is_cut(self) -> None:
        with pytest.raises(UsageError) as caught:
            OP.problem({"M": "9" * 100_000})
        assert len(str(caught.value)) < 200


class TestConfig:
    def test_knobs_with_a_default_are_filled_in_and_left_out_of_the_text(self) -> None:
        config = OP.config({"BLOCK": 64, "num_warps": 4, "num_stages": 1})
        assert config == {"BLOCK": 64, "num_warps": 4, "num_stages": 1, "FAST": False}
        assert config.text == "BLOCK=64 num_stages=1 num_warps=4"
        assert OP.config({**config, "FAST": True}).text == "BLOCK=64 FAST=True num_stages=1 num_warps=4"

    def test_order_does_not_matter(self) -> None:
        a = OP.config({"num_stages": 1, "num_warps": 4, "BLOCK": 64})
        b = OP.config({"BLOCK": 64, "num_warps": 4, "num_stages": 1})
        assert a == b
        assert len({a, b}) == 1
        assert list(a) == ["BLOCK", "num_warps", "num_stages", "FAST"]

    def test_it_unpacks_and_travels(self) -> None:
        config = OP.config({"BLOCK": 64, "num_warps": 4, "num_stages": 1})
        assert dict(**config)["BLOCK"] == 64
        assert pickle.loads(pickle.dumps(config)) == config
        assert pickle.loads(pickle.dumps(config)).text == config.text

    def test_a_value_outside_todays_choices_is_kept(self) -> None:
        assert OP.config({"BLOCK": 4096, "num_warps": 4, "num_stages": 1})["BLOCK"] == 4096

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ({"BLOCK": 64}, "a op config states every knob; num_warps, num_stages is missing"),
            (
                {"BLOCK": 64, "num_warps": 4, "num_stages": 1, "GROUP": 1},
                "a op config has the knobs BLOCK, num_warps, num_stages, FAST, not 'GROUP'",
            ),
        ],
    )
    def test_refusals(self, values: dict[str, int], message: str) -> None:
        with pytest.raises(UsageError, match=f"^{message}$"):
            OP.config(values)


class TestSignature:
    def test_warps_and_stages_are_always_knobs(self) -> None:
        with pytest.raises(UsageError, match="op: every config states num_stages, num_warps; add the knob"):
            Signature("op", (Dim("M"),), ("bf16",), knobs=(Knob("BLOCK", (64,)),))

    @pytest.mark.parametrize("name", ["../x", "Op", "", "a" * 65, "a b", "1a"])
    def test_a_name_is_no_path(self, name: str) -> None:
        with pytest.raises(UsageError, match="an op's name is lower-case letters, digits and _, up to 64"):
            Signature(name, (Dim("M"),), ("bf16",), OP.knobs)

    def test_fields_of_a_newer_version_are_ignored(self) -> None:
        data = OP.as_json()
        data["dims"][0]["unit"] = "rows"
        assert Signature.from_json(data) == OP


@pytest.mark.parametrize(
    ("given", "name"),
    [("bf16", "bf16"), ("bfloat16", "bf16"), ("torch.float16", "fp16"), ("half", "fp16"), ("float8_e4m3fn", "fp8e4m3")],
)
def test_dtypes_go_by_torchs_names_too(given: str, name: str) -> None:
    assert dtype_name(given) == name


def test_operands_are_contiguous_unless_they_say_otherwise() -> None:
    assert Operand((2, 3, 4), "bf16").element_strides == (12, 4, 1)
    assert Operand((2, 3), "bf16", strides=(1, 2)).element_strides == (1, 2)
    assert Operand((2, 3), "fp32").bytes == 24


def test_rounding_up() -> None:
    assert [cdiv(n, 4) for n in (0, 1, 4, 5)] == [0, 1, 1, 2]
    assert [next_power_of_2(n) for n in (0, 1, 2, 3, 127, 128, 129)] == [1, 1, 2, 4, 128, 128, 256]


@pytest.mark.parametrize("given", [True, "True", "true"])
def test_a_yes_may_come_from_python_json_or_a_url(given: object) -> None:
    knobs = (Knob("num_warps", (4,)), Knob("num_stages", (1,)))
    signature = Signature("op", (Dim("M"),), ("bf16",), knobs, (Attribute("bias", (False, True), False),))
    assert signature.problem({"M": 64, "bias": given}).text == "op M=64 dtype=bf16 bias=True"
    with pytest.raises(UsageError, match="bias is one of False, True, not 'yes'"):
        signature.problem({"M": 64, "bias": "yes"})


@pytest.mark.parametrize(
    ("scalars", "message"),
    [
        ([1.0], r"softmax: scalars is a dict, not \[1.0\]; write"),
        ({"a b": 1.0}, "softmax: the name of a scalar is an identifier, not 'a b'; rename it"),
        ({"M": 1.0}, "softmax: a scalar is no dim and no attribute, and M is one; rename the scalar"),
        ({"eps": float("nan")}, "softmax: the scalar eps is a finite number, not nan; correct it"),
        ({"eps": 10**400}, "softmax: the scalar eps is a finite number, not 1000"),
        ({"eps": True}, "softmax: the scalar eps is a finite number, not True; correct it"),
    ],
)
def test_scalars_are_finite_numbers_by_names_of_their_own(scalars: Any, message: str) -> None:
    with pytest.raises(KernelFault, match=message):
        replace(catalog.load("softmax"), scalars=scalars)


def test_a_scalar_has_not_the_name_of_a_tensor() -> None:
    """A launch finds both by name. The names of tensors may depend on the problem, and those of a call do not."""
    kernel = replace(catalog.load("softmax"), scalars={"x": 1.0})
    problem = kernel.signature.problem({"M": 4, "N": 8})
    with pytest.raises(KernelFault, match="operands returns no tensor by the name of a scalar, and x is one; rename"):
        kernel.operands(problem)
    work = replace(kernel, scalars={"partial": 1.0}, workspace=lambda *_: {"partial": Operand((4,), "fp32")})
    with pytest.raises(KernelFault, match="workspace returns no tensor by the name of a scalar, and partial is one"):
        work.workspace(problem, work.default_config(problem, H200.limits), H200.limits)
    with pytest.raises(
        KernelFault, match="tensors, attributes and scalars of a call have distinct names, and x is there"
    ):
        replace(CALL, kernel=kernel)


def test_scalars_are_floats_as_in_calls() -> None:
    (alpha,) = replace(catalog.load("softmax"), scalars={"alpha": 2}).scalars.values()
    assert type(alpha) is float
