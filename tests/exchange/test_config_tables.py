"""Tables of vLLM and SGLang: each spelling of a name is the same problem, and missing fields stay unknown."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from others import CONFIG, imported, keys, put, table_config

from tuner.exchange.convert import to_answers
from tuner.exchange.import_report import ImportReport
from tuner.exchange.imported import LIMITS, ImportOptions
from tuner.exchange.reader import read
from tuner.records import IMPORTED

H100 = "NVIDIA_H100_80GB_HBM3"
TILE = "a power of two from 1 to 1,048,576"
WARPS = "a power of two from 1 to 32"


def test_a_table_gives_an_answer_for_each_m(tmp_path: Path) -> None:
    put(tmp_path, f"E=8,N=7168,device_name={H100}.json", {"1": table_config(), "4096": table_config(128, num_warps=8)})
    answers, reasons = imported(tmp_path)
    assert keys(answers) == [
        "fused_moe M=1 E=8 N=7168 dtype=bf16 on nvidia-h100-80gb-hbm3",
        "fused_moe M=4096 E=8 N=7168 dtype=bf16 on nvidia-h100-80gb-hbm3",
    ]
    assert dict(answers[1].answer.config) == table_config(128, num_warps=8)
    assert answers[0].provenance.device.name == "NVIDIA H100 80GB HBM3"
    assert reasons == {}


def test_latency_and_version_stay_unknown_if_the_file_lacks_them(tmp_path: Path) -> None:
    put(tmp_path, f"E=8,N=7168,device_name={H100}.json", {"1": table_config()})
    (one,), _ = imported(tmp_path)
    answer, provenance = one.answer, one.provenance
    assert answer.kind == IMPORTED
    assert (answer.latency_us, answer.interval_us, answer.speedup, answer.tflops, answer.gb_per_s) == (None,) * 5
    assert (provenance.environment.triton, provenance.source, provenance.policy) == ("", "", "unknown")
    assert (provenance.device.sm_count, provenance.device.memory_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("name", "key"),
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
def test_each_form_of_a_file_name(tmp_path: Path, name: str, key: str) -> None:
    put(tmp_path, f"{name}.json", {"2": table_config()})
    answers, reasons = imported(tmp_path)
    assert keys(answers) == [f"{key} on nvidia-h200"]
    assert reasons == {}


def test_a_table_by_topk_and_hidden_size_holds_tables_by_m(tmp_path: Path) -> None:
    config = {"BLOCK_M": 1, "BLOCK_DIM": 512, "NUM_STAGE": 1, "num_warps": 4, "evict_policy": "evict_last"}
    name = "triton_3_4_0/moe_sum_reduce_NVIDIA-H200_t8_h4096_bfloat16.json"
    put(tmp_path, name, {"8-4096-bfloat16": {"16": config}, "eight": {}})
    (one,), reasons = imported(tmp_path)
    assert keys([one]) == ["moe_sum_reduce M=16 topk=8 hidden=4096 dtype=bf16 on nvidia-h200"]
    assert dict(one.answer.config) == config  # without num_stages, as in the file
    assert one.provenance.environment.triton == "3.4.0"
    (reason,) = reasons[Path(name).name]
    assert reason == "unknown format: a key is TOPK-HIDDEN-DTYPE with a table, not 'eight'"


def test_the_triton_version_is_in_the_table_or_in_its_folder(tmp_path: Path) -> None:
    name = "E=8,N=4096,device_name=NVIDIA_H200.json"
    put(tmp_path, name, {"triton_version": "3.6.0", "1": table_config()})
    put(tmp_path, f"triton_3_5_1/{name}", {"1": table_config(32)})
    answers, reasons = imported(tmp_path)
    versions = {one.provenance.environment.triton: one.answer.config["BLOCK_SIZE_M"] for one in answers}
    assert versions == {"3.6.0": 16, "3.5.1": 32}
    assert reasons == {}


def test_both_spellings_are_one_problem_and_vllms_spelling_counts(tmp_path: Path) -> None:
    own, other = (
        f"N=1536,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,{space}128].json" for space in ("", " ")
    )
    put(tmp_path, own, {"1": table_config(), "2": table_config()})
    put(tmp_path, other, {"1": table_config(), "2": table_config(64), "4": table_config()})
    answers, reasons = imported(tmp_path)
    assert [(one.origin, one.answer.problem["M"]) for one in answers] == [(own, 1), (own, 2), (other, 4)]
    assert reasons == {other: [f"{own} has the same config for it", f"{own} has another config for it"]}


def test_cards_with_similar_names_stay_apart(tmp_path: Path) -> None:
    names = ["NVIDIA_H100", H100, "NVIDIA_H100_PCIe", "NVIDIA_H20", "NVIDIA_H20-3e"]
    for name in names:
        put(tmp_path, f"E=8,N=4096,device_name={name}.json", {"1": table_config()})
    answers, _ = imported(tmp_path)
    assert {one.provenance.device.id for one in answers} == {
        "nvidia-h100",
        "nvidia-h100-80gb-hbm3",
        "nvidia-h100-pcie",
        "nvidia-h20",
        "nvidia-h20-3e",
    }


def test_unknown_content_is_reported_file_by_file(tmp_path: Path) -> None:
    put(tmp_path, "README.json", ["not a table"])
    put(tmp_path, "E=8,device_name=NVIDIA_H200.json", {"1": table_config()})
    put(tmp_path, "E=8,N=2,device_name=,dtype=int4_w4a16.json", {"1": table_config()})
    put(
        tmp_path,
        "E=8,N=2,device_name=NVIDIA_H200.json",
        {"0": table_config(), "1": table_config(), "default": table_config(), "2": [16]},
    )
    put(tmp_path, "cut.json", '{"1": {"BLOCK')
    put(tmp_path, "deep.json", "[" * 100_000)
    answers, reasons = imported(tmp_path)
    assert keys(answers) == ["fused_moe M=1 E=8 N=2 dtype=bf16 on nvidia-h200"]
    assert reasons.pop("deep.json")[0].startswith("it is not JSON: ")
    assert reasons.pop("cut.json")[0].startswith("it is not JSON: Unterminated string starting at in line 1")
    assert reasons == {
        "README.json": ["unknown format"],
        "E=8,device_name=NVIDIA_H200.json": ["unknown format: tables are by E, N; N, K; headdim, dstate, not by E"],
        "E=8,N=2,device_name=,dtype=int4_w4a16.json": ["a device name has 1 to 100 printable characters, not ''"],
        "E=8,N=2,device_name=NVIDIA_H200.json": [
            "unknown format: a key is an M, not 'default'",
            "a config is an object with a value for each knob, not [16]",
            "fused_moe: M is a whole number from 1 to 2147483647, not 0",
        ],
    }


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ({"block_sizes": [2, 512]}, "block_sizes is a number, a boolean or a short text, not [2, 512]"),
        ({"MODE": "x" * 300}, f"MODE is a number, a boolean or a short text, not '{'x' * 76}..."),
        ({"LIMIT": 10**30}, f"LIMIT is a number, a boolean or a short text, not 1{'0' * 30}"),
        ({"SCALE": float("nan")}, "SCALE is a number, a boolean or a short text, not nan"),
        ({"BLOCK": 1.5}, f"BLOCK is {TILE}, not 1.5"),
        ({"BLOCK_SIZE_M": 0}, f"BLOCK_SIZE_M is {TILE}, not 0"),
        ({"BLOCK_SIZE_K": -64}, f"BLOCK_SIZE_K is {TILE}, not -64"),
        ({"BLOCK_SIZE_N": 96}, f"BLOCK_SIZE_N is {TILE}, not 96"),
        ({"BLOCK_SIZE_N": 2**21}, f"BLOCK_SIZE_N is {TILE}, not 2097152"),
        ({"BLOCK_SIZE_N": "64"}, f"BLOCK_SIZE_N is {TILE}, not '64'"),
        ({"BLOCK_SIZE_N": True}, f"BLOCK_SIZE_N is {TILE}, not True"),
        ({"GROUP_SIZE_M": 0}, "GROUP_SIZE_M is a whole number from 1 to 1,048,576, not 0"),
        ({"SPLIT_K": -1}, "SPLIT_K is a whole number from 1 to 1,048,576, not -1"),
        ({"../../x": 1}, "a name is letters, digits and _, not '../../x'"),
        ({f"KNOB_{number}": 1 for number in range(40)}, "a config has 1 to 32 knobs, not 40"),
        ({}, "a config has 1 to 32 knobs, not 0"),
        ({"num_warps": "__import__('os').abort()"}, f"num_warps is {WARPS}, not \"__import__('os').abort()\""),
        ({"num_warps": 3}, f"num_warps is {WARPS}, not 3"),
        ({"num_warps": 64}, f"num_warps is {WARPS}, not 64"),
        ({"num_warps": True}, f"num_warps is {WARPS}, not True"),
        ({"num_warps": None}, f"num_warps is {WARPS}, not None"),
        ({"num_stages": 10**6}, "num_stages is a whole number from 0 to 64, not 1000000"),
        ({"num_stages": -1}, "num_stages is a whole number from 0 to 64, not -1"),
        ({"num_stages": 2.5}, "num_stages is a whole number from 0 to 64, not 2.5"),
    ],
)
def test_a_config_that_is_not_data_of_bounded_size_is_skipped(tmp_path: Path, config: object, reason: str) -> None:
    name = "E=8,N=2,device_name=NVIDIA_H200.json"
    put(tmp_path, name, {"1": config})
    assert imported(tmp_path) == ([], {name: [reason]})


def test_what_a_file_leaves_out_stays_out(tmp_path: Path) -> None:
    """As vLLM's tables for AMD cards do, whose defaults are not those of other cards."""
    name = "E=8,N=2,device_name=AMD_Instinct_MI300X.json"
    tile = {key: value for key, value in CONFIG.items() if not key.startswith("num_")}
    put(tmp_path, name, {"1": tile | {"waves_per_eu": 0}, "2": tile | {"num_warps": 8}, "4": CONFIG})
    answers, reasons = imported(tmp_path)
    assert reasons == {}
    assert [dict(one.answer.config) for one in answers] == [tile | {"waves_per_eu": 0}, tile | {"num_warps": 8}, CONFIG]
    assert [len(one.signature.knobs) for one in answers] == [5, 5, 6]


def test_1_0_is_a_number(tmp_path: Path) -> None:
    text = '{"1": {"BLOCK_SIZE_M": 16.0, "num_warps": 4.0, "num_stages": 2e0, "USE_TMA": true, "MODE": "1.0"}}'
    put(tmp_path, "E=8,N=2,device_name=NVIDIA_H200.json", text)
    (one,), reasons = imported(tmp_path)
    assert reasons == {}
    assert json.dumps(dict(one.answer.config)) == (
        '{"BLOCK_SIZE_M": 16, "num_warps": 4, "num_stages": 2, "USE_TMA": true, "MODE": "1.0"}'
    )


def test_a_config_that_is_skipped_is_named_by_its_place(tmp_path: Path) -> None:
    bad = table_config(num_warps=3)
    put(tmp_path, "E=8,N=2,device_name=NVIDIA_H200.json", {"1": table_config(), **dict.fromkeys("23456789", bad)})
    put(tmp_path, "E=8,N=3,device_name=NVIDIA_H200.json", {"16": bad})
    content = read([tmp_path], ImportOptions())
    _, skipped = to_answers(content.configs, lambda op: None, lambda id: None)
    report = ImportReport(2, content.count, Counter(), tuple(skipped), ())
    assert list(report.reasons()) == [
        f"E=8,N=2,device_name=NVIDIA_H200.json: num_warps is {WARPS}, not 3 "
        "(8 configs: M=2, M=3, M=4, M=5, M=6 and 3 more)",
        f"E=8,N=3,device_name=NVIDIA_H200.json: num_warps is {WARPS}, not 3 (M=16)",
    ]


def test_no_expression_is_evaluated_and_no_pickle_is_loaded(tmp_path: Path) -> None:
    harm = tmp_path / "harm"
    expression = f"__import__('pathlib').Path({str(harm)!r}).touch()"
    put(tmp_path, "silu_sm_90.json", {"useful_configs": {"0": expression}, "hash_configs": {expression: 0}})
    put(tmp_path, "E=8,N=2,device_name=NVIDIA_H200.json", {"1": table_config(EVICT=expression), "2": expression})
    (tmp_path / "E=8,N=3,device_name=NVIDIA_H200.json").write_bytes(b"cos\nabort\n(tR.")
    (one,), reasons = imported(tmp_path)
    assert dict(one.answer.config) == {**CONFIG, "EVICT": expression}  # text stays text
    assert len(reasons) == 3
    assert not harm.exists()


def test_a_file_above_the_size_limit_is_skipped(tmp_path: Path) -> None:
    import gzip

    file = tmp_path / "E=8,N=2,device_name=NVIDIA_H200.json.gz"
    file.write_bytes(gzip.compress(b'{"1":' + b" " * LIMITS.max_bytes + b"{}}", 1))
    assert imported(file) == ([], {file.name: ["it is larger than 64,000,000 bytes"]})


def test_an_op_with_a_kernel_uses_its_signature(tmp_path: Path) -> None:
    from tuner.kernels.spec import Dim, Knob, Signature

    names = ["BLOCK_SIZE_M", "BLOCK_SIZE_N", "BLOCK_SIZE_K", "GROUP_SIZE_M", "num_warps", "num_stages"]
    dims = (Dim("E"), Dim("N"), Dim("M"))
    own = Signature("fused_moe", dims, ("fp16", "bf16"), tuple(Knob(name, (1, 2)) for name in names))
    put(tmp_path, "E=8,N=2,device_name=NVIDIA_H200.json", {"1": table_config(), "2": table_config(SPLIT_K=1)})
    put(tmp_path, "E=8,N=2,device_name=NVIDIA_H200,dtype=int8_w8a16.json", {"1": table_config()})
    answers, reasons = imported(tmp_path, known=own)
    assert keys(answers) == ["fused_moe E=8 N=2 M=1 dtype=bf16 on nvidia-h200"]
    assert answers[0].signature == own
    assert {name: reason[0].partition(",")[0] for name, reason in reasons.items()} == {
        "E=8,N=2,device_name=NVIDIA_H200.json": "a fused_moe config has the knobs BLOCK_SIZE_M",
        "E=8,N=2,device_name=NVIDIA_H200,dtype=int8_w8a16.json": "fused_moe is described by E",
    }


def test_a_second_import_extends_the_signature_of_the_first(tmp_path: Path) -> None:
    put(tmp_path, "a/E=8,N=2,device_name=NVIDIA_H200,dtype=fp8_w8a8.json", {"1": table_config()})
    (first,), _ = imported(tmp_path / "a")
    put(tmp_path, "b/E=8,N=2,device_name=NVIDIA_H200,block_shape=[64,64].json", {"1": table_config(SPLIT_K=1)})
    (second,), reasons = imported(tmp_path / "b", known=first.signature)
    attributes = {attribute.name: attribute.choices for attribute in second.signature.attributes}
    assert attributes == {"quant": ("none", "fp8_w8a8"), "block_shape": ("none", "64x64")}
    assert second.signature.problem(first.answer.problem.values) == first.answer.problem
    assert reasons == {}
