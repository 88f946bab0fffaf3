"""Quantized checkpoints: the scales of their 8-bit floats, as `scaled_gemm` takes them.

The fields are those that transformers and vLLM read (`quantization_config` of a `config.json`): `fp8` of DeepSeek and
Qwen, `compressed-tensors` of LLM Compressor, and `modelopt` of NVIDIA.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuner.errors import UsageError

_BLOCK = [128, 128]
"""Rows and columns of a weight that share a scale in `scales=block`."""
_FLOAT8 = ("e4m3", "float8_e4m3fn", None)
"""Formats of an 8-bit float that `scaled_gemm` multiplies; None is not stated, and means e4m3."""


def scales_of(file: Path, config: Mapping[str, Any]) -> str | None:
    """Return the attribute `scales` of a checkpoint's products, or None if its weights are not quantized.

    Args:
        file: the config's file, for the message.
        config: the content of a `config.json`.

    Raises:
        UsageError: no op multiplies such weights.
    """
    stated = config.get("quantization_config") or config.get("compression_config")
    if not stated:
        return None
    method = str(stated.get("quant_method", "an unknown method"))
    readers = {"fp8": _of_fp8, "compressed-tensors": _of_groups, "modelopt": _of_modelopt}
    scales, what = readers[method](stated) if method in readers else (None, "")
    if scales is None:
        raise UsageError(
            f"{file}: scaled_gemm takes e4m3 with a scale of each factor or of blocks of 128, and these weights are of "
            f"{method[:40]}{what and f', {what[:80]}'}; give the config of the unquantized model"
        )
    return scales


def _of_fp8(stated: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the scales and a description of weights in blocks (DeepSeek, Qwen), or with one scale each."""
    block, format = stated.get("weight_block_size"), stated.get("fmt")
    if format not in _FLOAT8:
        return None, f"format {format}"
    if block is None:
        return "tensor", ""
    return ("block" if list(block) == _BLOCK else None), f"blocks of {' x '.join(map(str, block))}"


def _of_modelopt(stated: Mapping[str, Any]) -> tuple[str | None, str]:
    algorithm = str(stated.get("quant_algo"))
    return ("tensor" if algorithm == "FP8" else None), algorithm


def _of_groups(stated: Mapping[str, Any]) -> tuple[str | None, str]:
    """Return the scales and a description of weights and activations that are described by groups of layers."""
    groups = [*(stated.get("config_groups") or {}).values()]
    found = {_of_group(group.get("weights"), group.get("input_activations")) for group in groups}
    if len(found) != 1:
        return None, "groups of different formats"
    return found.pop(), ", ".join(_described(groups[0]))


def _of_group(weights: Mapping[str, Any] | None, inputs: Mapping[str, Any] | None) -> str | None:
    """Return the scales of the layers of a group, or None if `scaled_gemm` does not multiply them."""
    if not weights or not inputs:
        return None
    if any((part.get("type"), part.get("num_bits")) != ("float", 8) for part in (weights, inputs)):
        return None
    match weights.get("strategy"), inputs.get("strategy"):
        case ("tensor", "tensor"):
            return "tensor"
        case ("block", "group") if weights.get("block_structure") == _BLOCK and inputs.get("group_size") == _BLOCK[1]:
            return "block"
    return None


def _described(group: Mapping[str, Any]) -> Iterator[str]:
    """Yield the format of weights and of activations, such as `weights int8 by channel`."""
    for name, words in {"weights": "weights", "input_activations": "activations"}.items():
        part = group.get(name)
        if part:
            yield f"{words} {part.get('type')}{part.get('num_bits')} by {part.get('strategy')}"
        else:
            yield f"{words} in 16 bits"
