"""The GEMMs of real models, by their configs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tuner.errors import UsageError
from tuner.suites.projections import ModelShape, load

LLAMA_3_70B = {
    "model_type": "llama",
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_hidden_layers": 80,
    "vocab_size": 128256,
    "attention_bias": False,
    "mlp_bias": False,
    "torch_dtype": "bfloat16",
}
QWEN2_7B = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "torch_dtype": "bfloat16",
}
QWEN3_32B = {
    "model_type": "qwen3",
    "hidden_size": 5120,
    "head_dim": 128,
    "intermediate_size": 25600,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "vocab_size": 151936,
    "dtype": "bfloat16",
}
MIXTRAL_8X7B = {
    "model_type": "mixtral",
    "hidden_size": 4096,
    "head_dim": None,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "vocab_size": 32000,
    "torch_dtype": "bfloat16",
}
QWEN3_30B_A3B = {
    "model_type": "qwen3_moe",
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "hidden_size": 2048,
    "head_dim": 128,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "vocab_size": 151936,
    "torch_dtype": "bfloat16",
}


def model(folder: Path, config: object, tp: int = 1) -> ModelShape:
    file = folder / "config.json"
    file.write_text(config if isinstance(config, str) else json.dumps(config))
    return load(file, tp)


def shapes(model: ModelShape) -> dict[str, tuple[int, int]]:
    return {layer.name: (layer.N, layer.K) for layer in model.projections}


def test_the_layers_of_a_dense_model_on_one_and_on_eight_cards(tmp_path: Path) -> None:
    """All but the head are the shapes of vLLM's benchmark of Llama 3 70B."""
    assert shapes(model(tmp_path, LLAMA_3_70B)) == {
        "qkv": (10240, 8192),
        "o": (8192, 8192),
        "gate_up": (57344, 8192),
        "down": (8192, 28672),
        "head": (128256, 8192),
    }
    assert shapes(model(tmp_path, LLAMA_3_70B, tp=8)) == {
        "qkv": (1280, 8192),
        "o": (8192, 1024),
        "gate_up": (7168, 8192),
        "down": (8192, 3584),
        "head": (16032, 8192),
    }
    assert list(model(tmp_path, LLAMA_3_70B).problems("gemm", 16))[1] == {
        "M": 16, "N": 8192, "K": 8192, "dtype": "bf16", "layout": "nt",
    }  # fmt: skip


def test_with_fewer_key_value_heads_than_cards_each_card_has_a_copy(tmp_path: Path) -> None:
    assert shapes(model(tmp_path, LLAMA_3_70B, tp=16))["qkv"] == ((4 + 2 * 1) * 128, 8192)


def test_qwen2_has_a_bias_in_qkv_without_a_field_for_it(tmp_path: Path) -> None:
    assert [layer.name for layer in model(tmp_path, QWEN2_7B).projections if layer.bias] == ["qkv"]


def test_head_dim_sets_the_width_of_a_head(tmp_path: Path) -> None:
    assert shapes(model(tmp_path, QWEN3_32B))["o"] == (5120, 64 * 128)


def test_a_bias_after_a_sum_over_cards_is_not_part_of_the_gemm(tmp_path: Path) -> None:
    biased = LLAMA_3_70B | {"attention_bias": True, "mlp_bias": True}
    alone, shared = (model(tmp_path, biased, tp).projections for tp in (1, 8))
    assert [layer.name for layer in alone if layer.bias] == ["qkv", "o", "gate_up", "down"]
    assert [layer.name for layer in shared if layer.bias] == ["qkv", "gate_up"]


@pytest.mark.parametrize(
    ("config", "experts", "tokens"),
    [(MIXTRAL_8X7B, {"router": (8, 4096), "expert_gate_up": (28672, 4096), "expert_down": (4096, 14336)}, (1, 16)),
     (QWEN3_30B_A3B, {"router": (128, 2048), "expert_gate_up": (1536, 2048), "expert_down": (2048, 768)}, (1, 4))],
    ids=["mixtral", "qwen3_moe"],
)  # fmt: skip
def test_an_expert_has_its_average_share_of_the_tokens(
    tmp_path: Path, config: dict[str, Any], experts: dict[str, tuple[int, int]], tokens: tuple[int, int]
) -> None:
    found = model(tmp_path, config)
    assert experts.items() <= shapes(found).items()
    assert "gate_up" not in shapes(found)
    assert tuple(list(found.problems("gemm", M))[3]["M"] for M in (1, 64)) == tokens
    assert [gemm["M"] for gemm in found.problems("gemm", 64)][:3] == [64, 64, 64]


def test_a_multimodal_model_has_its_language_part_in_text_config(tmp_path: Path) -> None:
    words = {**MIXTRAL_8X7B, "model_type": "mistral"}
    dtype = words.pop("torch_dtype")
    outer = {"model_type": "mistral3", "torch_dtype": dtype, "text_config": words}
    found = model(tmp_path, outer)
    assert found.dtype == "bf16"
    assert shapes(found)["gate_up"] == (28672, 4096)


@pytest.mark.parametrize(
    ("config", "tp", "says"),
    [
        ("{", 1, "is not a model's config.json: Expecting property name enclosed in double quotes in line 1"),
        ([], 1, "is not a model's config.json: "),
        ("[" * 100_000, 1, "is not a model's config.json: RecursionError"),
        ({"hidden_size": 4096}, 1, "is not a model's config.json: it has no 'model_type'"),
        (
            {"model_type": "llama", "hidden_size": "wide"},
            1,
            "is not a model's config.json: ValueError: invalid literal",
        ),
        (
            {"model_type": "t5"},
            1,
            "a model has model_type llama, mistral, mixtral, qwen2, qwen3, .* not 't5'",
        ),
        (LLAMA_3_70B, 3, "--tp divides num_attention_heads, 64, and 3 does not; give another --tp"),
    ],
)
def test_a_file_of_another_format_is_refused(tmp_path: Path, config: object, tp: int, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        model(tmp_path, config, tp)


def test_what_a_config_leaves_out_has_the_librarys_value(tmp_path: Path) -> None:
    """The language part of llava-hf/llava-1.5-7b-hf, which states what differs from Llama's defaults."""
    text = {"max_position_embeddings": 4096, "model_type": "llama", "torch_dtype": "float16", "vocab_size": 32064}
    found = model(tmp_path, {"model_type": "llava", "hidden_size": 1, "text_config": text})
    assert found.dtype == "fp16"
    assert shapes(found) == {
        "qkv": (3 * 4096, 4096),
        "o": (4096, 4096),
        "gate_up": (2 * 11008, 4096),
        "down": (4096, 11008),
        "head": (32064, 4096),
    }


@pytest.mark.parametrize(
    ("kind", "qkv", "gate_up", "head"),
    [
        ("llama", (3 * 4096, 4096), (2 * 11008, 4096), (32000, 4096)),
        ("mistral", (4096 + 2 * 8 * 128, 4096), (2 * 14336, 4096), (32000, 4096)),
        ("qwen2", (3 * 4096, 4096), (2 * 22016, 4096), (151936, 4096)),
        ("qwen3", (3 * 4096, 4096), (2 * 22016, 4096), (151936, 4096)),
        ("mixtral", (4096 + 2 * 8 * 128, 4096), (2 * 14336, 4096), (32000, 4096)),
        ("qwen3_moe", (32 * 64 + 2 * 4 * 64, 2048), (2 * 768, 2048), (151936, 2048)),
    ],
)
def test_a_config_of_a_type_alone_is_that_types_default_model(
    tmp_path: Path, kind: str, qkv: tuple[int, int], gate_up: tuple[int, int], head: tuple[int, int]
) -> None:
    found = shapes(model(tmp_path, {"model_type": kind, "dtype": "bfloat16"}))
    assert (found["qkv"], found["head"]) == (qkv, head)
    assert found["expert_gate_up" if kind in ("mixtral", "qwen3_moe") else "gate_up"] == gate_up


def test_null_is_the_value_that_follows_from_others(tmp_path: Path) -> None:
    """Heads of keys: as many as of queries; width of a head: the hidden size's share."""
    found = model(tmp_path, MIXTRAL_8X7B | {"num_key_value_heads": None, "head_dim": None, "quantization_config": None})
    assert shapes(found)["qkv"] == (3 * 4096, 4096)
    assert shapes(model(tmp_path, QWEN3_30B_A3B | {"mlp_only_layers": None, "decoder_sparse_step": None}))["router"]


@pytest.mark.parametrize(
    ("outer", "inner", "dtype"),
    [
        ({}, {"dtype": "bfloat16"}, "bf16"),
        ({"torch_dtype": "float16"}, {}, "fp16"),
        ({"torch_dtype": "float16"}, {"dtype": "torch.bfloat16"}, "bf16"),
        ({"dtype": "auto"}, {}, None),
        ({}, {"dtype": None}, None),
    ],
)
def test_a_dtype_stands_in_either_part_under_either_name(
    tmp_path: Path, outer: dict[str, Any], inner: dict[str, Any], dtype: str | None
) -> None:
    found = model(tmp_path, {"model_type": "llava", **outer, "text_config": {"model_type": "llama", **inner}})
    assert found.dtype == dtype
    assert ("dtype" in next(found.problems("gemm", 1))) == (dtype is not None)
