"""Kernels that are loaded during a capture, with a driver that keeps the mode of captures."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tuner.launching import loading
from tuner.launching.loading import loading_allowed

GLOBAL, RELAXED = 0, 2


@pytest.fixture
def modes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """The modes that this thread had, the present one last."""
    modes = [GLOBAL]

    def exchange(mode: Any) -> int:
        before, after = modes[-1], mode._obj.value
        mode._obj.value = before
        modes.append(after)
        return 0

    driver = SimpleNamespace(cuThreadExchangeStreamCaptureMode=exchange)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    loading._exchange.cache_clear()
    yield modes
    loading._exchange.cache_clear()


@pytest.mark.parametrize(("is_recording", "seen"), [(True, [GLOBAL, RELAXED, GLOBAL]), (False, [GLOBAL])])
def test_a_capture_is_relaxed_for_a_while(
    is_recording: bool, seen: list[int], modes: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: is_recording)

    @loading_allowed()
    def load() -> None:
        during.append(modes[-1])
        raise RuntimeError("refused")

    during: list[int] = []
    with pytest.raises(RuntimeError, match="refused"):
        load()
    assert (during, modes) == ([max(seen)], seen)
