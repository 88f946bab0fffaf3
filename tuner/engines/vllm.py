"""The vLLM plug-in: stored configs for fused MoE, block-scaled matmuls and Mamba's state update.

vLLM finds it by the entry point `vllm.general_plugins` and calls `register` in each of its processes. Without
`TUNER_VLLM=1`, or `tuner` in `VLLM_PLUGINS`, that does nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial, wraps
from importlib import import_module
from types import ModuleType

from tuner.engines.after_import import after_import
from tuner.engines.config_tables import ConfigTables, Parts, around, is_asked_for
from tuner.errors import UsageError

_MOE = "vllm.model_executor.layers.fused_moe.fused_moe"
_BLOCK = "vllm.model_executor.layers.quantization.utils.fp8_utils"
_MAMBA = "vllm.model_executor.layers.mamba.ops.mamba_ssm"
_registered: list[ConfigTables] = []


def register() -> None:
    """Serve stored configs to vLLM if the environment asks for it. Further calls do nothing."""
    if _registered or not is_asked_for("TUNER_VLLM", "VLLM_PLUGINS"):
        return
    tables = ConfigTables("vLLM")
    _registered.append(tables)
    for module, function, parts in (
        (_MOE, "get_moe_configs", fused_moe),
        (_BLOCK, "get_w8a8_block_fp8_configs", block_scaled_mm),
        (_MAMBA, "get_ssm_configs", state_update),
    ):
        after_import(module, partial(_serve, tables, function, parts))


def fused_moe(
    E: int, N: int, dtype: str | None, block_n: int | None = None, block_k: int | None = None
) -> Mapping[str, str] | None:
    """Return the parts of a fused MoE's table; None with batch invariance, which needs its one fixed config."""
    if import_module("vllm.envs").VLLM_BATCH_INVARIANT:
        return None
    parts = {"E": str(E), "N": str(N)}
    parts |= {"dtype": dtype} if dtype else {}
    return parts | ({"block_shape": f"[{block_n},{block_k}]"} if block_n and block_k else {})


def block_scaled_mm(N: int, K: int, block_n: int, block_k: int) -> Mapping[str, str]:
    """Return the parts of the table of a matmul with a scale for each block."""
    return {"N": str(N), "K": str(K), "dtype": "fp8_w8a8", "block_shape": f"[{block_n},{block_k}]"}


def state_update(headdim: int, dstate: int, cache_dtype: str) -> Mapping[str, str]:
    """Return the parts of the table of Mamba's selective state update. bf16 and fp16 have one table."""
    shared = "float16" if cache_dtype == "bfloat16" else cache_dtype
    return {"headdim": str(headdim), "dstate": str(dstate), "cache_dtype": shared}


def _serve(tables: ConfigTables, name: str, parts: Parts, module: ModuleType) -> None:
    """Put a function of a module in place of vLLM's own, which it calls.

    Raises:
        UsageError: this version of vLLM has no such function.
    """
    original = getattr(module, name, None)
    if original is None:
        raise UsageError(f"this version has no {name}")
    call = around(tables, parts)

    @wraps(original)
    def served(*args: object, **kwargs: object) -> object:
        return call(original, *args, **kwargs)

    for method in ("cache_clear", "cache_info", "cache_parameters"):
        if hasattr(original, method):
            setattr(served, method, getattr(original, method))
    setattr(module, name, served)
