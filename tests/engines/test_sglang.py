"""SGLang's tables with stored configs in place of its own, through SGLang's own hooks."""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from others import table_config
from stand_in_engines import is_installed, package, stored, without

from tuner.engines import sglang

MOE = "sglang.srt.layers.moe.moe_runner.triton_utils.fused_moe_triton_config"
FP8, INT8 = (f"sglang.kernels.ops.gemm.{name}_kernel" for name in ("fp8", "int8"))
HOOKS = "sglang.srt.plugins.hook_registry"
OWN = {1: {"BLOCK_SIZE_M": 1}}
SOURCES = {
    HOOKS: """
        import functools
        import pkgutil
        from enum import Enum

        class HookType(Enum):
            AROUND = "around"

        class HookRegistry:
            hooks = []

            @classmethod
            def register(cls, target, hook, hook_type):
                assert hook_type is HookType.AROUND
                cls.hooks.append((target, hook))

            @classmethod
            def apply_hooks(cls):
                for target, hook in cls.hooks:
                    module, _, name = target.rpartition(".")
                    module = pkgutil.resolve_name(module)
                    original = getattr(module, name)

                    @functools.wraps(original)
                    def wrapper(*args, _hook=hook, _original=original, **kwargs):
                        return _hook(_original, *args, **kwargs)

                    setattr(module, name, wrapper)
    """,
    MOE: f"""
        import functools
        from types import SimpleNamespace

        _exec = SimpleNamespace(deterministic=SimpleNamespace(enable_deterministic_inference=False))

        def get_exec():
            return _exec

        @functools.lru_cache
        def get_moe_configs(E, N, dtype, block_n=0, block_k=0, per_channel_quant=False, down_moe=False):
            if get_exec().deterministic.enable_deterministic_inference:
                return None
            if down_moe:
                return get_moe_configs(E, N, dtype, block_n, block_k, per_channel_quant=per_channel_quant)
            return {OWN} if E == 8 else None
    """,
    FP8: f"def get_w8a8_block_fp8_configs(N, K, block_n, block_k): return {OWN}",
    INT8: "def get_w8a8_block_int8_configs(N, K, block_n, block_k): return None",
}
"""SGLang's modules, as far as they are called here."""
TABLES = {
    "triton_3_6_0/E=8,N=64,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json": {
        "64": table_config(128)
    },
    "triton_3_6_0/E=8,N=64,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128]_down.json": {
        "64": table_config(128, USE_TMA=True)
    },
    "triton_3_6_0/E=8,N=64,device_name=NVIDIA_H200,dtype=fp8_w8a8,per_channel_quant=True.json": {"2": table_config(32)},
    "triton_3_4_0/E=4,N=64,device_name=NVIDIA_H200.json": {"64": table_config(32), "65": table_config(32)},
    "triton_3_6_0/E=4,N=64,device_name=NVIDIA_H200.json": {"64": table_config(64)},
    "triton_3_8_0/E=4,N=64,device_name=NVIDIA_H200.json": {"64": table_config(256)},
    "N=1536,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json": {"3": table_config()},
    "N=1536,K=7168,device_name=NVIDIA_H200,dtype=int8_w8a8,block_shape=[128, 128].json": {"3": table_config(32)},
}


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored_here: Path) -> Iterator[None]:
    """Have an installed SGLang that asks for the plug-in, and a store with tables."""
    monkeypatch.delenv("TUNER_SGLANG", raising=False)
    monkeypatch.setenv("SGLANG_PLUGINS", "tuner")
    monkeypatch.setattr(sglang, "_registered", [])
    package(tmp_path / "site", monkeypatch, SOURCES)
    stored(stored_here, tmp_path / "tables", TABLES)
    yield
    without("sglang")


def hooked(name: str) -> Any:
    sglang.register()
    import_module(HOOKS).HookRegistry.apply_hooks()
    return import_module(name)


def test_stored_configs_are_in_the_table_of_their_layer(engine: None) -> None:
    get = hooked(MOE).get_moe_configs
    blocks = (8, 64, "fp8_w8a8", 128, 128)
    assert get(*blocks) == OWN | {64: table_config(128)}
    assert get(*blocks, down_moe=True) == OWN | {64: table_config(128, USE_TMA=True)}
    assert get(8, 64, "fp8_w8a8", per_channel_quant=True) == OWN | {2: table_config(32)}
    assert get(8, 64, None) == OWN
    assert get(4, 65, None) is None
    assert import_module(FP8).get_w8a8_block_fp8_configs(1536, 7168, 128, 128) == OWN | {3: table_config()}
    assert import_module(INT8).get_w8a8_block_int8_configs(1536, 7168, 128, 128) == {3: table_config(32)}


def test_of_several_versions_the_nearest_that_is_not_newer_serves(engine: None) -> None:
    assert hooked(MOE).get_moe_configs(4, 64, None) == {64: table_config(64), 65: table_config(32)}


def test_deterministic_inference_keeps_sglangs_one_config(engine: None) -> None:
    module = hooked(MOE)
    module.get_exec().deterministic.enable_deterministic_inference = True
    assert module.get_moe_configs(8, 64, "fp8_w8a8", 128, 128) is None


def test_it_is_inert_unless_asked_for(engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SGLANG_PLUGINS")
    sglang.register()
    assert HOOKS not in sys.modules
    monkeypatch.setenv("TUNER_SGLANG", "1")
    sglang.register()
    sglang.register()
    assert len(import_module(HOOKS).HookRegistry.hooks) == 3


def test_a_version_without_a_module_or_hooks_costs_one_line(
    engine: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    with caplog.at_level(logging.WARNING, "tuner"):
        shutil.rmtree(tmp_path / "site" / "sglang" / "kernels")
        assert hooked(MOE).get_moe_configs(8, 64, None) == OWN
        monkeypatch.setattr(sglang, "_registered", [])
        monkeypatch.delattr(f"{HOOKS}.HookRegistry")
        sglang.register()
    *missing, last = [record.message for record in caplog.records]
    assert missing == [f"SGLang keeps its own configs, since it has no module {module}" for module in (FP8, INT8)]
    assert last.startswith("SGLang keeps its own configs: AttributeError: ")


def test_a_table_that_torch_compile_traces_is_sglangs_own(engine: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.compiler.is_compiling", lambda: True)
    assert hooked(FP8).get_w8a8_block_fp8_configs(1536, 7168, 128, 128) == OWN


@pytest.mark.skipif(not is_installed("sglang"), reason="SGLang is not installed")
def test_the_installed_sglang_has_what_is_hooked() -> None:
    hooks: Any = pytest.importorskip(HOOKS, exc_type=ImportError)
    assert callable(hooks.HookRegistry.register)
    for module, function, _ in sglang._TABLES:
        assert callable(getattr(pytest.importorskip(module, exc_type=ImportError), function))
