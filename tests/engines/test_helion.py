"""Helion's remote cache in the store: of the installed Helion, else of its documented interface."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from stand_in_engines import is_installed, package, without

from tuner.db.store import Store

REMOTE = "helion.autotuner.remote_cache"
SOURCES = {
    REMOTE: """
        import abc
        import importlib
        import os

        class RemoteCacheBackend(abc.ABC):
            @abc.abstractmethod
            def get(self, key): ...

            @abc.abstractmethod
            def put(self, key, data): ...

            def list(self, max_results=None):
                return ()

        def _load_remote_backend():
            module, name = os.environ["HELION_REMOTE_CACHE_BACKEND"].rsplit(".", 1)
            found = getattr(importlib.import_module(module), name)
            assert issubclass(found, RemoteCacheBackend)
            return found()
    """
}


def record(number: int) -> str:
    return json.dumps({"config": json.dumps({"block_sizes": [number]}), "hardware": "NVIDIA H200"})


@pytest.fixture(params=["interface", "installed"])
def backend(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stored_here: Path
) -> Iterator[Any]:
    """Return the backend as Helion makes it."""
    if request.param == "installed" and not is_installed("helion"):
        pytest.skip("Helion is not installed")
    monkeypatch.delitem(import_module("sys").modules, "tuner.engines.helion", raising=False)
    if request.param == "interface":
        package(tmp_path / "site", monkeypatch, SOURCES)
    monkeypatch.setenv("HELION_REMOTE_CACHE_BACKEND", "tuner.engines.helion.StoreBackend")
    yield import_module(REMOTE)._load_remote_backend()
    monkeypatch.delitem(import_module("sys").modules, "tuner.engines.helion", raising=False)
    if request.param == "interface":
        without("helion")


def test_a_config_is_found_by_its_key_and_the_newest_are_listed_first(backend: Any) -> None:
    assert backend.get("a") is None
    assert list(backend.list()) == []
    backend.put("a", record(1))
    backend.put("b", record(2))
    assert (backend.get("a"), backend.get("b"), backend.get("c")) == (record(1), record(2), None)
    assert sorted(backend.list()) == [record(1), record(2)]
    assert len(list(backend.list(max_results=1))) == 1


@pytest.mark.parametrize("data", ["", "[]", "{}", '{"config": 3}'])
def test_what_helion_could_not_read_is_not_returned(backend: Any, data: str) -> None:
    backend.put("a", data)
    assert backend.get("a") is None
    assert list(backend.list()) == []


def test_without_a_database_helion_uses_its_local_cache(
    backend: Any, stored_here: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stored_here.write_text("no database")
    with caplog.at_level(logging.WARNING, "tuner"):
        backend.put("a", record(1))
        assert backend.get("a") is None
        assert list(backend.list()) == []
    (line,) = [record.message for record in caplog.records]
    assert line.startswith("files of helion are not shared by this process any more: ")


def test_it_is_kept_under_helions_key(backend: Any, stored_here: Path) -> None:
    backend.put("0f", record(1))
    store = Store.open(stored_here, create=False)
    assert store.engine_files.get("helion", "0f") == record(1)
    store.close()
