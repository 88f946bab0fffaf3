"""A stored config that cannot be launched on these tensors: the default is launched instead, and a line says so."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import NoReturn

import pytest
import torch
from helpers import H200
from triton.compiler.errors import CompilationError
from triton.runtime.errors import OutOfResources, PTXASError

from tuner import catalog
from tuner.client.best import Best
from tuner.errors import KernelFault, UsageError
from tuner.kernels.calling import Pointers, PreparedLaunch
from tuner.kernels.spec import Config, Kernel, Value
from tuner.launching.calls import launch_or_default

KERNEL = catalog.load("gemm")
PROBLEM = KERNEL.signature.problem({"M": 64, "N": 64, "K": 256})
DEFAULT = KERNEL.default_config(PROBLEM, H200.limits)


def config(**knobs: Value) -> Config:
    return KERNEL.signature.config({**DEFAULT, **knobs})


TUNED = config(VARIANT="tiles", BLOCK_M=32, BLOCK_N=32, BLOCK_K=32, GROUP_M=1, GROUPS=2, num_stages=3)
assert TUNED != DEFAULT


def asserts(problem: object, config: object, tensors: object) -> NoReturn:
    raise AssertionError("strides must be 16-byte aligned")


def fault_of_launch() -> KernelFault:
    """Return what a kernel's `launch` raises if a tensor descriptor asserts that a view is aligned."""
    with pytest.raises(KernelFault) as raised:
        replace(KERNEL, launch=asserts).launch(PROBLEM, TUNED, {})
    return raised.value


def launched(best: Config | None, refuse: Callable[[Config], Exception | None], kernel: Kernel = KERNEL) -> Config:
    """Return the config that is launched, if preparing a config raises what `refuse` returns of it."""
    made: list[Config] = []

    def prepared(tried: Config) -> PreparedLaunch:
        if (error := refuse(tried)) is not None:
            raise error

        def launch(at: Pointers) -> None:
            made.append(tried)

        return launch

    launch_or_default(kernel, PROBLEM, H200.limits, Best(best, "exact"), prepared)(())
    (ran,) = made
    return ran


REFUSALS: dict[str, tuple[Callable[[], Exception], str]] = {
    "an assertion of launch": (fault_of_launch, "AssertionError: "),
    "an assertion": (lambda: AssertionError("aligned"), "AssertionError: aligned"),
    "the compiler": (lambda: CompilationError("x = 1", None, "no such type"), "CompilationError"),
    "a pass of the compiler": (lambda: RuntimeError("PassManager::run failed"), "PassManager::run failed"),
    "the assembler": (lambda: PTXASError("registers"), "PTXASError"),
    "shared memory": (lambda: OutOfResources(300_000, 232_448, "shared memory"), "OutOfResources"),
    "a damaged binary": (lambda: RuntimeError("Triton Error [CUDA]: device kernel image is invalid"), "image is inv"),
    "memory for the workspace": (lambda: torch.OutOfMemoryError("Tried to allocate 80.00 GiB"), "80.00 GiB"),
}
FAULTS: dict[str, Callable[[], Exception]] = {
    "a fault of ours": lambda: ValueError("a fault of ours"),
    "a typing error": lambda: NameError("name 'tl' is not defined"),
    "a fault of a kernel file": lambda: KernelFault("launch returns a tuple of Launch values, not None; write it"),
    "a wrong call": lambda: UsageError("a prepared kernel takes its tensors one by one"),
    "an earlier failure of the card": lambda: RuntimeError("CUDA error: an illegal memory access was encountered"),
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_stored_config_that_is_refused_falls_back_to_the_default(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    make, text = REFUSALS[kind]
    with caplog.at_level(logging.DEBUG, "tuner"):
        ran = launched(TUNED, lambda tried: make() if tried == TUNED else None)
    assert ran == DEFAULT
    warning, chosen = caplog.messages
    assert warning.startswith(f"{PROBLEM.text}: the default is used, since {TUNED.text} fails: ")
    assert text in warning
    assert "\n" not in warning
    assert chosen == f"{PROBLEM.text}: launched with {DEFAULT.text} (exact)"


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_raised_though_the_default_might_run(kind: str) -> None:
    fault = FAULTS[kind]()
    with pytest.raises(type(fault)) as raised:
        launched(TUNED, lambda tried: fault if tried == TUNED else None)
    assert raised.value is fault


@pytest.mark.parametrize("kind", REFUSALS)
@pytest.mark.parametrize("stored", [TUNED, DEFAULT, None])
def test_a_default_that_is_refused_raises_its_own_error(stored: Config | None, kind: str) -> None:
    errors: list[Exception] = []

    def refuse(tried: Config) -> Exception:
        errors.append(REFUSALS[kind][0]())
        return errors[-1]

    with pytest.raises(type(REFUSALS[kind][0]())) as raised:
        launched(stored, refuse)
    assert raised.value is errors[-1]
    assert len(errors) == (2 if stored is TUNED else 1)


def test_a_stored_config_that_is_no_longer_feasible_is_not_tried(caplog: pytest.LogCaptureFixture) -> None:
    infeasible = config(VARIANT="tiles", STORES=1, BLOCK_M=256, BLOCK_N=256, BLOCK_K=256)
    assert launched(infeasible, lambda tried: AssertionError("tried") if tried == infeasible else None) == DEFAULT
    (message,) = caplog.messages
    assert message.startswith(
        f"{PROBLEM.text}: the default is used, since {infeasible.text} is no longer feasible: refused by tile_suits ("
    )
    assert " is false (" in message


def test_a_stored_config_that_runs_is_launched() -> None:
    assert launched(TUNED, lambda tried: None) == TUNED
    assert launched(None, lambda tried: None) == DEFAULT
