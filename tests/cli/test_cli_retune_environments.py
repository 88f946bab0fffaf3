"""`tuner retune --compare-environments`: stored answers here and in another interpreter, as with a GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers import H200
from machines import Machine
from served import GEMM, answer, problem

from tuner.cli import cli
from tuner.db.store import Store
from tuner.errors import CHANGED, NoDevice, UsageError
from tuner.measure.processes import Child
from tuner.records import Environment
from tuner.retuning.compared import Change, Compared, Side
from tuner.retuning.other_environment import OtherEnvironment


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path, monkeypatch)
    Store.open(machine.db).close()
    return machine


def test_an_environment_in_which_answers_are_slower_is_named(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Launches take 150 us times `STATED_FACTOR`, which the other interpreter sets."""
    monkeypatch.setattr(
        "tuner.measure.worker_pool.start_worker",
        lambda gpu, module="", python=None, *, watches=True: Child("stated_worker", python=python),
    )
    assert machine("search", "--trials", "2").return_value == 0
    before = Store.open(machine.db).snapshot
    other = tmp_path / "other-python"
    other.write_text(f'#!/bin/sh\nexport STATED_FACTOR=1.1\nexec {sys.executable} "$@"\n')
    other.chmod(0o755)
    done = machine("retune", "--compare-environments", str(other), "--json")
    assert done.return_value == CHANGED, (done.stderr, done.exception)
    document = json.loads(done.stdout)
    (row,) = document["rows"]
    assert row["change"] == "slower"
    assert row["ratio"] == pytest.approx(1.1, rel=0.01)
    assert document["here"]["triton"] == "3.7.1"
    assert "other-python" in done.stderr
    assert Store.open(machine.db).snapshot == before


def test_what_was_found_is_a_table(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The measuring is replaced by its results."""
    store = Store.open(machine.db)
    answer(store, problem(M=64))
    store.close()
    config, side = GEMM.default_config(problem(M=64), H200.limits), Side(10.0, (9.9, 10.1), 11.0)
    same = Compared(problem(M=64), 1, config, Change.SAME, "", side, side, 1.001, (0.999, 1.003))
    broken = Compared(problem(M=16), 2, config, Change.BROKEN, "compile_error: no")
    other = OtherEnvironment("/other/python", Environment("3.9.0"), {})
    monkeypatch.setattr("tuner.cli.retune_environments.other_environment", lambda python, references: other)
    for found, code in (((same, broken), CHANGED), ((same,), 0)):
        monkeypatch.setattr("tuner.cli.retune_environments.compare_environments", lambda *given, found=found: found)
        command = ["retune", "gemm", "--compare-environments", "/other/python"]
        done = CliRunner().invoke(cli, command, standalone_mode=False)
        assert done.return_value == code, (done.stderr, done.exception)
        rows = [line for line in done.stdout.splitlines() if " same " in line or " broken " in line]
        assert "1.001 (0.999 - 1.003)" in rows[-1]
        assert ("compile_error: no" in done.stdout) == (broken in found)
        assert ", ".join(f"1 {each.change}" for each in found) in done.stdout
        assert "Triton 3.7.1 and 3.9.0" in done.stderr


@pytest.mark.parametrize(
    ("option", "rule"),
    [
        (("--replay", "auto"), "environments are compared on a GPU, and --replay uses none"),
        (("--on", "local"), "--compare-environments measures on this machine, and --on on others"),
        (("--report", "out"), "--report writes a retune, and --compare-environments stores none"),
    ],
)
def test_what_it_cannot_do_is_refused(option: tuple[str, str], rule: str, machine: Machine) -> None:
    done = machine("retune", "--compare-environments", sys.executable, *option)
    assert isinstance(done.exception, UsageError)
    assert rule in str(done.exception)


def test_without_a_card_no_way_out_is_named_that_it_refuses(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.measure.device.count", lambda: 0)
    failed = machine("retune", "--compare-environments", sys.executable)
    assert isinstance(failed.exception, NoDevice)
    assert "environments are compared on a GPU, and there is no GPU here; run it" in str(failed.exception)
