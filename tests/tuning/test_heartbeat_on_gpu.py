"""A search on a card says what compiles and what is measured while it runs."""

from __future__ import annotations

from pathlib import Path
from threading import Event, Thread

import pytest

import tuner
from tuner.db.store import Store
from tuner.records.progress import RunState

pytestmark = pytest.mark.gpu


def test_a_search_writes_what_it_works_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    store, over = Store.open(tmp_path / "tuner.db"), Event()
    seen: list[RunState] = []

    def watch() -> None:
        while not over.wait(0.2):
            seen.extend(live.state for live in store.progress.of([1]).values())

    watching = Thread(target=watch)
    watching.start()
    try:
        tuner.tune("gemm", {"M": 4096, "N": 4096, "K": 4096}, store=store, trials=120, on_event=tuner.Events())
    finally:
        over.set()
        watching.join()
    assert any(state.compiling for state in seen)
    assert any(state.measuring and "BLOCK_M=" in state.measuring for state in seen)
    assert any(state.rounds and state.contenders for state in seen)
    assert store.progress.of([1]) == {}
    store.close()
