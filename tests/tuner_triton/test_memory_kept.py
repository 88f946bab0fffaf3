"""Memory after a call: plain data is kept, and no tensor of the caller or of its callers."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
from autotuned import Card, grid, tensors

from tuner.triton.served import served_of


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Card:
    return Card(tmp_path / "tuner.db", monkeypatch)


def is_freed(tuner: Any) -> bool:
    """Return whether the tensors of a call, and of the function that makes it, are freed after it."""

    def layer() -> list[weakref.ref[Any]]:
        (x, out, n), activation = tensors(), tensors()[0]
        tuner[grid](x, out, n)
        return [weakref.ref(tensor) for tensor in (x, out, activation)]

    kept = layer()
    tuner.fn.launches.clear()
    tuner.nargs = None
    gc.collect()
    return [each() for each in kept] == [None] * 3


def test_a_call_keeps_no_tensor(card: Card) -> None:
    assert is_freed(card.tuner())


def test_a_refused_call_keeps_no_tensor(card: Card) -> None:
    tuner = card.tuner(name="elsewhere")
    card.patch.delattr("autotuned.elsewhere")
    assert is_freed(tuner)


def test_answers_that_cannot_be_read_keep_no_tensor(card: Card) -> None:
    card.path.write_text("no database, and long enough to be none of SQLite's" * 100)
    assert is_freed(card.tuner())


def test_calls_with_the_same_configs_keep_them_once(card: Card) -> None:
    tuner = card.tuner()
    for n in (1000, 1001, 1002):
        tuner[grid](*tensors(n))
    calls = [choice.call for choice in served_of(tuner)._choices.values()]
    assert len(calls) == 3
    assert len({id(call.configs) for call in calls if call is not None}) == 1
