"""Repeated calls of an autotuned function: they launch what Triton would, at less cost, on a card that is not there."""

from __future__ import annotations

import copy
import gc
import os
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import RLock
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from stand_in_card import StandInCard, addresses, stand_in_card
from triton import knobs
from triton._C.libtriton import native_specialize_impl
from triton.backends.compiler import BaseBackend
from triton.runtime.autotuner import Autotuner, Config, Heuristics
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.triton.fast import FastCalls, FastSettings
from tuner.triton.watched import WatchedCache


def scale(x, out, n, factor, bias=None, BLOCK: tl.constexpr = 64):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n) * factor
    if bias is not None:
        value += tl.load(bias)
    tl.store(out + at, value, mask=at < n)


def masked(x, out, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    if EVEN:
        tl.store(out + at, tl.load(x + at))
    else:
        tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


def copied(desc, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)[:, None] * 16 + tl.arange(0, 16)[None, :]
    tl.store(out + at, desc.load([0, 0]).to(tl.float32))


LIMIT = tl.constexpr(8)


def limited(x, out, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < LIMIT))


CONFIGS = [Config({"BLOCK": 128}, num_warps=4), Config({"BLOCK": 256}, num_warps=8)]


class Tuner(Autotuner):  # type: ignore[misc]
    """An autotuner that repeats its calls, and counts those that go the ordinary way."""

    calls: FastCalls

    def __init__(self, fn: Any, configs: list[Config] | None = None, key: list[str] | None = None, **more: Any) -> None:
        key = ["n"] if key is None else key
        timed = lambda call, quantiles: [1.0, 1.0, 1.0]  # noqa: E731
        super().__init__(fn, fn.arg_names, configs or list(CONFIGS), key, None, None, do_bench=timed, **more)
        self.ordinary = 0
        self.one_at_a_time = RLock()  # since Triton keeps the arguments of a call in the autotuner
        self.calls = FastCalls(self, self.run, runs_on="cpu")

    def run(self, *args: Any, **kwargs: Any) -> Any:
        with self.one_at_a_time:
            self.ordinary += 1
            return super().run(*args, **kwargs)

    def __getitem__(self, grid: Any) -> Any:
        return self.calls.at(grid)


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInCard]:
    with stand_in_card(tmp_path, monkeypatch) as card:
        yield card


@pytest.fixture(scope="module")
def cached(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(autouse=True)
def compiled_once(card: StandInCard, cached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(cached))


X, OUT = torch.zeros(4096), torch.zeros(4096)
META = lambda meta: (-(-meta["n"] // meta["BLOCK"]),)  # noqa: E731


def test_a_repeated_call_launches_what_triton_does(card: StandInCard) -> None:
    tuner = Tuner(JITFunction(scale))
    first = tuner[META](X, OUT, 1000, 2.0)
    by_triton, before = card.launches[-1], tuner.ordinary
    again = tuner[META](X, OUT, 1000, 2.0)
    by_us = card.launches[-1]
    assert tuner.ordinary == before
    assert again is first
    assert by_us[:2] == by_triton[:2] == ((8, 1, 1), first.function)
    assert by_us[2] == addresses(by_triton[2]) == (X.data_ptr(), OUT.data_ptr(), 1000, 2.0, None, 128)
    assert tuner.best_config is CONFIGS[0]


def test_other_tensors_and_numbers_are_passed_through(card: StandInCard) -> None:
    tuner = Tuner(JITFunction(scale), key=[])
    x, out = torch.zeros(512), torch.zeros(512)
    tuner[META](X, OUT, 1000, 2.0)
    tuner[META](x, out, 1001 - 1, 3.5)
    assert card.launches[-1][2] == (x.data_ptr(), out.data_ptr(), 1000, 3.5, None, 128)
    assert tuner.ordinary == 1


@pytest.mark.parametrize(
    "grid", [(4,), (4, 5), (4, 5, 6), [4, 5], lambda meta: (4, meta["n"]), lambda meta: [meta["BLOCK"]]]
)
def test_grids_are_as_tritons(grid: Any, card: StandInCard) -> None:
    tuner = Tuner(JITFunction(scale))
    for _ in range(2):
        tuner[grid](X, OUT, 48, 2.0)
    assert card.launches[-1][0] == card.launches[-2][0]
    assert tuner.ordinary == 1


def test_a_grid_gets_all_arguments_by_name(card: StandInCard) -> None:
    tuner, seen = Tuner(JITFunction(scale)), []

    def grid(meta: dict[str, Any]) -> tuple[int]:
        seen.append(meta)
        return (1,)

    for _ in range(2):
        tuner[grid](X, OUT, factor=2.0, n=32)
    assert list(seen[0]) == list(seen[1]) == ["x", "out", "n", "factor", "bias", "BLOCK"]
    assert seen[1]["x"] is X
    assert [seen[1][name] for name in ("n", "factor", "bias", "BLOCK")] == [32, 2.0, None, 128]


NUMBERS = [0, 1, 2, 15, 16, 17, 32, -1, -16, -17, 2**31 - 1, 2**31, 2**31 + 16, -(2**31), -(2**31) - 1, 2**63, 2**40]
VALUES = [*NUMBERS, True, False, None, 1.0, 0.0]


def key_of(tuner: Tuner, *args: Any) -> object:
    form = tuner.calls._form_of(args, {})
    assert form is not None
    known = tuner.calls._forms.get(form) or tuner.calls._new(form)
    return form, known.names["key_of"](args, {})


def tritons(value: Any) -> object:
    return native_specialize_impl(BaseBackend, value, False, True, True)


def test_what_triton_specializes_on_is_in_the_key() -> None:
    """Two values with different specializations have different keys; most others share theirs."""
    tuner = Tuner(JITFunction(scale), key=[])
    keys = {index: key_of(tuner, X, OUT, value, 2.0) for index, value in enumerate(VALUES)}
    for one, first in enumerate(VALUES):
        for other, second in enumerate(VALUES):
            if tritons(first) != tritons(second):
                assert keys[one] != keys[other], (first, second)
    small = [value for value in NUMBERS if 0 <= value < 2**31]
    assert len({str(key_of(tuner, X, OUT, value, 2.0)[1]) for value in small}) == 3  # type: ignore[index]


def test_tensors_differ_by_dtype_alignment_and_type_of_device_alone() -> None:
    tuner = Tuner(JITFunction(scale), key=[])
    same = [X, X[4:], X.view(64, 64).t(), torch.nn.Parameter(X)]
    others = [X[1:], X[2:].view(torch.int32), X.half(), X.to(torch.bfloat16), X.to("meta"), None]
    assert len({key_of(tuner, x, OUT, 32, 2.0) for x in same}) == 1
    assert key_of(tuner, X[1:], OUT, 32, 2.0) == key_of(tuner, X[3:], OUT, 32, 2.0)
    assert len({key_of(tuner, x, OUT, 32, 2.0) for x in [X, *others]}) == 7


def test_constants_and_the_key_of_the_autotuner_are_keyed_by_value() -> None:
    tuner = Tuner(JITFunction(scale), key=["n"])
    assert len({key_of(tuner, X, OUT, n, 2.0) for n in range(2, 34)}) == 32
    blocks = [1, True, 1.0, "1", 2, tl.float16, tl.float32, torch.float16, None]
    assert len({key_of(tuner, X, OUT, 2, 2.0, None, block) for block in blocks}) == len(blocks)


@pytest.mark.parametrize("value", [torch.zeros(3).numpy()[0], (1, 2), [1], tl.constexpr(3), object(), "text"])
def test_unusual_arguments_are_not_kept(value: object) -> None:
    tuner = Tuner(JITFunction(scale), key=[])
    assert tuner.calls._form_of((X, OUT, value, 2.0), {}) is None


def test_numbers_that_vary_make_no_new_launches(card: StandInCard) -> None:
    tuner = Tuner(JITFunction(scale), key=[])
    for length in range(2, 2000):
        tuner[(1,)](X, OUT, length, 2.0)
        assert card.launches[-1][2][2] == length
    assert tuner.ordinary == tuner.calls.kept == 2  # multiples of 16 and others
    assert len(tuner.fn.device_caches[0][0]) == 2


CHANGES: dict[str, tuple[Callable[[Tuner], object], int]] = {
    "cleared": (lambda tuner: tuner.cache.clear(), 128),
    "updated": (lambda tuner: tuner.cache.update(dict.fromkeys(tuner.cache, CONFIGS[1])), 256),
    "set": (lambda tuner: tuner.cache.__setitem__(next(iter(tuner.cache)), CONFIGS[1]), 256),
    "dropped": (lambda tuner: tuner.cache.popitem(), 128),
    "replaced": (lambda tuner: setattr(tuner, "cache", dict.fromkeys(tuner.cache, CONFIGS[1])), 256),
    "other configs": (lambda tuner: setattr(tuner, "configs", CONFIGS[1:]), 256),
    "fewer configs": (lambda tuner: tuner.configs.pop(0), 256),
    "compiled kernels": (lambda tuner: tuner.fn.device_caches.clear(), 128),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_from_outside_is_seen(what: str, card: StandInCard) -> None:
    tuner, (change, block) = Tuner(JITFunction(scale)), CHANGES[what]
    for _ in range(2):
        tuner[(1,)](X, OUT, 32, 2.0)
    change(tuner)
    tuner[(1,)](X, OUT, 32, 2.0)
    assert tuner.ordinary == 2
    assert card.launches[-1][2][-1] == block


def test_another_mode_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    tuner, counts = Tuner(JITFunction(scale)), []
    for mode in ("", "", "capture", "capture", "serve"):
        monkeypatch.setenv("TUNER_AUTOTUNE", mode)
        tuner[(1,)](X, OUT, 32, 2.0)
        counts.append(tuner.ordinary)
    assert counts == [1, 1, 2, 2, 3]


def test_a_function_of_another_mode_repeats_nothing_later(card: StandInCard, monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = Tuner(JITFunction(scale))
    tuner[(1,)](X, OUT, 32, 2.0)
    held = tuner[(1,)]
    held(X, OUT, 32, 2.0)
    monkeypatch.setenv("TUNER_AUTOTUNE", "capture")
    held(X, OUT, 32, 2.0)
    tuner.cache[next(iter(tuner.cache))] = CONFIGS[1]
    monkeypatch.delenv("TUNER_AUTOTUNE")
    held(X, OUT, 32, 2.0)
    assert [launch[2][-1] for launch in card.launches[-4:]] == [128, 128, 128, 256]


def test_a_new_key_of_the_cache_drops_nothing() -> None:
    tuner = Tuner(JITFunction(scale))
    tuner[(1,)](X, OUT, 32, 2.0)
    tuner.cache[("another",)] = CONFIGS[1]
    tuner[(1,)](X, OUT, 32, 2.0)
    assert tuner.ordinary == 1


def test_one_config_needs_no_cache(card: StandInCard) -> None:
    tuner = Tuner(JITFunction(scale), [CONFIGS[1]])
    for _ in range(2):
        tuner[(1,)](X, OUT, 32, 2.0)
    assert tuner.ordinary == 1
    tuner.configs[0] = CONFIGS[0]
    tuner[(1,)](X, OUT, 32, 2.0)
    assert card.launches[-1][2][-1] == 128


def test_hooks_see_each_launch(card: StandInCard, monkeypatch: pytest.MonkeyPatch) -> None:
    tuner = Tuner(JITFunction(scale))
    seen: list[object] = []
    for _ in range(2):
        tuner[(1,)](X, OUT, 32, 2.0)
    knobs.runtime.launch_enter_hook.add(seen.append)
    try:
        tuner[(1,)](X, OUT, 32, 2.0)
    finally:
        knobs.runtime.launch_enter_hook.remove(seen.append)
    assert len(seen) == 1
    tuner[(1,)](X, OUT, 32, 2.0)
    assert tuner.ordinary == 2
    tuner.fn.pre_run_hooks.append(lambda *args, **kwargs: seen.append(args))
    tuner[(1,)](X, OUT, 32, 2.0)
    assert len(seen) == 2
    tuner.fn.pre_run_hooks.clear()
    monkeypatch.setattr(knobs.compilation, "instrumentation_mode", "fpsan")
    monkeypatch.setattr(tuner, "run", lambda *args, **kwargs: None)
    tuner.calls._ordinary = lambda *args, **kwargs: seen.append("ordinary")
    tuner[(1,)](X, OUT, 32, 2.0)
    assert seen[-1] == "ordinary"


def test_a_setting_of_triton_that_changes_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Releases have settings of their own that are read at each launch, such as `fpsan_homomorphic_casts`."""
    tuner = Tuner(JITFunction(scale))
    for expected in (1, 1):
        tuner[META](X, OUT, 1000, 2.0)
        assert tuner.ordinary == expected
    monkeypatch.setitem(vars(knobs.compilation), "fpsan_homomorphic_casts", True)
    for expected in (2, 2):
        tuner[META](X, OUT, 1000, 2.0)
        assert tuner.ordinary == expected


def test_the_hook_of_a_config_runs_before_each_launch(card: StandInCard) -> None:
    seen: list[tuple[dict[str, Any], int]] = []
    hooked = Config({"BLOCK": 128}, num_warps=8, pre_hook=lambda named: seen.append((named, len(card.launches))))
    tuner = Tuner(JITFunction(scale), [hooked])
    for _ in range(3):
        tuner[(1,)](X, OUT, 32, factor=2.0)
    assert tuner.ordinary == 1
    assert [count for _, count in seen] == [0, 1, 2]
    (first, _), *others = seen
    assert all(named == first for named, _ in others)
    assert first["x"] is X
    assert (first["grid"], first["BLOCK"], first["num_warps"]) == ((1,), 128, 8)


def test_a_hook_before_heuristics_goes_the_ordinary_way() -> None:
    seen: list[object] = []
    heuristic = {"EVEN": lambda named: named["n"] % named["BLOCK"] == 0}
    fn = Heuristics(JITFunction(masked), ["x", "out", "n", "BLOCK", "EVEN"], heuristic)
    tuner = Tuner(fn, [Config({"BLOCK": 128}, pre_hook=seen.append)])
    for _ in range(3):
        tuner[(1,)](X, OUT, 256)
    assert (len(seen), tuner.ordinary) == (3, 3)


def test_descriptors_are_passed_with_the_block_shape_that_a_hook_sets(card: StandInCard) -> None:
    def set_block(named: dict[str, Any]) -> None:
        named["desc"].block_shape = [named["BLOCK"], 16]

    tuner = Tuner(JITFunction(copied), [Config({"BLOCK": block}, pre_hook=set_block) for block in (16, 32)], key=[])
    matrix = torch.zeros(64, 64)
    kernels = []
    for _ in range(3):
        desc = TensorDescriptor.from_tensor(matrix, [1, 16])
        kernels.append(tuner[(1,)](desc, OUT))
        assert desc.block_shape == [16, 16]
    assert tuner.ordinary == 1
    assert kernels[0] is kernels[1] is kernels[2]
    by_triton, *by_us = ([addresses((value,))[0] for value in launch[2]] for launch in card.launches)
    assert all(len(each) == len(by_triton) and each[1:] == by_triton[1:] for each in by_us)
    tuner[(1,)](TensorDescriptor.from_tensor(matrix.half(), [1, 16]), OUT)
    assert tuner.ordinary == 2


def test_heuristics_are_computed_at_each_call(card: StandInCard) -> None:
    heuristic = {"EVEN": lambda named: named["n"] % named["BLOCK"] == 0}
    tuner = Tuner(Heuristics(JITFunction(masked), ["x", "out", "n", "BLOCK", "EVEN"], heuristic), key=[])
    for n in (256, 272, 512, 288):
        tuner[(1,)](X, OUT, n)
        assert card.launches[-1][2][2:] == (n, 128, n % 128 == 0)
    assert tuner.ordinary == 2


def test_a_global_variable_that_changed_is_refused_as_triton_refuses_it() -> None:
    tuner = Tuner(JITFunction(limited), key=[])
    for _ in range(2):
        tuner[(1,)](X, OUT)
    before = globals()["LIMIT"]
    globals()["LIMIT"] = tl.constexpr(9)
    try:
        with pytest.raises(RuntimeError, match="LIMIT has changed"):
            tuner[(1,)](X, OUT)
    finally:
        globals()["LIMIT"] = before
    tuner[(1,)](X, OUT)
    assert tuner.ordinary == 2


def test_wrong_calls_raise_what_triton_raises() -> None:
    tuner, plain = Tuner(JITFunction(scale)), JITFunction(scale)
    tuner[(1,)](X, OUT, 32, 2.0)
    with pytest.raises(TypeError) as ours:
        tuner[(1,)](X, OUT)
    with pytest.raises(TypeError) as tritons:
        plain[(1,)](X, OUT)
    assert str(ours.value) == str(tritons.value)
    with pytest.raises(KeyError, match="num_warp was specified but unrecognised"):
        tuner[(1,)](X, OUT, 32, 2.0, num_warp=4)


def test_options_are_part_of_the_key(card: StandInCard) -> None:
    tuner = Tuner(JITFunction(scale))
    plain = tuner[(1,)](X, OUT, 32, 2.0)
    for limit in (64, 64, 96):
        limited = tuner[(1,)](X, OUT, 32, 2.0, maxnreg=limit) if limit != 96 else plain
    assert limited is plain
    with_limit = tuner[(1,)](X, OUT, 32, 2.0, maxnreg=64)
    assert (with_limit.metadata.maxnreg, plain.metadata.maxnreg) == (64, None)
    assert tuner.ordinary == 2


def test_devices_have_launches_of_their_own(card: StandInCard) -> None:
    tuner = Tuner(JITFunction(scale))
    for card.device in (0, 1, 0, 1):
        tuner[(1,)](X, OUT, 32, 2.0)
    assert tuner.ordinary == card.loaded == 2
    assert [launch[1] for launch in card.launches[-2:]] == [launch[1] for launch in card.launches[-4:-2]]


def test_no_tensor_is_kept_alive(card: StandInCard) -> None:
    tuner = Tuner(JITFunction(scale), [Config({"BLOCK": 128}, pre_hook=lambda named: None)])
    x, out = torch.zeros(64), torch.zeros(64)
    tuner[(1,)](x, out, 32, 2.0)
    tuner[(1,)](x, out, 32, 2.0)
    watched = weakref.ref(x), weakref.ref(out)
    card.launches.clear()
    del x, out
    gc.collect()
    assert [each() for each in watched] == [None, None]


def test_no_more_is_kept_than_is_set() -> None:
    tuner = Tuner(JITFunction(scale))
    tuner.calls = FastCalls(tuner, tuner.run, FastSettings(most_forms=2, most_launches=3, most_unusual=1), "cpu")
    for n in range(2, 12):
        tuner[(1,)](X, OUT, n, 2.0)
    assert tuner.calls.kept == 3
    tuner[(1,)](X, OUT, 11, n * 2.0)
    tuner[(1,)](X, out=OUT, n=11, factor=2.0)
    tuner[(1,)](x=X, out=OUT, n=11, factor=2.0)
    tuner[(1,)](X, OUT, 11, factor=2.0)
    assert len(tuner.calls._forms) == 2
    assert len(tuner.calls._unusual) == 1


def test_threads_launch_what_they_ask_for(card: StandInCard) -> None:
    tuner = Tuner(JITFunction(scale))
    tuner[(1,)](X, OUT, 32, 2.0)

    def work(number: int) -> None:
        for step in range(100):
            tuner[(number + 1,)](X, OUT, 16 * (1 + (number + step) % 4), float(number))
            if step % 25 == 0:
                with tuner.one_at_a_time:  # Triton reads what it has just put there
                    tuner.cache.clear()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))
    launched = [launch for launch in card.launches if launch[2][3] != 2.0 or launch[0] != (1, 1, 1)]
    assert all(grid[0] - 1 == values[3] for grid, _, values in launched)


def test_a_fork_asks_again() -> None:
    tuner = Tuner(JITFunction(scale))
    tuner[(1,)](X, OUT, 32, 2.0)
    assert tuner.calls.kept == 1
    read, write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(write, str(tuner.calls.kept).encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 8) == b"0"
    assert tuner.calls.kept == 1


def test_a_function_that_triton_does_not_run_itself_goes_the_ordinary_way() -> None:
    class Wrapped:
        def __init__(self, fn: Any) -> None:
            self.fn, self.arg_names = fn, fn.arg_names

        def run(self, *args: Any, **kwargs: Any) -> Any:
            return self.fn.run(*args, **kwargs)

    tuner = Tuner(Wrapped(JITFunction(scale)))
    for _ in range(2):
        tuner[(1,)](X, OUT, 32, 2.0)
    assert (tuner.ordinary, tuner.calls.kept) == (2, 0)


def test_a_run_that_is_patched_later_is_called(card: StandInCard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Profilers and tests patch it to count launches."""
    tuner, run, seen = Tuner(JITFunction(scale)), JITFunction.run, []
    for _ in range(2):
        tuner[(1,)](X, OUT, 32, 2.0)

    def counting(self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.append(args)
        return run(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(JITFunction, "run", counting)
        for _ in range(2):
            tuner[(1,)](X, OUT, 32, 2.0)
    assert (len(seen), tuner.ordinary) == (2, 3)
    tuner[(1,)](X, OUT, 32, 2.0)
    assert (len(seen), tuner.ordinary) == (2, 3)


def test_a_copy_of_the_cache_is_a_plain_one() -> None:
    tuner = Tuner(JITFunction(scale))
    tuner[(1,)](X, OUT, 32, 2.0)
    assert isinstance(tuner.cache, WatchedCache)
    assert type(copy.deepcopy(tuner.cache)) is dict
    assert len(copy.copy(tuner.cache)) == 1


def test_our_launches_cost_less_than_tritons(card: StandInCard) -> None:
    """Host time of a call, with a Python function that does nothing instead of the launcher in C."""
    from timeit import repeat

    tuner, plain = Tuner(JITFunction(scale)), JITFunction(scale)
    card.launch = lambda *args: None  # type: ignore[method-assign]
    tuner[(1,)](X, OUT, 32, 2.0)
    plain[(1,)](X, OUT, 32, 2.0, None, 128)
    ours = min(repeat(lambda: tuner[(1,)](X, OUT, 32, 2.0), number=500, repeat=5))
    tritons = min(repeat(lambda: plain[(1,)](X, OUT, 32, 2.0, None, 128), number=500, repeat=5))
    assert ours < 0.6 * tritons
    assert tuner.ordinary == 1
    assert triton.runtime.driver.active is card
