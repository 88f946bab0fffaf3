"""Repeated calls under our decorator and under `install`: kept until a refresh, another mode or `uninstall`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from autotuned import CONFIGS, Card, grid, scale_
from stand_in_card import StandInCard, stand_in_card
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

from tuner.triton import install, uninstall
from tuner.triton.fast import FastCalls
from tuner.triton.running import calls_of
from tuner.triton.served import Served, served_of

STORED = {"BLOCK": 128, "num_warps": 4, "num_stages": 3}
X, OUT = torch.zeros(1000), torch.zeros(1000)
ARGUMENTS = (X, OUT, 1000)


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInCard]:
    with stand_in_card(tmp_path / "cache", monkeypatch) as gpu:
        yield gpu


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpu: StandInCard) -> Card:
    return Card(tmp_path / "tuner.db", monkeypatch)


def repeated(served: Served) -> FastCalls:
    """Return the repeated calls of a function, on tensors of the CPU."""
    calls = calls_of(served)
    calls._runs_on = "cpu"
    return calls


def blocks(gpu: StandInCard) -> list[Any]:
    return [launch[2][-1] for launch in gpu.launches]


def by_us(gpu: StandInCard) -> list[bool]:
    """Return which launches were given addresses in place of tensors."""
    return [type(launch[2][0]) is int for launch in gpu.launches]


def test_a_stored_config_is_repeated_until_a_refresh(card: Card, gpu: StandInCard) -> None:
    tuner = card.tuner(JITFunction(scale_))
    calls = repeated(served_of(tuner))
    card.keep(tuner, *ARGUMENTS, config=STORED)
    for _ in range(3):
        tuner[grid](*ARGUMENTS)
    assert by_us(gpu) == [False, True, True]
    card.keep(tuner, *ARGUMENTS, config={**STORED, "BLOCK": 256, "num_warps": 8})
    tuner[grid](*ARGUMENTS)
    card.client.refresh()
    assert calls.kept == 0
    for _ in range(2):
        tuner[grid](*ARGUMENTS)
    assert blocks(gpu) == [128, 128, 128, 128, 256, 256]
    assert by_us(gpu)[3:] == [True, False, True]
    assert tuner.best_config is CONFIGS[2]


def test_run_is_repeated_too_and_warmup_is_not(card: Card, gpu: StandInCard) -> None:
    tuner = card.tuner(JITFunction(scale_))
    repeated(served_of(tuner))
    for _ in range(2):
        tuner.run(*ARGUMENTS, grid=(8,), warmup=False)
    assert by_us(gpu) == [False, True]
    tuner.run(*ARGUMENTS, grid=(8,), warmup=True)
    assert len(gpu.launches) == 2


def test_a_call_is_captured_before_it_is_repeated(
    card: Card, gpu: StandInCard, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuner = card.tuner(JITFunction(scale_))
    repeated(served_of(tuner))
    for _ in range(2):
        tuner[grid](*ARGUMENTS)
    monkeypatch.setenv("TUNER_AUTOTUNE", "capture")
    card.is_recording = True
    for _ in range(2):
        tuner[grid](*ARGUMENTS)
    assert card.captured() == []
    card.is_recording = False
    for _ in range(2):
        tuner[grid](*ARGUMENTS)
    assert len(card.captured()) == 1
    assert by_us(gpu) == [False, True, False, False, False, True]


def test_functions_of_others_are_repeated_while_install_is_on(card: Card, gpu: StandInCard) -> None:
    timed: list[object] = []

    def do_bench(call: Any, quantiles: Any) -> list[float]:
        timed.append(call)
        return [1.0, 1.0, 1.0]

    fn = JITFunction(scale_)
    tuner = Autotuner(fn, fn.arg_names, list(CONFIGS), ["n"], None, None, do_bench=do_bench)
    before = Autotuner.__getitem__
    install()
    try:
        calls = repeated(served_of(tuner, context=card.context))
        for _ in range(3):
            tuner[grid](*ARGUMENTS)
        assert by_us(gpu) == [False, True, True]
        install("capture")
        assert calls.kept == 0
    finally:
        uninstall()
    assert Autotuner.__getitem__ is before
    assert timed == []
    card.context.forget()  # as uninstall does for the functions of its own context
    tuner[grid](*ARGUMENTS)
    assert len(timed) == len(CONFIGS)
    assert by_us(gpu)[-1] is False


def test_a_class_of_a_library_keeps_its_own_run(card: Card, gpu: StandInCard) -> None:
    class Theirs(Autotuner):  # type: ignore[misc]
        asked = 0

        def run(self, *args: Any, **kwargs: Any) -> Any:
            self.asked += 1
            return super().run(*args, **kwargs)

    fn = JITFunction(scale_)
    tuner = Theirs(fn, fn.arg_names, list(CONFIGS), ["n"], None, None)
    install()
    try:
        repeated(served_of(tuner, context=card.context))
        for _ in range(3):
            tuner[grid](*ARGUMENTS)
    finally:
        uninstall()
    assert tuner.asked == 3
    assert by_us(gpu) == [False, True, True]


def test_one_config_is_repeated(card: Card, gpu: StandInCard) -> None:
    tuner = card.tuner(JITFunction(scale_), configs=[triton.Config({"BLOCK": 64})])
    repeated(served_of(tuner))
    for _ in range(2):
        tuner[grid](*ARGUMENTS)
    assert by_us(gpu) == [False, True]


def test_each_card_repeats_its_own_config(card: Card, gpu: StandInCard) -> None:
    card.devices *= 2
    tuner = card.tuner(JITFunction(scale_))
    repeated(served_of(tuner))
    card.keep(tuner, *ARGUMENTS, config=STORED)
    for card.card in (0, 1, 0, 1):
        gpu.device = card.card
        tuner[grid](*ARGUMENTS)
    assert by_us(gpu) == [False, False, True, True]
