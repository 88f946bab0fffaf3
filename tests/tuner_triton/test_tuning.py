"""Mode tune: in a worker process if it can load the function, else as Triton does, in this process."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
from autotuned import CONFIGS, Card, Recorded, grid, scale_, tensors
from helpers import toy
from machines import Machine
from triton import knobs

from tuner.client import default_client
from tuner.db.store import Store
from tuner.triton import Autotuner
from tuner.triton.choice import Stated
from tuner.triton.context import CONTEXT

STORED = {"BLOCK": 128, "num_warps": 4, "num_stages": 3}


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Card:
    made = Card(tmp_path / "tuner.db", monkeypatch)
    monkeypatch.setenv("TUNER_AUTOTUNE", "tune")
    for variable in ("RANK", "LOCAL_RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
        monkeypatch.delenv(variable, raising=False)
    return made


class Bench:
    """A benchmark after which the last config is the fastest."""

    def __init__(self) -> None:
        self.timed = 0

    def __call__(self, call: Any, quantiles: Any) -> list[float]:
        call()
        self.timed += 1
        return [1.0 / self.timed] * 3


def test_a_call_is_tuned_in_a_worker_process_and_its_answer_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Machine(tmp_path, monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TUNER_AUTOTUNE", "tune")
    spec = importlib.util.spec_from_file_location("tuned_here", toy("tuned_here"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tuned_here", module)
    spec.loader.exec_module(module)
    default_client().clear()
    monkeypatch.setattr(knobs.autotuning, "print", True)
    x, out, count = torch.randn(7, 5), torch.zeros(7, 5), torch.zeros(1, dtype=torch.int32)
    scale: Autotuner = module.scale
    scale[(1,)](x, out, count, 5)
    assert torch.equal(out, 2 * x)
    assert count.item() == 1  # the caller's tensors are launched on once
    assert scale.best_config.kwargs["FAULT"] != "raises"
    assert list(scale.configs_timings) == [scale.best_config]
    assert scale.bench_time > 0
    assert capsys.readouterr().out.startswith("Triton autotuning for function scale,\nwith key as (5, 'torch.float32'")
    store = Store.open(tmp_path / "tuner.db")
    answer = store.answers()[0].answer
    store.close()
    assert (answer.problem.text, answer.basis) == ("tuned_here_scale n=5 dtype=fp32 count_dtype=int32", "agreement")
    best, scale.best_config = scale.best_config, None
    CONTEXT.forget()
    default_client().clear()
    scale[(1,)](x, out, count, 5)
    assert scale.best_config is best
    assert scale._tuner._choices[0, (5, "torch.float32", "torch.float32", "torch.int32")].match == "exact"
    default_client().clear()


def test_a_stored_answer_is_launched_without_a_search(card: Card) -> None:
    tuner = card.tuner(do_bench=Bench())
    card.keep(tuner, *tensors(), config=STORED)
    tuner[grid](*tensors())
    assert tuner.fn.blocks == [128]


def test_a_function_with_a_benchmark_of_its_own_is_tuned_here(card: Card, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    tuner = card.tuner(do_bench=bench)
    for n in (1000, 1000, 2000):
        tuner[grid](*tensors(n))
    assert bench.timed == 6
    assert tuner.fn.blocks == [64, 128, 256, 256, 256, 64, 128, 256, 256]
    assert tuner.best_config is CONFIGS[2]
    assert len(tuner.cache) == 2
    assert set(tuner.configs_timings) == set(CONFIGS)
    card.context.forget()  # as a refresh with newer answers does
    tuner[grid](*tensors(2000))
    assert bench.timed == 6
    assert [line for line in caplog.messages if "as Triton does" in line] == [
        "scale_ is tuned in this process, as Triton does, and not stored: it has a benchmark of its own (do_bench, "
        "warmup, rep or use_cuda_graph)"
    ]


def test_hooks_and_functions_inside_others_are_tuned_here(card: Card, caplog: pytest.LogCaptureFixture) -> None:
    hooked: list[Any] = []
    bench = Bench()
    tuner = card.tuner(pre_hook=lambda values, reset_only=False: hooked.append(reset_only))
    card.patch.setitem(vars(tuner), "do_bench", bench)
    tuner[grid](*tensors())
    assert hooked == [False, False, False, True]
    inside = card.tuner(Recorded(scale_), name="inside")
    card.patch.setitem(vars(inside), "do_bench", bench)
    card.patch.delattr("autotuned.inside")
    inside[grid](*tensors())
    assert bench.timed == 6
    lines = [line for line in caplog.messages if "as Triton does" in line]
    assert lines[0].endswith("it has a pre_hook or post_hook of its own")
    assert "a captured function is defined at the top level of its module" in lines[1]


def test_a_search_that_fails_ends_in_tritons(card: Card, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    tuner = card.tuner()
    card.patch.setitem(vars(tuner), "do_bench", bench)
    x = tensors()[0]
    tuner[grid](x, x[1:], 999)
    assert bench.timed == 3
    assert any("and not stored: tensors of a captured call are the same" in line for line in caplog.messages)


def test_other_ranks_than_the_first_do_not_tune(card: Card) -> None:
    bench = Bench()
    card.patch.setenv("RANK", "1")
    tuner = card.tuner(do_bench=bench)
    tuner[grid](*tensors())
    card.patch.setenv("RANK", "0")
    tuner[grid](*tensors(2000))
    assert bench.timed == 3
    assert tuner.fn.blocks[0] == 64


def test_nothing_is_tuned_while_a_graph_is_captured(card: Card) -> None:
    bench = Bench()
    tuner = card.tuner(do_bench=bench)
    card.is_recording = True
    tuner[grid](*tensors())
    card.is_recording = False
    assert bench.timed == 0
    tuner[grid](*tensors())
    assert bench.timed == 3


def test_a_mode_of_the_decorator_is_stronger_than_the_environment(card: Card) -> None:
    bench = Bench()
    tuner = card.tuner(do_bench=bench, stated=Stated(mode="serve"))
    tuner[grid](*tensors())
    assert bench.timed == 0


def test_resetting_and_restoring_are_tritons_while_it_tunes_here(card: Card) -> None:
    x, out, n = tensors(4)
    tuner = card.tuner(do_bench=Bench(), reset_to_zero=["out"], restore_value=["x"])
    out.fill_(7)
    tuner[grid](x, out, n)
    assert out.tolist() == [0.0] * 4
    assert triton.Config is not None
