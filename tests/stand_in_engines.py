"""Packages with the interfaces of other systems, on disk, and a fixture: a card and a database without configs."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from fresh_client import forget
from helpers import H200
from others import put

from tuner.db.store import Store
from tuner.exchange.imported import ImportOptions
from tuner.exchange.importing import import_files
from tuner.records import Environment


def is_installed(name: str) -> bool:
    return find_spec(name) is not None


def package(folder: Path, patch: pytest.MonkeyPatch, sources: dict[str, str]) -> None:
    """Write modules by their dotted names, and make them importable in place of any that are installed."""
    roots = {name.partition(".")[0] for name in sources}
    for name in [name for name in sys.modules if name.partition(".")[0] in roots]:
        patch.delitem(sys.modules, name)
    for name, source in sources.items():
        *parents, last = name.split(".")
        place = folder
        for parent in parents:
            place = place / parent
            place.mkdir(parents=True, exist_ok=True)
            (place / "__init__.py").touch()
        (place / f"{last}.py").write_text(dedent(source))
    patch.syspath_prepend(folder)


def without(*roots: str) -> None:
    """Remove the modules of packages, and the finders that wait for them."""
    for name in [name for name in sys.modules if name.partition(".")[0] in roots]:
        del sys.modules[name]
    sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__module__ != "tuner.engines.after_import"]


def card(patch: pytest.MonkeyPatch, triton: str = "3.6.0") -> None:
    """Have an H200 as the card of this process."""
    patch.setattr("tuner.measure.device.count", lambda: 1)
    patch.setattr("tuner.measure.device.describe", lambda index: H200)
    patch.setattr("tuner.measure.device.environment", lambda index=0: Environment(triton, "12.9", "2.11.0", "580.95"))


def stored(db: Path, folder: Path, tables: dict[str, Any]) -> None:
    """Import tables by the names of their files."""
    for name, table in tables.items():
        put(folder, name, table)
    store = Store.open(db)
    report = import_files([folder], store, ImportOptions(), lambda op: store.signatures().get(op), lambda id: None)
    store.close()
    assert not report.skipped
    assert not report.not_understood


@pytest.fixture
def stored_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_named: None) -> Iterator[Path]:
    """Return the path of this process's database, which has no tables yet, on a machine with an H200."""
    card(monkeypatch)
    forget()
    yield tmp_path / "none.db"
    forget()
