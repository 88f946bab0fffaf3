"""`autotune` and `install`: Triton's signature, its class, and nothing that is patched unless asked for."""

from __future__ import annotations

import copy
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import triton
from autotuned import CONFIGS, Card, Recorded, grid, scale_, tensors
from triton.runtime import autotuner as tritons

from tuner.errors import UsageError
from tuner.triton import Autotuner, autotune, install, uninstall
from tuner.triton.served import STATE, served_of

STORED = {"BLOCK": 128, "num_warps": 4, "num_stages": 3}


@pytest.fixture
def card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Card]:
    yield Card(tmp_path / "tuner.db", monkeypatch)
    uninstall()


def plain(card: Card, **options: Any) -> Any:
    """Return a function under Triton's own decorator, served by the context of a test."""
    tuner = triton.autotune(CONFIGS, ["n"], **options)(Recorded(scale_))
    card.patch.setattr("autotuned.scale", tuner)
    served_of(tuner, context=card.context)
    return tuner


def bench(call: Any, quantiles: Any) -> list[float]:
    call()
    return [1.0] * 3


def test_the_signature_is_tritons_with_keywords_of_ours() -> None:
    ours, theirs = inspect.signature(autotune).parameters, inspect.signature(triton.autotune).parameters
    assert [(each.name, each.kind, each.default) for each in ours.values()][: len(theirs)] == [
        (each.name, each.kind, each.default) for each in theirs.values()
    ]
    assert list(ours)[len(theirs) :] == ["mode", "reference", "op", "widen", "values"]
    assert all(ours[name].kind is inspect.Parameter.KEYWORD_ONLY for name in list(ours)[len(theirs) :])


def test_a_decorated_function_is_tritons_autotuner() -> None:
    @autotune(CONFIGS, ["n"], reset_to_zero=["out"], restore_value=["x"], reference=lambda x: x, mode="serve")
    @triton.jit  # type: ignore[untyped-decorator]
    def kernel(x, out, n, BLOCK) -> None:  # type: ignore[no-untyped-def]
        pass

    assert isinstance(kernel, tritons.Autotuner)
    assert isinstance(kernel, Autotuner)
    assert (kernel.configs, kernel.keys, kernel.cache) == (CONFIGS, ["n"], {})
    assert (kernel.reset_to_zero, kernel.restore_value) == (["out"], ["x"])
    assert kernel.reference is not None
    assert not hasattr(kernel, "configs_timings")


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"mode": "fast"}, "a mode is serve, capture, tune or off, not 'fast'; leave it out for TUNER_AUTOTUNE"),
        ({"op": "My Op"}, "an op's name is lower-case letters, digits and _, up to 64, not 'My Op'; rename it"),
        ({"reference": 3}, "reference is a function of the kernel's arguments, not 3; define it"),
    ],
)
def test_a_wrong_keyword_is_refused_where_it_is_stated(wrong: dict[str, Any], line: str) -> None:
    with pytest.raises(UsageError, match=re.escape(line)):
        autotune(CONFIGS, ["n"], **wrong)


def test_install_serves_functions_from_before_and_after_it_and_uninstall_restores(card: Card) -> None:
    original, attributes = tritons.Autotuner.run, set(vars(tritons.Autotuner))
    before = plain(card, do_bench=bench)
    install()
    card.keep(before, *tensors(), config=STORED)
    before[grid](*tensors())
    after = plain(card)
    after[grid](*tensors())
    assert (before.fn.blocks, after.fn.blocks) == ([128], [128])
    install()
    uninstall()
    uninstall()
    assert tritons.Autotuner.run is original
    assert set(vars(tritons.Autotuner)) == attributes
    card.context.forget()
    before[grid](*tensors())
    assert len(before.fn.blocks) == 5  # three are timed, and the best is launched


def test_a_mode_of_install_is_that_of_functions_without_one(card: Card) -> None:
    tuner, own = plain(card), card.tuner(stated=served_of(card.tuner()).stated)
    install("capture")
    card.patch.setattr("autotuned.scale", tuner)
    tuner[grid](*tensors())
    assert len(card.captured()) == 1
    install("off")
    assert served_of(own).mode == "off"
    with pytest.raises(UsageError, match="a mode is serve, capture, tune or off, not 'on'"):
        install("on")


def test_threads_install_once(card: Card) -> None:
    original = tritons.Autotuner.run
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: install(), range(64)))
    assert tritons.Autotuner.run.__wrapped__ is original
    uninstall()
    assert tritons.Autotuner.run is original


def test_a_wrapper_that_another_library_puts_around_survives(card: Card) -> None:
    original = tritons.Autotuner.run
    install()
    ours = tritons.Autotuner.run
    called: list[int] = []

    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        called.append(1)
        return ours(self, *args, **kwargs)

    card.patch.setattr(tritons.Autotuner, "run", wrapper)
    tuner = plain(card)
    card.keep(tuner, *tensors(), config=STORED)
    tuner[grid](*tensors())
    uninstall()
    assert tritons.Autotuner.run is wrapper
    single = plain(card)
    single.configs = CONFIGS[:1]
    single[grid](*tensors())
    install()
    tuner[grid](*tensors())
    assert (tuner.fn.blocks, single.fn.blocks, len(called)) == ([128, 128], [64], 3)
    card.patch.undo()
    tritons.Autotuner.run = ours
    uninstall()
    assert tritons.Autotuner.run is original


def test_a_subclass_of_another_library_is_served_by_install(card: Card) -> None:
    class Theirs(tritons.Autotuner):  # type: ignore[misc]
        def run(self, *args: Any, **kwargs: Any) -> Any:
            kwargs.pop("extra", None)
            return super().run(*args, **kwargs)

    fn = Recorded(scale_)
    tuner = Theirs(fn, fn.arg_names, CONFIGS, ["n"], None, None)
    card.patch.setattr("autotuned.scale", tuner)
    served_of(tuner, context=card.context)
    card.keep(tuner, *tensors(), config=STORED)
    install()
    tuner[grid](*tensors(), extra=1)
    assert tuner.fn.blocks == [128]
    assert STATE in vars(tuner)


def test_importing_loads_neither_torch_nor_triton_and_patches_nothing() -> None:
    code = """
import sys, tuner, tuner.triton
assert not {"torch", "triton"} & set(sys.modules)
from tuner.triton import install, uninstall
assert "torch" not in sys.modules, "install loads torch"
import triton.runtime.autotuner as tritons
run = tritons.Autotuner.run
assert run.__module__ == "triton.runtime.autotuner"
install()
assert "torch" not in sys.modules, "installing loads torch"
assert tritons.Autotuner.run is not run
"""
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_copy_is_a_function_of_its_own(card: Card) -> None:
    """Copies of Triton's autotuner are independent, and so are these."""
    tuner = card.tuner()
    tuner[grid](*tensors())
    other = copy.copy(tuner)
    other.fn = Recorded(scale_)
    other.configs = [triton.Config({"BLOCK": 16})]
    other[grid](*tensors())
    other.run(*tensors(), grid=grid, warmup=False)
    assert (tuner.fn.blocks, other.fn.blocks) == ([64], [16, 16])
