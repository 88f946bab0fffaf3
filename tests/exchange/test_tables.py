"""Answers as vLLM and SGLang read them, by M; and back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import H200
from others import questions, taken
from stored import HERE

from tuner.errors import UsageError
from tuner.exchange import folder
from tuner.exchange.tables import tables
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


def test_a_ladder_of_answers_is_a_table_of_vllms() -> None:
    quantised: dict[str, Any] = {"quant": "fp8_w8a8", "block_shape": "128x128"}
    ladder = [answered(1, M=64, **quantised), answered(2, M=8, **quantised), answered(3, M=64, block=64, **quantised)]
    documents, refused = tables(ladder, "vllm")
    name = "E=8,N=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"
    assert documents == {name: {"triton_version": "3.6.0", "8": THEIRS, "64": {**THEIRS, "BLOCK_SIZE_M": 64}}}
    assert [*documents[name]] == ["triton_version", "8", "64"]
    assert refused == []


def test_sglang_has_a_folder_for_a_version_and_a_space_in_its_names() -> None:
    several = [answered(1, M=64, quant="fp8_w8a8", block_shape="128x128", down=True), answered(2, M=64, triton="3.7.1")]
    documents, refused = tables([*several, answered(3, M=1, triton="")], "sglang")
    block = "E=8,N=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128]_down.json"
    assert documents == {
        f"triton_3_6_0/{block}": {"64": THEIRS},
        "triton_3_7_1/E=8,N=4096,device_name=NVIDIA_H200.json": {"64": THEIRS},
    }
    (unversioned,) = refused
    assert unversioned.reason == "SGLang keeps tables by Triton version, and its is not known"


def test_an_op_of_our_own_does_not_get_among_theirs_nor_one_dtype_among_another() -> None:
    documents, _ = tables(
        [answered(1, MATMUL, M=8, N=64, K=32), answered(2, MATMUL, M=8, N=64, K=32, dtype="fp16")], "vllm"
    )
    own = {"BLOCK_M": 16, "num_warps": 4, "num_stages": 2}
    assert documents == {
        "matmul/N=64,K=32,device_name=NVIDIA_H200.json": {"triton_version": "3.6.0", "8": own},
        "matmul/N=64,K=32,device_name=NVIDIA_H200,dtype=float16.json": {"triton_version": "3.6.0", "8": own},
    }


def test_what_a_table_cannot_say_is_left_out_with_the_reason() -> None:
    replayed = replace(answered(1, M=1), provenance=replace(HERE, recorded="some-space"))
    softmax = Signature("softmax", (Dim("R"),), ("bf16",), (Knob("BLOCK_M", (16,)), *LAUNCH))
    documents, refused = tables([replayed, answered(2, softmax, R=1), answered(3, M=1, act="../../x")], "vllm")
    assert documents == {}
    assert [one.reason for one in refused] == [
        "replayed from some-space, and a table has no room to say so",
        "a table goes by M, and it has no such dim",
        "'E=8,N=4096,device_name=NVIDIA_H200,act=../../x.json' is no name for a file",
    ]


def test_tables_of_different_versions_do_not_claim_one() -> None:
    documents, _ = tables([answered(1, M=1), answered(2, M=2, triton="3.7.1")], "vllm")
    assert [*documents["E=8,N=4096,device_name=NVIDIA_H200.json"]] == ["1", "2"]


@pytest.mark.parametrize("style", ["vllm", "sglang"])
def test_what_is_written_comes_back_as_the_same_questions(tmp_path: Path, style: str) -> None:
    given = [
        answered(1, M=64, quant="fp8_w8a8", block_shape="128x128"),
        answered(2, M=1),
        answered(3, M=1, dtype="fp16"),
    ]
    documents, _ = tables(given, style)
    assert sorted(folder.write(tmp_path, documents)[0]) == sorted(documents)
    arrivals, reasons = taken(tmp_path)
    assert reasons == {}
    assert sorted(questions(arrivals)) == sorted(f"{one.answer.problem.text} on {H200.id}" for one in given)
    assert {arrival.provenance.environment.triton for arrival in arrivals} == {"3.6.0"}


def test_nothing_is_written_outside_the_folder_or_over_what_is_there(tmp_path: Path) -> None:
    for name in ("../x", "/etc/x", "a/b", "a\\b", "a\x00b", "x" * 10_000, ".hidden", ""):
        with pytest.raises(UsageError, match="is no name for a file"):
            folder.path_of(name)
    device = replace(H200, name="../../NVIDIA/H200")
    stored = replace(answered(1, M=1), provenance=replace(HERE, device=device))
    documents, (refused,) = tables([stored], "vllm")
    assert documents == {}
    assert refused.reason.endswith("is no name for a file")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "a.json").write_text("mine")
    written, (kept,) = folder.write(tmp_path / "out", {"a.json": {}, "sub/b.json": {"1": {}}})
    assert (written, kept.file) == (["sub/b.json"], "a.json")
    assert (tmp_path / "out" / "a.json").read_text() == "mine"
    assert json.loads((tmp_path / "out" / "sub" / "b.json").read_text()) == {"1": {}}
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a.json", "b.json", "out", "sub"]
