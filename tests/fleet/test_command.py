"""The command of a task: its end is plain data, and no process is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest
from helpers import alive, until

from tuner.fleet.command import TASK_VARIABLE, CommandSettings, run
from tuner.fleet.scheduler import Wanted, parse
from tuner.fleet.task import Ended, Task
from tuner.tuning.events import StopToken
from tuner.version import __version__

FAST = CommandSettings(poll_s=0.05)


def worker(folder: Path) -> Task:
    """Return a task that goes on until it is stopped."""
    words = ("work", "--replay", "auto", "--poll", "600s")
    return Task("work", words, {"TUNER_DB": str(folder / "tuner.db")})


def children(pid: int) -> list[int]:
    """Return the commands that a process has started."""
    found = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and f"\nPPid:\t{pid}\n" in (folder / "status").read_text():
                found += [int(folder.name)] if b"tuner.fleet.command" in (folder / "cmdline").read_bytes() else []
        except OSError:
            continue
    return found


def works(pid: int) -> bool:
    """Return whether a command has its database open. Python may lose a signal that comes while it starts."""
    with suppress(OSError):
        return any(file.readlink().name == "tuner.db" for file in Path(f"/proc/{pid}/fd").iterdir())
    return False


def test_the_document_of_a_command_is_its_output(
    migrated: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ended = run(Task("list", ("list", "--json"), {"TUNER_DB": str(migrated)}), where="node-1")
    assert (ended.code, ended.where, ended.error, ended.output) == (0, "node-1", "", [])
    missing = run(Task("list", ("list", "--json"), {"TUNER_DB": f"{tmp_path}/none.db"}))
    assert (missing.code, missing.output) == (5, None)
    assert missing.error.startswith("there is no database at")
    assert capfd.readouterr().err.startswith("tuner: there is no database at")  # for the log of the scheduler


def test_output_that_is_not_utf_8_is_no_document_and_a_long_error_is_cut(tmp_path: Path) -> None:
    code = r"import os; os.write(1, b'\xe9'); os.write(2, b'\xe9' * 9999); os._exit(3)"
    (tmp_path / "latin.py").write_text(code)
    ended = run(Task("latin", ("search", str(tmp_path / "latin.py"))), logs=False)
    assert (ended.code, ended.output, ended.error) == (3, None, "\N{REPLACEMENT CHARACTER}" * 2000)


def test_another_version_is_refused() -> None:
    ended = run(Task("gemm", ("search", "gemm"), version="0.0.1"), where="node-1")
    assert ended.code == 2
    assert ended.error == f"node-1 has tuner {__version__}, and the fleet has 0.0.1; install one version everywhere"


def test_a_program_prints_the_end_of_its_task(tmp_path: Path) -> None:
    task = Task("list", ("list", "--json"), {"TUNER_DB": f"{tmp_path}/none.db"})
    program = [sys.executable, "-P", "-m", "tuner.fleet.command"]
    done = subprocess.run(program, env=os.environ | {TASK_VARIABLE: task.as_text()}, capture_output=True, text=True)
    assert done.returncode == 5
    assert Ended.from_text(done.stdout, task).code == 5
    assert "there is no database" in done.stderr


def test_a_command_that_is_stopped_ends(tmp_path: Path) -> None:
    ended = run(worker(tmp_path), lambda: any(map(works, children(os.getpid()))), settings=FAST)
    assert ended.code == 130
    assert not children(os.getpid())


def test_a_command_dies_with_its_place(tmp_path: Path) -> None:
    code = "import sys; from tuner.fleet import command, task; command.run(task.Task.from_text(sys.argv[1]))"
    place = subprocess.Popen([sys.executable, "-P", "-c", code, worker(tmp_path).as_text()])
    until(lambda: bool(children(place.pid)))
    (command,) = children(place.pid)
    place.kill()
    place.wait()
    until(lambda: not alive(command))


def test_a_local_process_that_is_killed_runs_again(tmp_path: Path) -> None:
    stop, seen, killed = StopToken(), list[int](), Event()

    def watch(under_way: Mapping[str, str]) -> None:
        assert set(under_way.values()) <= {"process 0"}

    def kill_the_first() -> None:
        until(lambda: bool(children(os.getpid())))
        seen.extend(children(os.getpid()))
        os.kill(seen[0], signal.SIGKILL)
        until(lambda: any(map(works, {*children(os.getpid())} - {*seen})))
        killed.set()
        stop.set()

    Thread(target=kill_the_first, daemon=True).start()
    with parse("local:1", Wanted(gpus=0)) as scheduler:
        ends = [*scheduler.submit_all([worker(tmp_path)], stop, watch)]
    assert killed.is_set()
    assert [ended.code for ended in ends] == [130]


def test_a_local_process_that_is_always_killed_is_given_up(tmp_path: Path) -> None:
    def kill_all() -> Iterator[None]:
        while True:
            for pid in children(os.getpid()):
                os.kill(pid, signal.SIGKILL)
            yield

    killing = kill_all()
    done = Event()
    Thread(target=lambda: [next(killing) for _ in iter(done.is_set, True)], daemon=True).start()
    with parse("local:1", Wanted(gpus=0)) as scheduler:
        (ended,) = scheduler.submit_all([worker(tmp_path)], StopToken(), lambda under_way: None)
    done.set()
    assert (ended.code, ended.error) == (None, "killed by SIGKILL in each of 3 tries")
    assert json.loads(ended.as_text())["where"] == "process 0"
