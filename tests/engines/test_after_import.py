"""Functions that run once a module of an engine is imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

import pytest

from tuner.engines.after_import import after_import


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Return the name of a module that can be imported and is not."""
    (tmp_path / "an_engine.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield "an_engine"
    sys.modules.pop("an_engine", None)


def test_it_runs_once_after_the_import_and_leaves_no_finder(name: str) -> None:
    finders, seen = list(sys.meta_path), list[int]()
    after_import(name, lambda module: seen.append(module.value))
    assert seen == []
    importlib.import_module(name)
    assert (seen, sys.meta_path) == ([1], finders)
    importlib.import_module(name)
    after_import(name, lambda module: seen.append(2))
    assert seen == [1, 2]


def test_looking_for_the_module_without_an_import_does_not_use_it_up(name: str) -> None:
    seen: list[ModuleType] = []
    after_import(name, seen.append)
    for _ in range(2):
        assert find_spec(name) is not None
    assert seen == [importlib.import_module(name)]


def test_an_error_is_one_line(name: str, caplog: pytest.LogCaptureFixture) -> None:
    after_import(name, lambda module: module.missing)
    assert importlib.import_module(name).value == 1
    (line,) = caplog.messages
    assert line.startswith("an_engine stays as it is: AttributeError: ")
