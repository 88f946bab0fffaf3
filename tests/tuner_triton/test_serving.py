"""Calls of an autotuned function in mode serve: which config is launched, and what never stops a model."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import triton
import triton.language as tl
from autotuned import CONFIGS, Card, Recorded, grid, masked_, scale_, tensors
from helpers import A100, H200
from triton.runtime.errors import AutotunerError
from triton.runtime.interpreter import InterpretedFunction

from tuner.client import Client
from tuner.client.sources import DatabaseSource
from tuner.launching.arguments import TRITON

STORED = {"BLOCK": 128, "num_warps": 4, "num_stages": 3}
WIDENED = {"BLOCK": 512, "num_warps": 16, "num_stages": 2}


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Card:
    return Card(tmp_path / "tuner.db", monkeypatch)


def test_a_call_launches_its_stored_config_and_keeps_it_under_tritons_key(card: Card) -> None:
    tuner = card.tuner()
    card.keep(tuner, *tensors(), config=STORED)
    tuner[grid](*tensors())
    tuner[grid](*tensors())
    assert [(launch["BLOCK"], launch["grid"]) for launch in tuner.fn.launches] == [(128, (8,))] * 2
    assert tuner.cache == {(1000, "torch.float32", "torch.float32"): CONFIGS[1]}
    assert tuner.best_config is CONFIGS[1]


def test_a_widened_answer_is_launched_too(card: Card) -> None:
    tuner = card.tuner()
    card.keep(tuner, *tensors(), config=WIDENED)
    tuner[grid](*tensors())
    launch = tuner.fn.launches[0]
    assert (launch["BLOCK"], launch["num_warps"], launch["num_stages"]) == (512, 16, 2)


def test_without_an_answer_the_first_config_is_launched_and_one_line_says_how_to_tune(
    card: Card, caplog: pytest.LogCaptureFixture
) -> None:
    tuner = card.tuner()
    for n in (1000, 2000, 3000):
        tuner[grid](*tensors(n))
    assert tuner.fn.blocks == [64] * 3
    assert caplog.messages == [
        "autotuned_scale: the first config is launched for problems without an answer; TUNER_AUTOTUNE=capture stores "
        "their calls, and tuner search --captured tunes them"
    ]
    assert card.captured() == []


def test_a_call_by_name_has_the_same_key(card: Card) -> None:
    tuner = card.tuner()
    x, out, n = tensors()
    card.keep(tuner, x, out, n, config=STORED)
    tuner[grid](n=n, x=x, out=out)
    assert tuner.fn.blocks == [128]
    assert list(tuner.cache) == [(1000, "torch.float32", "torch.float32")]


def named_as_ours(served, configs, n, BLOCK: tl.constexpr = 64):  # type: ignore[no-untyped-def]
    pass


def test_a_parameter_may_have_any_name(card: Card) -> None:
    tuner = card.tuner(Recorded(named_as_ours))
    x, out, n = tensors()
    tuner[grid](served=x, configs=out, n=n)
    assert tuner.fn.blocks == [64]


def test_each_card_has_its_own_config(card: Card) -> None:
    card.devices = [H200, A100]
    tuner = card.tuner()
    card.keep(tuner, *tensors(), config=STORED, device=0)
    card.keep(tuner, *tensors(), config={**STORED, "BLOCK": 256, "num_warps": 8}, device=1)
    for index in (0, 1, 0):
        card.card = index
        tuner[grid](*tensors())
    assert tuner.fn.blocks == [128, 256, 128]


def test_an_answer_of_other_code_is_served_as_stale(card: Card, caplog: pytest.LogCaptureFixture) -> None:
    tuner = card.tuner()
    card.keep(tuner, *tensors(), config=STORED)
    other = card.tuner(triton.heuristics({"factor": lambda args: 3.0})(Recorded(scale_)))
    other[grid](*tensors())
    assert other.fn.fn.blocks == [128]
    assert "the config is stale" in caplog.text


def test_a_config_that_the_kernel_does_not_have_is_not_launched(card: Card) -> None:
    tuner = card.tuner()
    card.keep(tuner, *tensors(), config=STORED)
    narrower = card.tuner(configs=[triton.Config({"BLOCK": 1024}), triton.Config({"BLOCK": 2048})])
    narrower[grid](*tensors())
    assert narrower.fn.blocks == [1024]


def test_a_config_that_the_card_refuses_is_replaced_once(card: Card, caplog: pytest.LogCaptureFixture) -> None:
    tuner = card.tuner()
    card.keep(tuner, *tensors(), config=STORED)
    tuner.fn.refuses = {"BLOCK": 128}
    tuner[grid](*tensors())
    tuner[grid](*tensors())
    assert tuner.fn.blocks == [64, 64]
    (line,) = [line for line in caplog.messages if "the stored config" in line]
    assert line == (
        f"scale_: the stored config {CONFIGS[1]} cannot be launched (OutOfResources: out of resource: shared memory, "
        "Required: 300000, Hardware limit: 232448. Reducing block sizes or `num_stages` may help.); the first config "
        "is launched"
    )
    assert list(tuner.cache.values()) == [CONFIGS[0]]


def test_a_config_that_is_refused_later_is_replaced(card: Card) -> None:
    """A `tl.constexpr` outside the key may need more shared memory; a warm-up may precede the first launch."""
    tuner = card.tuner()
    card.keep(tuner, *tensors(), config=STORED)
    tuner[grid](*tensors())
    tuner.fn.refuses = {"BLOCK": 128}
    tuner[grid](*tensors(), factor=3.0)
    assert tuner.fn.blocks == [128, 64]


def test_an_error_that_both_configs_raise_replaces_none(card: Card, caplog: pytest.LogCaptureFixture) -> None:
    tuner = card.tuner()
    card.keep(tuner, *tensors(), config=STORED)
    for number in (0, 1):
        tuner.fn.refuses = {"n": 1000}
        with pytest.raises(triton.OutOfResources):
            tuner[grid](*tensors())
        tuner.fn.refuses = {}
        tuner[grid](*tensors())
        assert tuner.fn.blocks == [128] * (number + 1)
    assert "cannot be launched" not in caplog.text


def test_an_error_of_the_first_config_is_the_callers(card: Card) -> None:
    tuner = card.tuner()
    tuner.fn.refuses = {"BLOCK": 64}
    with pytest.raises(triton.OutOfResources):
        tuner[grid](*tensors())


def test_a_refresh_reaches_the_function(card: Card) -> None:
    tuner = card.tuner()
    tuner[grid](*tensors())
    card.keep(tuner, *tensors(), config=STORED)
    tuner[grid](*tensors())
    card.client.refresh()
    tuner[grid](*tensors())
    assert tuner.fn.blocks == [64, 64, 128]


def test_a_config_that_the_caller_put_into_the_cache_is_launched(card: Card) -> None:
    tuner = card.tuner()
    card.keep(tuner, *tensors(), config=STORED)
    tuner.cache[(1000, "torch.float32", "torch.float32")] = CONFIGS[2]
    tuner[grid](*tensors())
    card.client.refresh()
    tuner[grid](*tensors())
    assert tuner.fn.blocks == [256, 256]


def test_a_config_that_the_caller_puts_into_the_cache_later_is_launched(card: Card) -> None:
    """A loop may time each config, and the stored configs of two cards may differ."""
    card.devices = [H200, A100]
    tuner = card.tuner()
    card.keep(tuner, *tensors(), config=STORED)
    for card.card in (0, 1, 0):
        tuner[grid](*tensors())
    assert tuner.fn.blocks == [128, 64, 128]
    for config in reversed(CONFIGS):
        tuner.cache[next(iter(tuner.cache))] = config
        tuner[grid](*tensors())
        tuner[grid](*tensors())
    assert tuner.fn.blocks[3:] == [256, 256, 128, 128, 64, 64]


def test_a_function_with_a_single_config_is_looked_up_since_a_widened_search_may_have_found_another(
    card: Card, caplog: pytest.LogCaptureFixture
) -> None:
    none = card.tuner(configs=[])
    none[(1,)](*tensors())
    tuner = card.tuner(configs=CONFIGS[2:])
    tuner[grid](*tensors())
    card.keep(tuner, *tensors(), config=STORED)
    card.client.refresh()
    tuner[grid](*tensors())
    assert (tuner.fn.blocks, caplog.messages) == ([256, 128], [])
    assert none.fn.launches[0]["num_warps"] == 4


def test_disabled_lookups_launch_the_first_config(card: Card) -> None:
    tuner = card.tuner()
    card.keep(tuner, *tensors(), config=STORED)
    card.patch.setenv("TUNER_DISABLE", "1")
    tuner[grid](*tensors())
    assert tuner.fn.blocks == [64]


def test_pruning_decides_the_first_config(card: Card) -> None:
    seen = []

    def late(configs: Any, named: Any, **kwargs: Any) -> Any:
        seen.append((sorted(named), kwargs["factor"]))
        return configs[1:]

    tuner = card.tuner(prune_configs_by={"early_config_prune": late})
    x, out, n = tensors()
    tuner[grid](x, out, n, factor=3.0)
    assert (tuner.fn.blocks, seen) == ([128], [(["n", "out", "x"], 3.0)])
    slow = card.tuner(prune_configs_by={"perf_model": lambda **values: -values["BLOCK"], "top_k": 2})
    slow[grid](x, out, n)
    assert slow.fn.blocks == [256]


def test_pruning_to_nothing_and_conflicts_are_tritons_errors(card: Card) -> None:
    nothing = card.tuner(prune_configs_by={"early_config_prune": lambda configs, named, **kwargs: []})
    with pytest.raises(AutotunerError, match="No valid autotuner configs after pruning"):
        nothing[grid](*tensors())
    tuner = card.tuner()
    with pytest.raises(ValueError, match=r"Conflicting meta-parameters: BLOCK\."):
        tuner[grid](*tensors(), BLOCK=64)


def test_a_function_inside_another_launches_its_first_config(card: Card) -> None:
    tuner = card.tuner(name="elsewhere")
    card.patch.delattr("autotuned.elsewhere")
    tuner[grid](*tensors())
    assert tuner.fn.blocks == [64]


def test_an_argument_that_is_no_plain_data_launches_the_first_config(card: Card) -> None:
    tuner = card.tuner()
    x, out, n = tensors()
    tuner[grid](x, out, n, factor=object())
    assert tuner.fn.blocks == [64]


def test_a_database_that_cannot_be_read_costs_one_line(card: Card, caplog: pytest.LogCaptureFixture) -> None:
    card.path.write_text("no database, and long enough to be none of SQLite's" * 100)
    tuner = card.tuner()
    for n in (1000, 2000):
        tuner[grid](*tensors(n))
    assert tuner.fn.blocks == [64, 64]
    assert caplog.messages[0].startswith("the kernels' defaults are used until tuner.refresh()")
    assert len(caplog.messages) == 2


def test_a_config_has_its_pre_hook(card: Card) -> None:
    hooked: list[Any] = []
    configs = [triton.Config({"BLOCK": block}, pre_hook=hooked.append) for block in (64, 128)]
    tuner = card.tuner(configs=configs)
    card.keep(tuner, *tensors(), config={"BLOCK": 256, "num_warps": 4, "num_stages": 3})
    tuner[grid](*tensors())
    assert [(values["n"], values["BLOCK"]) for values in hooked] == [(1000, 256)]


def test_warming_up_compiles_what_is_left_after_pruning(card: Card) -> None:
    tuner = card.tuner(prune_configs_by={"early_config_prune": lambda configs, named, **kwargs: configs[1:]})
    x, out, n = tensors()
    assert len(tuner.warmup(x, out, n, grid=(1,))) == 2
    assert tuner.fn.blocks == [128, 256]


def test_heuristics_inside_see_the_served_config(card: Card) -> None:
    even = triton.heuristics({"EVEN": lambda args: args["n"] % args["BLOCK"] == 0})
    tuner = card.tuner(even(Recorded(masked_)))
    card.keep(tuner, *tensors(1024), config=STORED)
    tuner[grid](*tensors(1024))
    assert [(each["BLOCK"], each["EVEN"]) for each in tuner.fn.fn.launches] == [(128, True)]


def test_nothing_is_kept_while_a_graph_is_captured_and_the_answers_are_not_read(card: Card) -> None:
    class Slow(DatabaseSource):
        waits = True

    card.context.client = client = Client(Slow())
    tuner = card.tuner()
    card.keep(tuner, *tensors(), config=STORED)
    card.patch.setattr("tuner.client.tables._is_capturing", lambda: True)
    tuner[grid](*tensors())
    assert tuner.cache == {}
    while not len(client.current()):
        sleep(0.01)  # a thread reads them
    tuner[grid](*tensors())
    assert tuner.fn.blocks == [64, 128]


def test_threads_agree(card: Card) -> None:
    tuner = card.tuner()
    sizes = [1000 + step for step in range(8)]
    for n in sizes:
        card.keep(tuner, *tensors(n), config=STORED)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: tuner[grid](*tensors(n)), sizes * 4))
    assert tuner.fn.blocks == [128] * 32
    assert len(tuner.cache) == 8


def test_a_child_process_serves_even_if_a_lock_was_held(card: Card) -> None:
    tuner = card.tuner()
    card.keep(tuner, *tensors(), config=STORED)
    served = tuner._tuner
    with ThreadPoolExecutor(1) as other:
        other.submit(served.lock.acquire).result()
        child = os.fork()
        if child == 0:
            try:
                tuner[grid](*tensors())
                os._exit(0 if tuner.fn.blocks == [128] else 1)
            finally:
                os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        other.submit(served.lock.release).result()


@pytest.mark.skipif(TRITON < (3, 7), reason="the interpreter of 3.6 fails with today's NumPy")
def test_an_interpreted_function_is_tritons_alone(card: Card) -> None:
    timed = []

    def bench(call: Any, quantiles: Any) -> list[float]:
        call()
        timed.append(1)
        return [1.0] * 3

    tuner = card.tuner(InterpretedFunction(scale_), do_bench=bench)
    x, out, n = tensors(100)
    tuner[grid](x, out, n)
    assert (out.tolist(), len(timed)) == ((2 * x).tolist(), 3)


def test_the_mode_is_read_at_each_call(card: Card, caplog: pytest.LogCaptureFixture) -> None:
    timed = []

    def bench(call: Any, quantiles: Any) -> list[float]:
        call()
        timed.append(1)
        return [1.0 / len(timed)] * 3

    tuner = card.tuner(do_bench=bench)
    tuner[grid](*tensors())
    assert timed == []
    card.patch.setenv("TUNER_AUTOTUNE", "off")
    tuner[grid](*tensors())
    assert len(timed) == 3  # exactly what Triton does
    assert tuner.best_config is CONFIGS[2]
    card.patch.setenv("TUNER_AUTOTUNE", "fastest")
    tuner[grid](*tensors(2000))
    assert len(timed) == 3
    assert "TUNER_AUTOTUNE is serve, capture, tune or off, not 'fastest'; it is taken for serve" in caplog.messages


def test_only_max_choices_are_kept(card: Card) -> None:
    from tuner.triton.settings import AutotuneSettings

    card.context.settings = AutotuneSettings(max_choices=2)
    tuner = card.tuner()
    for n in (1, 2, 3):
        tuner[grid](*tensors(n))
    assert len(tuner._tuner._choices) == 2


def test_a_listener_hears_of_a_stored_config(card: Card) -> None:
    from triton import knobs

    heard: list[dict[str, Any]] = []
    card.patch.setattr(knobs.autotuning, "listener", lambda **values: heard.append(values), raising=False)
    tuner = card.tuner()
    card.keep(tuner, *tensors(), config=STORED)
    tuner[grid](*tensors())
    tuner[grid](*tensors())
    tuner[grid](*tensors(5))
    assert [(each["fn"], each["best_config"], each["cache_hit"]) for each in heard] == [(tuner.fn, CONFIGS[1], True)]
