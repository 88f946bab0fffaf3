"""Tables of vLLM and SGLang: every spelling of a name comes to one question, and nothing is made up."""

from __future__ import annotations

from pathlib import Path

import pytest
from others import CONFIG, put, questions, rung, taken

from tuner.exchange.files import MOST_BYTES
from tuner.records import IMPORTED

H100 = "NVIDIA_H100_80GB_HBM3"


def test_a_table_is_an_answer_for_every_m(tmp_path: Path) -> None:
    put(tmp_path, f"E=8,N=7168,device_name={H100}.json", {"1": rung(), "4096": rung(128, num_warps=8)})
    arrivals, reasons = taken(tmp_path)
    assert questions(arrivals) == [
        "fused_moe M=1 E=8 N=7168 dtype=bf16 on nvidia-h100-80gb-hbm3",
        "fused_moe M=4096 E=8 N=7168 dtype=bf16 on nvidia-h100-80gb-hbm3",
    ]
    assert dict(arrivals[1].answer.config) == rung(128, num_warps=8)
    assert arrivals[0].provenance.device.name == "NVIDIA H100 80GB HBM3"
    assert reasons == {}


def test_no_timing_and_no_version_is_made_up(tmp_path: Path) -> None:
    put(tmp_path, f"E=8,N=7168,device_name={H100}.json", {"1": rung()})
    (arrival,), _ = taken(tmp_path)
    answer, provenance = arrival.answer, arrival.provenance
    assert answer.kind == IMPORTED
    assert (answer.latency_us, answer.interval_us, answer.speedup, answer.tflops, answer.gb_per_s) == (None,) * 5
    assert (provenance.environment.triton, provenance.source, provenance.policy) == ("", "", "unknown")
    assert (provenance.device.sm_count, provenance.device.memory_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("E=8,N=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8", "fused_moe M=2 E=8 N=4096 dtype=bf16 quant=fp8_w8a8"),
        ("E=8,N=4096,device_name=NVIDIA_H200,dtype=float32", "fused_moe M=2 E=8 N=4096 dtype=fp32"),
        (
            "E=8,N=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128]",
            "fused_moe M=2 E=8 N=4096 dtype=bf16 block_shape=128x128 quant=fp8_w8a8",
        ),
        (
            "E=161,N=192,device_name=NVIDIA_H200,dtype=fp8_w8a8,per_channel_quant=True",
            "fused_moe M=2 E=161 N=192 dtype=bf16 per_channel_quant=True quant=fp8_w8a8",
        ),
        (
            "E=8,N=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128]_down",
            "fused_moe M=2 E=8 N=4096 dtype=bf16 block_shape=128x128 down=True quant=fp8_w8a8",
        ),
        (
            "N=1536,K=7168,device_name=NVIDIA_H200,dtype=int8_w8a8,block_shape=[64, 64]",
            "block_scaled_mm M=2 N=1536 K=7168 dtype=bf16 block_shape=64x64 quant=int8_w8a8",
        ),
        (
            "headdim=64,dstate=128,device_name=NVIDIA_H200,cache_dtype=float16",
            "selective_state_update M=2 headdim=64 dstate=128 dtype=bf16 cache_dtype=float16",
        ),
    ],
)
def test_every_form_of_a_name(tmp_path: Path, name: str, question: str) -> None:
    put(tmp_path, f"{name}.json", {"2": rung()})
    arrivals, reasons = taken(tmp_path)
    assert questions(arrivals) == [f"{question} on nvidia-h200"]
    assert reasons == {}


def test_a_table_in_a_table(tmp_path: Path) -> None:
    config = {"BLOCK_M": 1, "BLOCK_DIM": 512, "NUM_STAGE": 1, "num_warps": 4, "evict_policy": "evict_last"}
    name = "triton_3_4_0/moe_sum_reduce_NVIDIA-H200_t8_h4096_bfloat16.json"
    put(tmp_path, name, {"8-4096-bfloat16": {"16": config}, "eight": {}})
    (arrival,), reasons = taken(tmp_path)
    assert questions([arrival]) == ["moe_sum_reduce M=16 topk=8 hidden=4096 dtype=bf16 on nvidia-h200"]
    assert dict(arrival.answer.config) == {**config, "num_stages": 3}  # what Triton launches with where none is said
    assert arrival.provenance.environment.triton == "3.4.0"
    (reason,) = reasons[Path(name).name]
    assert reason == "schema not known: 'eight' is no topk, hidden size and dtype with a table"


def test_the_version_is_in_the_table_or_in_its_folder(tmp_path: Path) -> None:
    name = "E=8,N=4096,device_name=NVIDIA_H200.json"
    put(tmp_path, name, {"triton_version": "3.6.0", "1": rung()})
    put(tmp_path, f"triton_3_5_1/{name}", {"1": rung(32)})
    arrivals, reasons = taken(tmp_path)
    versions = {arrival.provenance.environment.triton: arrival.answer.config["BLOCK_SIZE_M"] for arrival in arrivals}
    assert versions == {"3.6.0": 16, "3.5.1": 32}
    assert reasons == {}


def test_both_spellings_are_one_question_and_vllms_own_counts(tmp_path: Path) -> None:
    own, other = (
        f"N=1536,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,{space}128].json" for space in ("", " ")
    )
    put(tmp_path, own, {"1": rung(), "2": rung()})
    put(tmp_path, other, {"1": rung(), "2": rung(64), "4": rung()})
    arrivals, reasons = taken(tmp_path)
    assert [(arrival.origin, arrival.answer.problem["M"]) for arrival in arrivals] == [(own, 1), (own, 2), (other, 4)]
    assert reasons == {other: [f"{own} says the same", f"{own} says otherwise"]}


def test_no_card_answers_for_another_of_nearly_its_name(tmp_path: Path) -> None:
    names = ["NVIDIA_H100", H100, "NVIDIA_H100_PCIe", "NVIDIA_H20", "NVIDIA_H20-3e"]
    for name in names:
        put(tmp_path, f"E=8,N=4096,device_name={name}.json", {"1": rung()})
    arrivals, _ = taken(tmp_path)
    assert {arrival.provenance.device.id for arrival in arrivals} == {
        "nvidia-h100",
        "nvidia-h100-80gb-hbm3",
        "nvidia-h100-pcie",
        "nvidia-h20",
        "nvidia-h20-3e",
    }


def test_what_is_not_known_is_named_file_by_file(tmp_path: Path) -> None:
    put(tmp_path, "README.json", ["no table"])
    put(tmp_path, "E=8,device_name=NVIDIA_H200.json", {"1": rung()})
    put(tmp_path, "E=8,N=2,device_name=,dtype=int4_w4a16.json", {"1": rung()})
    put(tmp_path, "E=8,N=2,device_name=NVIDIA_H200.json", {"0": rung(), "1": rung(), "default": rung(), "2": [16]})
    put(tmp_path, "cut.json", '{"1": {"BLOCK')
    put(tmp_path, "deep.json", "[" * 100_000)
    arrivals, reasons = taken(tmp_path)
    assert questions(arrivals) == ["fused_moe M=1 E=8 N=2 dtype=bf16 on nvidia-h200"]
    assert reasons.pop("deep.json")[0].startswith("no JSON: ")
    assert reasons.pop("cut.json")[0].startswith("no JSON: Unterminated string starting at in line 1")
    assert reasons == {
        "README.json": ["schema not known"],
        "E=8,device_name=NVIDIA_H200.json": ["schema not known: a table by E"],
        "E=8,N=2,device_name=,dtype=int4_w4a16.json": ["it names no device"],
        "E=8,N=2,device_name=NVIDIA_H200.json": [
            "schema not known: 'default' is no M with a config",
            "schema not known: '2' is no M with a config",
            "fused_moe: M is a whole number from 1 to 2147483647, not 0",
        ],
    }


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"block_sizes": [2, 512]}, "block_sizes is no number, yes or no, or short text"),
        ({"BLOCK": "x" * 300}, "BLOCK is no number, yes or no, or short text"),
        ({"BLOCK": 10**30}, "BLOCK is no number, yes or no, or short text"),
        ({"BLOCK": 1.5}, "BLOCK is no number, yes or no, or short text"),
        ({"../../x": 1}, "a name in it is none, or there are too many"),
        ({f"KNOB_{number}": 1 for number in range(40)}, "a name in it is none, or there are too many"),
        ({"num_warps": "__import__('os').abort()"}, "no Triton config: its num_warps is no number from 1 to 64"),
        ({"num_stages": 10**6}, "no Triton config: its num_stages is no number from 0 to 64"),
    ],
)
def test_a_config_is_data_of_bounded_size_or_nothing(tmp_path: Path, config: object, reason: str) -> None:
    name = "E=8,N=2,device_name=NVIDIA_H200.json"
    put(tmp_path, name, {"1": config})
    assert taken(tmp_path) == ([], {name: [reason]})


def test_no_expression_is_evaluated_and_no_pickle_loaded(tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    expression = f"__import__('pathlib').Path({str(harm)!r}).touch()"
    put(tmp_path, "silu_sm_90.json", {"useful_configs": {"0": expression}, "hash_configs": {expression: 0}})
    put(tmp_path, "E=8,N=2,device_name=NVIDIA_H200.json", {"1": rung(EVICT=expression), "2": expression})
    (tmp_path / "E=8,N=3,device_name=NVIDIA_H200.json").write_bytes(b"cos\nabort\n(tR.")
    (arrival,), reasons = taken(tmp_path)
    assert dict(arrival.answer.config) == {**CONFIG, "EVICT": expression}  # text stays text
    assert len(reasons) == 3
    assert not harm.exists()


def test_a_file_is_read_up_to_a_bound(tmp_path: Path) -> None:
    import gzip

    file = tmp_path / "E=8,N=2,device_name=NVIDIA_H200.json.gz"
    file.write_bytes(gzip.compress(b'{"1":' + b" " * MOST_BYTES + b"{}}", 1))
    assert taken(file) == ([], {file.name: ["it is larger than 64,000,000 bytes"]})


def test_an_op_that_has_a_kernel_is_asked_by_its_signature(tmp_path: Path) -> None:
    from tuner.kernels.spec import Dim, Knob, Signature

    names = ["BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages"]
    dims = (Dim("E"), Dim("N"), Dim("M"))
    own = Signature("fused_moe", dims, ("fp16", "bf16"), tuple(Knob(name, (1, 2)) for name in names))
    put(tmp_path, "E=8,N=2,device_name=NVIDIA_H200.json", {"1": rung(), "2": rung(SPLIT_K=1)})
    put(tmp_path, "E=8,N=2,device_name=NVIDIA_H200,dtype=int8_w8a16.json", {"1": rung()})
    arrivals, reasons = taken(tmp_path, known=own)
    assert questions(arrivals) == ["fused_moe E=8 N=2 M=1 dtype=bf16 on nvidia-h200"]
    assert arrivals[0].signature == own
    assert {name: reason[0].partition(",")[0] for name, reason in reasons.items()} == {
        "E=8,N=2,device_name=NVIDIA_H200.json": "a fused_moe config has the knobs BLOCK_SIZE_M",
        "E=8,N=2,device_name=NVIDIA_H200,dtype=int8_w8a16.json": "fused_moe is described by E",
    }


def test_what_was_imported_before_is_asked_by_what_it_knew_and_more(tmp_path: Path) -> None:
    put(tmp_path, "a/E=8,N=2,device_name=NVIDIA_H200,dtype=fp8_w8a8.json", {"1": rung()})
    (first,), _ = taken(tmp_path / "a")
    put(tmp_path, "b/E=8,N=2,device_name=NVIDIA_H200,block_shape=[64,64].json", {"1": rung(SPLIT_K=1)})
    (second,), reasons = taken(tmp_path / "b", known=first.signature)
    attributes = {attribute.name: attribute.choices for attribute in second.signature.attributes}
    assert attributes == {"quant": ("none", "fp8_w8a8"), "block_shape": ("none", "64x64")}
    assert second.signature.problem(first.answer.problem.values) == first.answer.problem
    assert reasons == {}
