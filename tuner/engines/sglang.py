"""The SGLang plug-in: stored configs for fused MoE and block-scaled matmuls.

SGLang finds it by the entry point `sglang.srt.plugins` and calls `register` in each of its processes. Without
`TUNER_SGLANG=1`, or `tuner` in `SGLANG_PLUGINS`, that does nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec

from tuner.engines.config_tables import ConfigTables, Parts, around, is_asked_for

_log = logging.getLogger("tuner")
_MOE = "sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe_triton_config"
_FP8 = "sglang.kernels.ops.gemm.fp8_kernel"
_INT8 = "sglang.kernels.ops.gemm.int8_kernel"
_registered: list[ConfigTables] = []


def register() -> None:
    """Serve stored configs to SGLang if the environment asks for it. Further calls do nothing."""
    if _registered or not is_asked_for("TUNER_SGLANG", "SGLANG_PLUGINS"):
        return
    try:
        hooks = import_module("sglang.srt.plugins.hook_registry")
        tables = ConfigTables("SGLang")
        for module, function, parts in _TABLES:
            if not _exists(module):
                _log.warning("SGLang keeps its own configs, since it has no module %s", module)
            else:
                hooks.HookRegistry.register(f"{module}.{function}", around(tables, parts), hooks.HookType.AROUND)
        _registered.append(tables)
    except Exception as error:  # noqa: BLE001  no error may stop an engine
        _log.warning("SGLang keeps its own configs: %s: %s", type(error).__name__, error)


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:  # a package above it is missing, or cannot be imported
        return False


def fused_moe(
    E: int,
    N: int,
    dtype: str | None,
    block_n: int | None = 0,
    block_k: int | None = 0,
    per_channel_quant: bool = False,
    down_moe: bool = False,
) -> Mapping[str, str] | None:
    """Return the parts of a fused MoE's table; None if inference is deterministic, which needs its one fixed config."""
    if import_module(_MOE).get_exec().deterministic.enable_deterministic_inference:
        return None
    parts = {"E": str(E), "N": str(N)}
    parts |= {"dtype": dtype} if dtype else {}
    parts |= {"block_shape": f"[{block_n}, {block_k}]"} if block_n and block_k else {}
    parts |= {"per_channel_quant": "True"} if per_channel_quant else {}
    return parts | ({"down": "True"} if down_moe else {})


def block_scaled_fp8(N: int, K: int, block_n: int, block_k: int) -> Mapping[str, str]:
    """Return the parts of the table of an FP8 matmul with a scale for each block."""
    return {"N": str(N), "K": str(K), "dtype": "fp8_w8a8", "block_shape": f"[{block_n}, {block_k}]"}


def block_scaled_int8(N: int, K: int, block_n: int, block_k: int) -> Mapping[str, str]:
    """Return the parts of the table of an INT8 matmul with a scale for each block."""
    return {**block_scaled_fp8(N, K, block_n, block_k), "dtype": "int8_w8a8"}


_TABLES: tuple[tuple[str, str, Parts], ...] = (
    (_MOE, "get_moe_configs", fused_moe),
    (_FP8, "get_w8a8_block_fp8_configs", block_scaled_fp8),
    (_INT8, "get_w8a8_block_int8_configs", block_scaled_int8),
)
"""Module, function and parts of each table."""
