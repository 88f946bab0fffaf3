"""Ctrl-C while a database is made: it ends the process, wherever it arrives, and the next one makes the database."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from time import sleep

import pytest

from tuner.db.store import Store

IN_A_CALLBACK = """
import signal, sys, weakref
from pathlib import Path

class Freed:
    pass

def interrupt():
    freed = Freed()
    reference = weakref.ref(freed, lambda _: signal.raise_signal(signal.SIGINT))
    del freed
    print("came", flush=True)

def profile(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "run_migrations":
        sys.setprofile(None)
        interrupt()
"""
OPENED = """
from tuner.db.store import Store
sys.setprofile(profile)
try:
    Store.open(Path(sys.argv[1])).close()
    print("opened")
except KeyboardInterrupt:
    print("interrupted")
"""
COMMAND = """
from tuner.cli import main
import tuner.db.store
sys.setprofile(profile)
main()
"""
NO_DATABASE = """
import time
from tuner.cli import cli, main

@cli.command("db")
def slow():
    interrupt()
    time.sleep(60)

cli.get_command = lambda ctx, name: slow
main()
"""


@pytest.fixture(autouse=True)
def heeded() -> Iterator[None]:
    """A process that a script starts with `&` ignores the signal, and so do its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def python(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-c", code, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def is_whole(file: Path) -> bool:
    """Return whether the database can be opened to be written, and has no part of a migration."""
    with closing(Store.open(file)) as store:
        return store.answers() == []


def test_it_is_raised_after_code_that_cannot_raise(tmp_path: Path) -> None:
    done = python(IN_A_CALLBACK + OPENED, str(tmp_path / "tuner.db"))
    assert (done.stdout, done.stderr) == ("came\ninterrupted\n", "")
    assert is_whole(tmp_path / "tuner.db")


def test_a_command_ends_with_its_code(tmp_path: Path) -> None:
    done = python(IN_A_CALLBACK + COMMAND, "db", "upgrade", "--db", str(tmp_path / "tuner.db"))
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "came\n", "")
    assert is_whole(tmp_path / "tuner.db")


def test_a_command_that_makes_none_gets_it_again() -> None:
    done = python(IN_A_CALLBACK + NO_DATABASE, "db")
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "came\n", "")


@pytest.mark.parametrize("delay_s", [0.0, 0.01, 0.02, 0.04, 0.08])
def test_whenever_it_comes_the_process_ends(tmp_path: Path, delay_s: float) -> None:
    code = "import sys, time\nfrom tuner.db.store import Store\nprint('ready', flush=True)\n"
    code += "Store.open(sys.argv[1]).close()\ntime.sleep(60)"
    with subprocess.Popen(
        [sys.executable, "-P", "-c", code, str(tmp_path / "tuner.db")], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"ready\n"
        sleep(delay_s)
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=30) == -signal.SIGINT
    assert is_whole(tmp_path / "tuner.db")


def test_one_that_waits_for_another_writer_ends_at_once(tmp_path: Path) -> None:
    file = tmp_path / "tuner.db"
    Store.open(file).close()
    code = "import sys\nfrom datetime import timedelta\nfrom tuner.db.store import Store\n"
    code += "store = Store.open(sys.argv[1])\nprint('ready', flush=True)\nstore.prune(timedelta(1))"
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with subprocess.Popen(
            [sys.executable, "-P", "-c", code, str(file)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            with pytest.raises(subprocess.TimeoutExpired):
                child.wait(timeout=1)
            child.send_signal(signal.SIGINT)
            assert child.wait(timeout=3) == -signal.SIGINT


AFTER_A_STATEMENT = """
import signal, sys
from pathlib import Path
from tuner.db.store import Store

def interrupted(file, statement):
    seen = 0
    def profile(frame, event, argument):
        nonlocal seen
        if event == "c_return" and argument.__name__ == "execute":
            seen += 1
            if seen == statement:
                sys.setprofile(None)
                signal.raise_signal(signal.SIGINT)
    sys.setprofile(profile)
    try:
        Store.open(file).close()
    except KeyboardInterrupt:
        return True
    finally:
        sys.setprofile(None)
    return False

for statement in range(1, 200, 3):
    file = Path(sys.argv[1], f"{statement}.db")
    if not interrupted(file, statement):
        print("ended after", statement)
        break
    Store.open(file).close()
"""


def test_after_each_statement_the_same_process_makes_it_again(tmp_path: Path) -> None:
    """As in a notebook: what was interrupted keeps no lock."""
    done = python(AFTER_A_STATEMENT, str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("ended after ")
    assert int(done.stdout.split()[-1]) > 40
