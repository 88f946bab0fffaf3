"""A search in which nothing works prints the first failing config with Python's own text, in every command."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from helpers import H200, toy
from machines import Machine

from tuner import catalog
from tuner.cli import cli
from tuner.db.store import Store
from tuner.errors import NothingFound
from tuner.tuning import Events, tune

FAILS = re.compile(
    r"the first, BLOCK=\d+ FAULT=(\S+|\"[^\"]+\") num_stages=1 num_warps=\d+, fails in compile: KeyError: "
    r"\S+broken\.py line \d+: launch raises KeyError: 'TILE'"
)
COUNT = re.compile(r"no config ran with correct results: \d+ error \(KeyError\)")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_helpers: None) -> Machine:
    return Machine(tmp_path, monkeypatch)


@pytest.fixture
def broken(tmp_path: Path) -> str:
    """A kernel file whose every launch asks for a knob that it does not have."""
    file = tmp_path / "broken.py"
    source = Path(toy("on_torch")).read_text()
    file.write_text(source.replace('op="on_torch"', 'op="broken"').replace("dict(config)),)", 'config["TILE"]),)'))
    return str(file)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, standalone_mode=False)


def said(done: Result) -> str:
    """Return the output with the error's text, as the command line prints it."""
    assert done.exception is None or isinstance(done.exception, NothingFound), repr(done.exception)
    return done.output + (f"tuner: {done.exception}" if done.exception else "")


@pytest.mark.parametrize(
    "command",
    [
        ("search", "--N", "4096", "--trials", "4"),
        ("search", "--N", "4096,64", "--trials", "4"),
        ("search", "--N", "4096,64", "--trials", "4", "--joint", "worst"),
        ("bench", "--N", "4096", "--search", "5s"),
        ("record", "--N", "4096"),
    ],
    ids=" ".join,
)
def test_each_command_that_searches(machine: Machine, broken: str, command: tuple[str, ...]) -> None:
    shown = said(run(command[0], broken, *command[1:]))
    assert COUNT.search(shown), shown
    assert FAILS.search(shown), shown
    assert "Traceback" not in shown


def test_a_job(machine: Machine, broken: str) -> None:
    signature = catalog.resolve(broken).signature
    with closing(Store.open(machine.db)) as store:
        store.queue.add(signature.problem({"N": 4096}), H200.id)
        done = run("work", broken, "--once", "--trials", "4")
        assert done.return_value == 1, done.exception
        assert COUNT.search(done.stdout)
        assert FAILS.search(done.stdout)
        assert len(done.stdout.splitlines()) == 1
        assert FAILS.search(store.queue.jobs(1)[0].error or "")


def test_the_call(machine: Machine, broken: str) -> None:
    with pytest.raises(NothingFound, match=FAILS):
        tune(broken, {"N": 4096}, store=machine.db, trials=4, on_event=Events())
