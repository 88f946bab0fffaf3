"""Triton's cache manager with results of `triton.autotune` shared through the store, driven by Triton's own code."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import triton
from helpers import A100
from stand_in_card import stand_in_card
from triton.runtime.autotuner import Autotuner, Config
from triton.runtime.cache import FileCacheManager, get_cache_manager, get_dump_manager
from triton.runtime.jit import JITFunction

from tuner.client.engine_files import SharedFiles
from tuner.db.store import Store
from tuner.triton import CacheManager, cache_manager

CONFIGS = [Config({"BLOCK": 64}, num_warps=4), Config({"BLOCK": 128}, num_warps=8, maxnreg=128)]
KEY, NAME = "ab" * 32, "scale.autotune.json"


def scale(x, BLOCK: triton.language.constexpr):  # type: ignore[no-untyped-def]
    pass


class Process:
    """A process with a cache folder of its own, which asks Triton's autotuner for configs."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        patch.setenv("TRITON_CACHE_MANAGER", "tuner.triton:CacheManager")
        patch.setenv("TRITON_CACHE_DIR", str(folder))
        patch.setattr(cache_manager, "_files", SharedFiles("triton"))
        self.benchmarks = 0

    def best(self, key: tuple[Any, ...] = (4096, "torch.float32"), configs: list[Any] = CONFIGS) -> Config:
        tuner = SimpleNamespace(fn=JITFunction(scale), cache={}, configs_timings={})

        def benchmark() -> None:
            self.benchmarks += 1
            tuner.configs_timings = {config: [1.0 + n, 1.0, 2.0] for n, config in enumerate(reversed(configs))}
            tuner.cache[key] = min(tuner.configs_timings, key=tuner.configs_timings.get)

        Autotuner.check_disk_cache(tuner, key, configs, benchmark)
        best: Config = tuner.cache[key]
        return best


def test_what_one_process_tuned_another_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored_here: Path
) -> None:
    with stand_in_card(tmp_path / "card", monkeypatch):
        first = Process(tmp_path / "one", monkeypatch)
        assert first.best() == CONFIGS[1]
        assert (first.best(), first.benchmarks) == (CONFIGS[1], 1)
        second = Process(tmp_path / "two", monkeypatch)
        assert (second.best(), second.benchmarks) == (CONFIGS[1], 0)
        (copy,) = (tmp_path / "two").glob("*/scale.autotune.json")
        (original,) = (tmp_path / "one").glob("*/scale.autotune.json")
        assert copy.read_bytes() == original.read_bytes()
        assert (second.best((8192, "torch.float32")), second.benchmarks) == (CONFIGS[1], 1)
        assert (second.best(configs=CONFIGS[:1]), second.benchmarks) == (CONFIGS[0], 2)
        monkeypatch.setattr("tuner.measure.device.describe", lambda index: A100)  # of another model
        third = Process(tmp_path / "three", monkeypatch)
        assert (third.best(), third.benchmarks) == (CONFIGS[1], 1)


def manager(folder: Path, patch: pytest.MonkeyPatch) -> Any:
    Process(folder, patch)
    made = get_cache_manager(KEY)
    assert isinstance(made, CacheManager)
    return made


def test_other_files_are_on_disk_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored_here: Path) -> None:
    monkeypatch.setenv("TRITON_DUMP_DIR", str(tmp_path / "dump"))
    ours = manager(tmp_path / "one", monkeypatch)
    path = ours.put(b"\x7fELF", "scale.cubin")
    assert Path(path).read_bytes() == b"\x7fELF"
    ours.put_group("scale.json", {"scale.cubin": path})
    assert ours.get_group("scale.json") == {"scale.cubin": path}
    assert isinstance(ours, FileCacheManager)
    assert get_dump_manager(KEY).put("{}", NAME, binary=False).startswith(str(tmp_path / "dump"))
    assert manager(tmp_path / "two", monkeypatch).get_file("scale.cubin") is None
    assert not stored_here.exists()


@pytest.mark.parametrize("content", ["", "[]", '{"configs_timings": []}', '{"configs_timings": [[1, 2]]}', "{}"])
def test_a_file_that_triton_could_not_read_is_not_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored_here: Path, content: str
) -> None:
    manager(tmp_path / "one", monkeypatch).put(content, NAME, binary=False)
    assert manager(tmp_path / "two", monkeypatch).get_file(NAME) is None


def test_without_a_card_or_a_database_it_is_tritons_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored_here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    content = json.dumps({"configs_timings": [[{"kwargs": {}}, 1.0]]})
    stored_here.write_text("no database")
    with caplog.at_level(logging.WARNING, "tuner"):
        ours = manager(tmp_path / "one", monkeypatch)
        assert ours.get_file(NAME) is None
        assert Path(ours.put(content, NAME, binary=False)).read_text() == content
        assert ours.get_file(NAME) == str(Path(ours.cache_dir) / NAME)
    (line,) = [record.message for record in caplog.records]
    assert line.startswith("files of triton are not shared by this process any more: ")
    caplog.clear()
    monkeypatch.undo()
    monkeypatch.setattr("tuner.measure.device.count", lambda: 0)
    with caplog.at_level(logging.WARNING, "tuner"):
        Path(manager(tmp_path / "two", monkeypatch).put(content, NAME, binary=False))
    (line,) = [record.message for record in caplog.records]
    assert line.startswith(f"{NAME} is not shared: there is no GPU 0")


def test_nothing_is_shared_if_lookups_are_disabled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored_here: Path
) -> None:
    monkeypatch.setenv("TUNER_DISABLE", "1")
    manager(tmp_path / "one", monkeypatch).put("{}", NAME, binary=False)
    assert not stored_here.exists()


def test_a_file_is_one_row_of_card_key_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored_here: Path
) -> None:
    ours = manager(tmp_path / "one", monkeypatch)
    ours.put(b"{}", NAME)
    store = Store.open(stored_here, create=False)
    assert store.engine_files.get("triton", f"nvidia-h200/{ours.key}/{NAME}") == "{}"
    store.close()
