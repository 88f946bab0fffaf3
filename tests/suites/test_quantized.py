"""8-bit checkpoints: the problems of `scaled_gemm` in them, by the quantization configs of published models."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuner import catalog
from tuner.errors import UsageError
from tuner.suites.projections import ModelShape, load
from tuner.suites.selection import select_problems

QWEN3_8B = {
    "model_type": "qwen3",
    "intermediate_size": 12288,
    "num_key_value_heads": 8,
    "hidden_size": 4096,
    "torch_dtype": "bfloat16",
}
BLOCKS = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}
"""Qwen/Qwen3-8B-FP8, deepseek-ai/DeepSeek-V3."""
STATIC = {"activation_scheme": "static", "quant_method": "fp8", "ignored_layers": ["lm_head"]}
"""Checkpoints of AutoFP8."""


def part(strategy: str, type: str = "float", bits: int = 8, **others: Any) -> dict[str, Any]:
    return {"num_bits": bits, "type": type, "strategy": strategy, "symmetric": True, **others}


def compressed(weights: object, inputs: object) -> dict[str, Any]:
    """Return a config of LLM Compressor."""
    group = {"weights": weights, "input_activations": inputs, "output_activations": None, "targets": ["Linear"]}
    return {"config_groups": {"group_0": group}, "ignore": ["lm_head"], "quant_method": "compressed-tensors"}


def model(folder: Path, quantization: object, **others: Any) -> ModelShape:
    return load(written(folder, quantization, **others))


def written(folder: Path, quantization: object, **others: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps({**QWEN3_8B, "quantization_config": quantization, **others}))
    return file


@pytest.mark.parametrize(
    ("quantization", "scales"),
    [
        (BLOCKS, "block"),
        (STATIC, "tensor"),
        (compressed(part("tensor"), part("tensor", dynamic=False)), "tensor"),
        (compressed(part("block", block_structure=[128, 128]), part("group", group_size=128)), "block"),
        ({"quant_algo": "FP8", "quant_method": "modelopt", "ignore": ["lm_head"]}, "tensor"),
    ],
    ids=["blocks", "static", "tensors", "compressed blocks", "modelopt"],
)
def test_an_8_bit_checkpoint_has_problems_of_scaled_gemm_and_a_head_in_16_bits(
    tmp_path: Path, quantization: dict[str, Any], scales: str
) -> None:
    found = model(tmp_path, quantization)
    first = {"M": 16, "N": (32 + 2 * 8) * 128, "K": 4096, "out_dtype": "bf16", "scales": scales}
    assert [layer.name for layer in found.layers("scaled_gemm")] == ["qkv", "o", "gate_up", "down"]
    assert next(found.problems("scaled_gemm", 16)) == first
    assert list(found.problems("gemm", 16)) == [{"M": 16, "N": 151936, "K": 4096, "dtype": "bf16", "layout": "nt"}]


@pytest.mark.parametrize(
    ("quantization", "named"),
    [
        ({"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, "fbgemm_fp8"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes"),
        ({"quant_method": "gptq", "bits": 8}, "gptq"),
        ({"quant_method": "awq", "bits": 4}, "awq"),
        ({"bits": 4}, "an unknown method"),
        (BLOCKS | {"weight_block_size": [64, 128]}, "fp8, blocks of 64 x 128"),
        (BLOCKS | {"fmt": "e5m2"}, "fp8, format e5m2"),
        (compressed(part("channel"), part("token")), "weights float8 by channel, activations float8 by token"),
        (compressed(part("channel", "int"), part("token", "int")), "weights int8 by channel, activations int8 by"),
        (compressed(part("group", "int", 4), None), "weights int4 by group, activations in 16 bits"),
        ({"quant_method": "compressed-tensors", "config_groups": {}}, "groups of different formats"),
        ({"quant_algo": "NVFP4", "quant_method": "modelopt"}, "modelopt, NVFP4"),
    ],
)
def test_what_no_op_multiplies_is_refused_in_a_line(tmp_path: Path, quantization: dict[str, Any], named: str) -> None:
    with pytest.raises(UsageError, match="scaled_gemm takes e4m3 with a scale of each factor or of blocks") as raised:
        model(tmp_path, quantization)
    assert named in str(raised.value)
    assert str(raised.value).endswith("give the config of the unquantized model")


@pytest.mark.parametrize("quantization", ["fp8", [1], {"quant_method": "fp8", "weight_block_size": 128}])
def test_what_is_no_description_is_refused_too(tmp_path: Path, quantization: object) -> None:
    with pytest.raises(UsageError, match="is not a model's config"):
        model(tmp_path, quantization)


def test_the_language_part_of_a_model_is_quantized_by_the_whole(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"model_type": "llava", "quantization_config": BLOCKS, "text_config": QWEN3_8B}))
    assert load(file).scales == "block"


def select(op: str, file: Path, **given: str) -> Any:
    return select_problems(op, catalog.load(op).signature, given, shapes=None, model=file, tp=None)


def test_the_problems_of_a_checkpoint_and_those_left_out(tmp_path: Path) -> None:
    file = written(tmp_path, BLOCKS)
    suite = select("scaled_gemm", file, M="16")
    assert [entry.problem.text for entry in suite.entries] == [
        f"scaled_gemm M=16 N={N} K={K} dtype=fp8e4m3 scales=block"
        for N, K in ((6144, 4096), (4096, 4096), (24576, 4096), (4096, 12288))
    ]
    assert suite.note == (f"Left out, as gemm computes them: head; tuner search gemm --model {file} tunes these.")
    assert [entry.problem.sizes for entry in select("gemm", file, M="16").entries] == [(16, 151936, 4096)]


def test_a_model_in_16_bits_can_be_tuned_in_8(tmp_path: Path) -> None:
    suite = select("scaled_gemm", written(tmp_path, None), M="16", scales="block")
    assert len(suite.entries) == 4
    assert {entry.problem["scales"] for entry in suite.entries} == {"block"}


@pytest.mark.parametrize(("op", "option"), [("gemm", "dtype"), ("scaled_gemm", "out_dtype")])
def test_a_dtype_that_no_part_names_is_given(tmp_path: Path, op: str, option: str) -> None:
    file = written(tmp_path, None, torch_dtype=None)
    with pytest.raises(UsageError, match=f"config.json names no dtype; give it with --{option}, such as --{option} b"):
        select(op, file)
    suite = select(op, file, **{option: "fp16"}, M="1")
    assert {entry.problem[option] for entry in suite.entries} == {"fp16"}
    assert {entry.problem[option] for entry in select(op, written(tmp_path, None), **{option: "fp16"}).entries} == {
        "fp16"
    }
