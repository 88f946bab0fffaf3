"""Captured calls on a card, from a process that holds a context on it: wrong configs are found, and none is served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from calls import blocks, call_of, configs, tensor
from helpers import TOYS

from tuner.captured.call import CapturedCall, Contents
from tuner.db.store import Store
from tuner.tuning.captured import tune_call
from tuner.tuning.effort import Effort
from tuner.tuning.events import Events, StopToken
from tuner.tuning.gpu import MeasureOptions
from tuner.tuning.tuned import Tuned

pytestmark = pytest.mark.gpu
FAULTS = str(TOYS / "autotuned_faults.py")
N = 1_000_003
RIGHT, *WRONG = range(7)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    torch.ones(1 << 20, device="cuda").sum().item()
    opened = Store.open(tmp_path / "tuner.db")
    yield opened
    opened.close()


def tuned(call: CapturedCall, store: Store, **more: Any) -> Tuned:
    how: dict[str, Any] = {"effort": Effort.named("quick"), "options": MeasureOptions()}
    return tune_call(call, store, events=Events(), stop=StopToken(), **how, **more)


def test_wrong_configs_are_found_and_the_right_ones_agree(store: Store) -> None:
    """Among them one that ends the context and one that never ends; the total of atomic additions is up to rounding."""
    listed = configs(BLOCK=(128,), FAULT=tuple(WRONG)) + configs(BLOCK=(128, 256, 512), FAULT=(RIGHT,))
    call = call_of(
        "doubled",
        {"x": tensor(N), "out": tensor(N), "total": tensor(1), "n": N},
        listed,
        blocks(N),
        file=FAULTS,
        reset=("total",),
    )
    found = tuned(call, store)
    assert found.answer is not None
    assert found.answer.config["FAULT"] == RIGHT
    assert {tie.config["FAULT"] for tie in found.answer.ties} <= {RIGHT}
    assert found.answer.basis == "agreement"
    assert "contended" not in found.answer.marks  # this process holds a context on the card, and is idle
    (stored,) = store.captured.all()
    examined = stored.call.examined
    assert examined is not None
    assert examined.roles == {"x": "in", "out": "out", "total": "inout"}
    assert examined.agreeing == 3
    assert examined.agreed is not None
    assert examined.agreed["FAULT"] == RIGHT
    again = tuned(call, store)
    assert again.result is None
    wide = tuned(call, store, widen=True)
    assert wide.answer is not None
    assert wide.answer.config["FAULT"] == RIGHT


def test_a_lock_that_waits_on_other_contents_is_read(store: Store) -> None:
    lock = tensor(1, dtype="int32", contents=Contents(values=(0,)))
    call = call_of(
        "locked",
        {"x": tensor(1000), "out": tensor(1000), "lock": lock, "n": 1000},
        configs(BLOCK=(1024,), num_warps=(4, 8)),
        blocks(1000),
        file=FAULTS,
    )
    assert tuned(call, store).answer is not None
    examined = store.captured.all()[0].call.examined
    assert examined is not None
    assert examined.roles == {"x": "in", "out": "out", "lock": "inout"}
