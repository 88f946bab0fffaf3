"""Answers written as tables of vLLM and SGLang, and read back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import H200
from others import imported, keys
from stored import HERE

from tuner.errors import UsageError
from tuner.exchange import folder
from tuner.exchange.config_tables import layer_of, table_of, to_tables
from tuner.kernels.spec import Attribute, Dim, Knob, Signature
from tuner.records import Answer, Environment, StoredAnswer

LAUNCH = (Knob("num_warps", (4, 8)), Knob("num_stages", (2, 3, 4)))
MOE = Signature(
    op="fused_moe",
    dims=(Dim("M"), Dim("E"), Dim("N")),
    dtypes=("bf16", "fp16"),
    knobs=(*(Knob(name, (16, 64)) for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M")), *LAUNCH),
    attributes=(
        Attribute("quant", ("none", "fp8_w8a8"), "none"),
        Attribute("block_shape", ("none", "128x128"), "none"),
        Attribute("down", (False, True), False),
        Attribute("act", ("none", "../../x"), "none"),
    ),
)
WIDE = replace(MOE, dims=(*MOE.dims, Dim("K")), attributes=(Attribute("act", ("silu", "gelu"), "silu"),))
MATMUL = Signature("matmul", (Dim("M"), Dim("N"), Dim("K")), ("bf16", "fp16"), (Knob("BLOCK_M", (16,)), *LAUNCH))
THEIRS = dict.fromkeys(("BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M"), 16)
THEIRS |= {"num_warps": 4, "num_stages": 2}


def answered(
    id: int, signature: Signature = MOE, triton: str = "3.6.0", block: int = 16, **problem: Any
) -> StoredAnswer:
    config = {knob.name: knob.choices[0] for knob in signature.knobs} | {"BLOCK_M": block}
    about = signature.problem({"E": 8, "N": 4096, **problem} if signature is MOE else problem)
    answer = Answer(about, "tuned", signature.config(config), 10.0, (9.9, 10.1), 1.2, (1.1, 1.3), 12.0, None)
    return StoredAnswer(id, answer, replace(HERE, environment=Environment(triton)), "2026-11-28T00:00:00+00:00", id)


def test_answers_by_m_are_one_table_for_vllm() -> None:
    quantised: dict[str, Any] = {"quant": "fp8_w8a8", "block_shape": "128x128"}
    ladder = [answered(1, M=64, **quantised), answered(2, M=8, **quantised), answered(3, M=64, block=64, **quantised)]
    documents, skipped = to_tables(ladder, "vllm")
    name = "E=8,N=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
    assert documents == {name: {"triton_version": "3.6.0", "8": THEIRS, "64": {**THEIRS, "BLOCK_SIZE_M": 64}}}
    assert [*documents[name]] == ["triton_version", "8", "64"]
    assert skipped == []


def test_sglang_has_a_folder_for_each_version_and_a_space_in_its_names() -> None:
    several = [answered(1, M=64, quant="fp8_w8a8", block_shape="128x128", down=True), answered(2, M=64, triton="3.7.1")]
    documents, skipped = to_tables([*several, answered(3, M=1, triton="")], "sglang")
    block = "E=8,N=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128]_down.json"
    assert documents == {
        f"triton_3_6_0/{block}": {"64": THEIRS},
        "triton_3_7_1/E=8,N=4096,device_name=NVIDIA_H200.json": {"64": THEIRS},
    }
    (unversioned,) = skipped
    assert unversioned.reason == "SGLang keeps tables by Triton version, and the version of this answer is unknown"


def test_another_op_has_a_folder_of_its_own_and_each_dtype_a_file() -> None:
    documents, _ = to_tables(
        [answered(1, MATMUL, M=8, N=64, K=32), answered(2, MATMUL, M=8, N=64, K=32, dtype="fp16")], "vllm"
    )
    own = {"BLOCK_M": 16, "num_warps": 4, "num_stages": 2}
    assert documents == {
        "matmul/N=64,K=32,device_name=NVIDIA_H200.json": {"triton_version": "3.6.0", "8": own},
        "matmul/N=64,K=32,device_name=NVIDIA_H200,dtype=float16.json": {"triton_version": "3.6.0", "8": own},
    }


def test_answers_that_a_table_cannot_hold_are_left_out_with_the_reason() -> None:
    replayed = replace(answered(1, M=1), provenance=replace(HERE, recorded="some-space"))
    softmax = Signature("softmax", (Dim("R"),), ("bf16",), (Knob("BLOCK_M", (16,)), *LAUNCH))
    documents, skipped = to_tables([replayed, answered(2, softmax, R=1), answered(3, M=1, act="../../x")], "vllm")
    assert documents == {}
    assert [one.reason for one in skipped] == [
        "a table cannot mark an answer as replayed, and this one is from some-space",
        "a table has a config for each M, and softmax has no dim M",
        "a file's name is letters, digits and _,=()[] .+-, not 'E=8,N=4096,device_name=NVIDIA_H200,act=../../x.json'",
    ]


def test_a_table_of_several_versions_states_none() -> None:
    documents, _ = to_tables([answered(1, M=1), answered(2, M=2, triton="3.7.1")], "vllm")
    assert [*documents["E=8,N=4096,device_name=NVIDIA_H200.json"]] == ["1", "2"]


@pytest.mark.parametrize("style", ["vllm", "sglang"])
def test_written_tables_are_read_back_as_the_same_problems(tmp_path: Path, style: str) -> None:
    given = [
        answered(1, M=64, quant="fp8_w8a8", block_shape="128x128"),
        answered(2, M=1),
        answered(3, M=1, dtype="fp16"),
    ]
    documents, _ = to_tables(given, style)
    assert sorted(folder.write(tmp_path, documents)[0]) == sorted(documents)
    answers, reasons = imported(tmp_path)
    assert reasons == {}
    assert sorted(keys(answers)) == sorted(f"{one.answer.problem.text} on {H200.id}" for one in given)
    assert {one.provenance.environment.triton for one in answers} == {"3.6.0"}


def test_no_file_is_written_outside_the_folder_or_overwritten(tmp_path: Path) -> None:
    for name in ("../x", "/etc/x", "a/b", "a\\b", "a\x00b", "x" * 10_000, ".hidden", ""):
        with pytest.raises(UsageError, match="a file's name is letters, digits"):
            folder.relative_path(name)
    device = replace(H200, name="../../NVIDIA/H200")
    stored = replace(answered(1, M=1), provenance=replace(HERE, device=device))
    documents, (skipped,) = to_tables([stored], "vllm")
    assert documents == {}
    assert skipped.reason.startswith("a file's name is letters, digits")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.json").write_text("mine")
    written, (kept,) = folder.write(tmp_path / "out", {"a.json": {}, "sub/b.json": {"1": {}}})
    assert (written, kept.file) == (["sub/b.json"], "a.json")
    assert (tmp_path / "out" / "a.json").read_text() == "mine"
    assert json.loads((tmp_path / "out" / "sub" / "b.json").read_text()) == {"1": {}}
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.json", "b.json", "out", "sub"]


class TestTableOfALayer:
    LAYER = layer_of({"E": "8", "N": "4096", "dtype": "fp8_w8a8", "block_shape": "[128, 128]"})
    STATED: Mapping[str, Any] = {"quant": "fp8_w8a8", "block_shape": "128x128"}

    def test_it_has_the_configs_of_the_layer_by_m(self) -> None:
        answers = [
            answered(1, M=64, **self.STATED),
            answered(2, M=8, **self.STATED),
            answered(3, M=16),
            answered(4, M=16, down=True, **self.STATED),
            answered(5, M=16, E=16, **self.STATED),
            answered(6, M=16, dtype="fp16", **self.STATED),
            answered(7, MATMUL, M=16, N=4096, K=8),
        ]
        assert table_of(self.LAYER, answers) == {8: THEIRS, 64: THEIRS}
        assert table_of(layer_of({"E": "8", "N": "4096"}), answers) == {16: THEIRS}
        assert table_of(layer_of({"E": "9", "N": "4096"}), answers) == {}

    def test_the_answer_of_the_nearest_version_of_triton_serves(self) -> None:
        versions = ("3.4.0", "3.6.0", "3.8.0")
        answers = [
            answered(id, triton=triton, block=block, M=64, **self.STATED)
            for id, (triton, block) in enumerate(zip(versions, (16, 64, 16), strict=True))
        ]
        assert table_of(self.LAYER, answers, "3.7.1") == {64: {**THEIRS, "BLOCK_SIZE_M": 64}}

    def test_further_dims_are_taken_if_all_answers_agree_in_them(self) -> None:
        def wide(id: int, k: int, m: int = 64) -> StoredAnswer:
            return answered(id, WIDE, M=m, E=8, N=4096, K=k, act="silu")

        layer = layer_of({"E": "8", "N": "4096"})
        assert table_of(layer, [wide(1, 7168), wide(2, 7168, m=8)]) == {8: THEIRS, 64: THEIRS}
        with pytest.raises(UsageError) as refused:
            table_of(layer, [wide(1, 7168), wide(2, 2048)])
        assert str(refused.value) == (
            "tables do not distinguish K=7168 act=silu and K=2048 act=silu of fused_moe; "
            "tuner forget retires answers of one"
        )
        assert table_of(layer, [wide(1, 7168), answered(2, M=1), wide(3, 2048)]) == {1: THEIRS}
