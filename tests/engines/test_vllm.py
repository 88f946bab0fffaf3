"""vLLM's tables with stored configs in place of its own, if asked for."""

from __future__ import annotations

import logging
import sys
import tomllib
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from others import table_config
from stand_in_engines import is_installed, package, stored, without

import tuner
from tuner.engines import vllm
from tuner.engines.config_tables import is_asked_for
from tuner.exchange.config_tables import layer_of

MOE = "vllm.model_executor.layers.fused_moe.fused_moe"
BLOCK = "vllm.model_executor.layers.quantization.utils.fp8_utils"
MAMBA = "vllm.model_executor.layers.mamba.ops.mamba_ssm"
OWN = {1: {"BLOCK_SIZE_M": 1}, 64: {"BLOCK_SIZE_M": 2}}
SOURCES = {
    "vllm.envs": "VLLM_BATCH_INVARIANT = False",
    MOE: f"""
        import functools
        import vllm.envs as envs

        @functools.lru_cache
        def get_moe_configs(E, N, dtype, block_n=None, block_k=None):
            if envs.VLLM_BATCH_INVARIANT:
                return None
            return {OWN} if (E, N) == (8, 4096) else None

        def try_get_optimal_moe_config(E, N, dtype, M):
            configs = get_moe_configs(E, N, dtype)
            return configs[min(configs, key=lambda x: abs(x - M))] if configs else "default"
    """,
    BLOCK: f"""
        import functools

        @functools.lru_cache
        def get_w8a8_block_fp8_configs(N, K, block_n, block_k):
            return {OWN}
    """,
    MAMBA: """
        import functools

        @functools.cache
        def get_ssm_configs(headdim, dstate, cache_dtype):
            return None
    """,
}
"""vLLM's modules, as far as they are called here."""
TABLES = {
    "E=8,N=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8.json": {"64": table_config(128), "4096": table_config(256)},
    "E=8,N=512,device_name=NVIDIA_H200.json": {"64": table_config(128)},
    "E=8,N=512,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json": {"2": table_config(64)},
    "E=8,N=4096,device_name=NVIDIA_H100_80GB_HBM3.json": {"64": table_config(32)},
    "N=1536,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json": {
        "3": table_config(),
        "5": table_config(BLOCK_SIZE_K=256),
        "7": table_config(EXTRA=1),
        "9": {"BLOCK_SIZE_M": 16},
    },
    "headdim=64,dstate=128,device_name=NVIDIA_H200,cache_dtype=float16.json": {
        "8": {"BLOCK_SIZE_M": 64, "num_warps": 2}
    },
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored_here: Path) -> Iterator[Path]:
    """Return the folder of an installed vLLM; the plug-in is asked for, and the store has tables."""
    monkeypatch.setenv("TUNER_VLLM", "1")
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    monkeypatch.setattr(vllm, "_registered", [])
    package(tmp_path / "site", monkeypatch, SOURCES)
    stored(stored_here, tmp_path / "tables", TABLES)
    yield tmp_path / "site"
    without("vllm")


def registered(name: str) -> ModuleType:
    vllm.register()
    return import_module(name)


def test_an_m_with_a_stored_answer_has_its_config_and_others_vllms_own(folder: Path) -> None:
    module = registered(MOE)
    assert module.get_moe_configs(8, 4096, "fp8_w8a8") == OWN | {64: table_config(128), 4096: table_config(256)}
    assert module.try_get_optimal_moe_config(8, 4096, "fp8_w8a8", 3000) == table_config(256)
    assert module.try_get_optimal_moe_config(8, 4096, "fp8_w8a8", 2) == OWN[1]
    assert module.get_moe_configs(8, 4096, None) == OWN  # stored for another card alone
    assert module.get_moe_configs(E=8, N=512, dtype=None) == {64: table_config(128)}
    assert module.get_moe_configs(8, 512, "fp8_w8a8", 128, 128) == {2: table_config(64)}
    assert module.get_moe_configs(8, 513, None) is None
    module.get_moe_configs.cache_clear()
    assert module.get_moe_configs.__wrapped__.cache_info().currsize == 0


def test_other_tables(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "tuner"):
        assert registered(BLOCK).get_w8a8_block_fp8_configs(1536, 7168, 128, 128) == OWN | {3: table_config()}
    layer = "N=1536 K=7168 dtype=fp8_w8a8 block_shape=[128,128]"
    assert [record.message for record in caplog.records] == [
        f"vLLM keeps its own config of block_scaled_mm M={m} {layer}: {why}"
        for m, why in (
            (5, "BLOCK_SIZE_K divides the block of scales, 128x128, and is not 256"),
            (7, "the engine's kernel takes no EXTRA"),
            (9, "the engine's kernel needs BLOCK_SIZE_N, BLOCK_SIZE_K, GROUP_SIZE_M beside BLOCK_SIZE_M"),
        )
    ]
    mamba = import_module(MAMBA)
    served = {8: {"BLOCK_SIZE_M": 64, "num_warps": 2}}
    assert mamba.get_ssm_configs(64, 128, "bfloat16") == mamba.get_ssm_configs(64, 128, "float16") == served
    assert mamba.get_ssm_configs(64, 128, "float32") is None


def test_batch_invariance_keeps_vllms_one_config(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = registered(MOE)
    assert module.get_moe_configs(8, 4096, "fp8_w8a8") != OWN
    module.get_moe_configs.cache_clear()
    monkeypatch.setattr("vllm.envs.VLLM_BATCH_INVARIANT", True)
    assert module.get_moe_configs(8, 4096, "fp8_w8a8") is None


@pytest.mark.parametrize(
    ("switch", "plugins", "asked"),
    [(None, None, False), (None, "lora, tuner", True), (None, "lora", False), ("1", None, True), ("0", "tuner", False)],
)
def test_it_is_inert_unless_asked_for(
    monkeypatch: pytest.MonkeyPatch, folder: Path, switch: str | None, plugins: str | None, asked: bool
) -> None:
    for name, value in (("TUNER_VLLM", switch), ("VLLM_PLUGINS", plugins)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert is_asked_for("TUNER_VLLM", "VLLM_PLUGINS") is asked
    before = [*sys.meta_path]
    vllm.register()
    vllm.register()
    assert len(sys.meta_path) - len(before) == (3 if asked else 0)
    assert not [name for name in sys.modules if name.startswith("vllm.")]  # nothing of vLLM is imported
    own = import_module(MOE).get_moe_configs
    assert hasattr(own, "__wrapped__")
    assert (own(8, 4096, "fp8_w8a8") != OWN) is asked


def test_a_module_that_is_imported_already_is_served_too(folder: Path) -> None:
    module = import_module(MOE)
    vllm.register()
    assert module.get_moe_configs(8, 4096, "fp8_w8a8")[64] == table_config(128)


def test_trouble_costs_one_line_and_vllm_keeps_its_own(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, stored_here: Path
) -> None:
    stored_here.write_text("no database")
    module = registered(MOE)
    with caplog.at_level(logging.WARNING, "tuner"):
        assert [module.get_moe_configs(8, 4096, "fp8_w8a8") for _ in range(3)] == [OWN] * 3
        with pytest.raises(TypeError):  # vLLM's own
            module.get_moe_configs(8, 4096, "fp8_w8a8", unknown=1)
    (line,) = [record.message for record in caplog.records]
    assert line.startswith("vLLM keeps its own configs of E=8 N=4096 dtype=fp8_w8a8: ")


def test_a_version_without_the_function_stays_as_it_is(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    package(folder, monkeypatch, {MAMBA: "get_config = 1"})
    with caplog.at_level(logging.WARNING, "tuner"):
        assert registered(MAMBA).get_config == 1
    (line,) = [record.message for record in caplog.records]
    assert line == f"{MAMBA} stays as it is: this version has no get_ssm_configs"


def test_newer_answers_are_served_after_a_refresh(folder: Path, tmp_path: Path, stored_here: Path) -> None:
    module = registered(MOE)
    assert module.get_moe_configs(8, 100, None) is None
    stored(stored_here, tmp_path / "new", {"E=8,N=100,device_name=NVIDIA_H200.json": {"1": table_config(64)}})
    assert module.get_moe_configs(8, 100, None) is None
    tuner.refresh()
    assert module.get_moe_configs(8, 100, None) == {1: table_config(64)}


def test_disabled_lookups_leave_vllm_its_own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DISABLE", "1")
    assert registered(MOE).get_moe_configs(8, 4096, "fp8_w8a8") == OWN


@pytest.mark.skipif(not is_installed("vllm"), reason="vLLM is not installed")
def test_the_installed_vllm_is_served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stored_here: Path) -> None:
    moe: Any = pytest.importorskip(MOE, exc_type=ImportError)
    block, mamba = import_module(BLOCK), import_module(MAMBA)
    stored(stored_here, tmp_path / "tables", TABLES)
    monkeypatch.setenv("TUNER_VLLM", "1")
    monkeypatch.setattr(vllm, "_registered", [])
    for module, name in ((moe, "get_moe_configs"), (block, "get_w8a8_block_fp8_configs"), (mamba, "get_ssm_configs")):
        monkeypatch.setattr(module, name, getattr(module, name))  # which is put back afterwards
        monkeypatch.setattr(module, "get_device_name_as_file_name", lambda device_id=0: "NVIDIA_H200")
    own = moe.get_moe_configs(8, 4096, "fp8_w8a8") or {}
    vllm.register()
    assert moe.get_moe_configs(8, 4096, "fp8_w8a8") == own | {64: table_config(128), 4096: table_config(256)}
    assert moe.try_get_optimal_moe_config((8, 1024, 64), (8, 64, 512), 2, None, 60) == table_config(128)
    assert block.get_w8a8_block_fp8_configs(1536, 7168, 128, 128)[3] == table_config()
    assert mamba.get_ssm_configs(64, 128, "bfloat16")[8] == {"BLOCK_SIZE_M": 64, "num_warps": 2}
    parts = vllm.fused_moe(8, 4096, "fp8_w8a8", 128, 128)
    assert parts is not None
    layer = layer_of(parts)
    assert (layer.sizes, layer.attributes) == ({"E": 8, "N": 4096}, {"quant": "fp8_w8a8", "block_shape": "128x128"})
    name = moe.get_config_file_name(8, 4096, "fp8_w8a8", [128, 128])
    assert name == "E=8,N=4096,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"


@pytest.mark.parametrize(("group", "engine"), [("vllm.general_plugins", "vllm"), ("sglang.srt.plugins", "sglang")])
def test_the_engines_find_the_plug_ins(group: str, engine: str) -> None:
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]["entry-points"]
    assert [EntryPoint(name, value, group).load() for name, value in declared[group].items()] == [
        import_module(f"tuner.engines.{engine}").register
    ]
