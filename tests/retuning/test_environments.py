"""Answers in two environments: the judgement by scripted measurers, and the whole way by two real interpreters."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers import toy
from machines import Busy, Machine
from scripted import BEST, DEFAULT, TOY, ScriptedMeasurer, bowl, only

from tuner import catalog
from tuner.db.store import Store
from tuner.errors import UsageError
from tuner.kernels.spec import Config
from tuner.measure.card import CardMonitor, NoMonitor
from tuner.measure.processes import Child
from tuner.records import Environment, Outcome
from tuner.retuning.compared import Change, Compared, environments_text
from tuner.retuning.environments import Subject, compare_environments, in_turns
from tuner.retuning.other_environment import OtherEnvironment, other_environment
from tuner.suites.suite import Entry
from tuner.tuning.events import Events
from tuner.tuning.gpu import MeasureOptions
from tuner.version import __version__

SUBJECT = Subject(Entry("toy", TOY, TOY.problem({"N": 64})), 7, BEST)


def slower(factor: float, *configs: Config) -> Callable[[Config], float]:
    """Return the latencies of the toy, which these configs, or all without any, exceed by a factor."""
    return lambda config: bowl(config) * (factor if config in configs or not configs else 1)


def compared(there: ScriptedMeasurer, monitor: CardMonitor | None = None) -> Compared:
    here = ScriptedMeasurer(noise=0.01, seed=1)
    found = in_turns(SUBJECT, [BEST, DEFAULT], (here, there), monitor or NoMonitor(), lambda: False)
    assert found is not None
    return found


def test_the_same_latencies_are_no_change() -> None:
    changes = {compared(ScriptedMeasurer(noise=0.01, seed=seed)).change for seed in range(2, 12)}
    assert changes == {Change.SAME}


@pytest.mark.parametrize(("factor", "change"), [(1.05, Change.SLOWER), (0.95, Change.FASTER)])
def test_a_difference_beyond_the_noise_is_named_with_its_ratio(factor: float, change: Change) -> None:
    found = compared(ScriptedMeasurer(slower(factor), noise=0.01, seed=2, vendor_us=120))
    assert found.change is change
    assert found.ratio == pytest.approx(factor, abs=0.01)
    assert found.interval is not None
    assert found.interval[0] < factor < found.interval[1]
    assert found.there is not None
    assert found.there.vendor_us == pytest.approx(120, rel=0.02)
    assert found.as_json()["change"] == str(change)


def test_a_config_that_is_ahead_in_the_other_environment_only_is_named() -> None:
    found = compared(ScriptedMeasurer(slower(3, BEST), noise=0.01, seed=2))
    assert found.change is Change.SLOWER
    assert found.there is not None
    assert found.there.ahead == DEFAULT
    assert found.here is not None
    assert found.here.ahead is None
    assert DEFAULT.text in found.text


def test_a_config_that_fails_in_the_other_environment_is_broken() -> None:
    found = compared(ScriptedMeasurer(outcome=only(BEST, Outcome.COMPILE_ERROR)))
    assert found.change is Change.BROKEN
    assert found.text.startswith("compile_error")


def test_a_config_that_fails_in_the_rounds_of_the_other_environment_is_broken() -> None:
    assert compared(ScriptedMeasurer(noise=0.01, fails_in_comparison=[BEST])).change is Change.BROKEN


def test_a_default_that_fails_in_the_rounds_of_the_other_environment_is_left_out() -> None:
    found = compared(ScriptedMeasurer(slower(1.05), noise=0.01, seed=2, fails_in_comparison=[DEFAULT]))
    assert found.change is Change.SLOWER


def test_a_default_that_fails_in_the_other_environment_is_left_out() -> None:
    assert compared(ScriptedMeasurer(noise=0.01, outcome=only(DEFAULT, Outcome.CRASHED))).change is Change.SAME


def test_turns_during_which_others_use_the_card_are_repeated() -> None:
    here, there = (ScriptedMeasurer(noise=0.01, seed=seed) for seed in (1, 2))
    found = in_turns(SUBJECT, [BEST, DEFAULT], (here, there), Busy(3), lambda: False)
    assert found is not None
    assert found.change is Change.SAME


@pytest.mark.parametrize(("is_shared", "change"), [(False, Change.NOT_MEASURED), (True, Change.SAME)])
def test_a_card_that_others_keep_using_decides_nothing_unless_it_is_shared(is_shared: bool, change: Change) -> None:
    here, there = (ScriptedMeasurer(noise=0.01, seed=seed) for seed in (1, 2))
    found = in_turns(SUBJECT, [BEST, DEFAULT], (here, there), Busy(999), lambda: False, is_shared=is_shared)
    assert found is not None
    assert found.change is change
    assert ("other processes used the card" in found.text) is not is_shared


def test_only_versions_that_differ_are_named() -> None:
    here, there = Environment("3.6.0", "12.8", "2.11.0", "580"), Environment("3.7.1", "12.8", "2.11.0", "580")
    assert environments_text(here, there) == "Triton 3.6.0 and 3.7.1"
    assert environments_text(here, here) == ""


def interpreter(folder: Path, lines: str) -> str:
    """Return an executable that runs this interpreter after some lines of shell."""
    file = folder / "python"
    file.write_text(f'#!/bin/sh\n{lines}\nexec {sys.executable} "$@"\n')
    file.chmod(0o755)
    return str(file)


def test_the_other_interpreter_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine(tmp_path, monkeypatch)
    monkeypatch.setattr(
        "tuner.measure.worker_pool.start_worker",
        lambda gpu, module="", python=None, *, watches=True: Child("stated_worker", python=python),
    )
    other = other_environment(interpreter(tmp_path, "export STATED_FACTOR=1.2"), [toy("on_torch")])
    kernel = catalog.resolve(toy("on_torch"))
    assert other.sources == {toy("on_torch"): kernel.source}
    config = kernel.signature.config({"BLOCK": 128, "FAULT": "none", "num_warps": 4, "num_stages": 1})
    subject = Subject(Entry(toy("on_torch"), kernel.signature, kernel.signature.problem({"N": 4096})), 1, config)
    store = Store.open(machine.db)
    (found,) = compare_environments([subject], other, store, 0, MeasureOptions(), Events())
    assert found.change is Change.SLOWER, found.text
    assert found.ratio == pytest.approx(1.2, rel=0.01)
    renamed = OtherEnvironment(other.python, other.environment, {toy("on_torch"): "another"})
    (found,) = compare_environments([subject], renamed, store, 0, MeasureOptions(), Events())
    assert (found.change, found.text) == (Change.NOT_MEASURED, "the kernel's source there is another one")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("exit 3", "exit code 3; .*pip install"),
        ("exit 0", "exit code 0; .*pip install"),
        ("echo 5; exit 0", "exit code 0; .*pip install"),
        ("echo 'No module named tuner' >&2; exit 1", "No module named tuner; .*pip install"),
        (
            """echo '{"version": "0.0.1", "environment": {"triton": "3.7.1"}, "sources": {}}'; exit""",
            f"has triton-tuner 0.0.1, and this is {__version__}",
        ),
        (
            f"""echo '{{"version": "{__version__}", "environment": {{"triton": ""}}, "sources": {{}}}}'; exit""",
            "has no Triton",
        ),
    ],
)
def test_an_interpreter_that_cannot_serve_is_refused(tmp_path: Path, lines: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        other_environment(interpreter(tmp_path, lines), [])


def test_a_path_that_is_no_interpreter_is_refused() -> None:
    with pytest.raises(UsageError, match="does not run"):
        other_environment(os.devnull, [])
