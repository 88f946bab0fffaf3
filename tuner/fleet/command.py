"""The command of a task, run as a process where the scheduler has placed it.

`python -m tuner.fleet.command` runs the task in the variable `TUNER_TASK`, for schedulers that start processes. Its
stderr is that of the command, and its stdout the `Ended` as one line of JSON.
"""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from socket import gethostname
from tempfile import TemporaryFile
from threading import Thread
from time import monotonic
from typing import IO, Any

from tuner.errors import Interrupted, UsageError
from tuner.fleet.task import Ended, Task
from tuner.measure.processes import die_with
from tuner.version import __version__

TASK_VARIABLE = "TUNER_TASK"
"""Environment variable with the task as JSON, for `python -m tuner.fleet.command`."""
_SAID = "tuner: "
"""Start of the line in which the command line states an error."""


@dataclass(frozen=True)
class CommandSettings:
    """Waiting for a command."""

    poll_s: float = 0.5
    """Seconds between two looks at the stop token."""
    grace_s: float = 10.0
    """Seconds that a stopped command has to end by itself, before it is killed."""
    error_length: int = 2000
    """Characters of its error that are kept."""


def run(
    task: Task,
    stop: Callable[[], bool] = lambda: False,
    *,
    where: str = "",
    logs: bool = True,
    settings: CommandSettings = CommandSettings(),
) -> Ended:
    """Run the command of a task in a process group of its own, and return its end.

    The process dies with the calling thread, and is killed if this function is left by an exception, such as that of a
    signal. Nothing here prints the environment of the task.

    Args:
        stop: interrupts the command if it returns True, so that it keeps its trials.
        where: name of the place; empty for that of the host.
        logs: whether to pass on what the command writes to stderr, for the scheduler's log.
    """
    where, started = where or gethostname(), monotonic()
    if task.version != __version__:
        error = f"{where} has tuner {__version__}, and the fleet has {task.version}; install one version everywhere"
        return Ended(task, UsageError.exit_code, where, error=error)
    with TemporaryFile("w+", errors="replace") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tuner.fleet.command", str(os.getpid()), *task.words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.PIPE,
            env=os.environ | dict(task.environment),
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            assert process.stderr is not None
            errors = _Errors(process.stderr, logs)
            code = _wait(process, stop, settings)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        output.seek(0)
        error = errors.last()[: settings.error_length] if code else ""
        return Ended(task, code, where, _parsed(output.read()), error, monotonic() - started)


def _wait(process: subprocess.Popen[str], stop: Callable[[], bool], settings: CommandSettings) -> int:
    """Return the exit code of a process; that of an interrupted command if `stop` is set before it ends."""
    while True:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(settings.poll_s)
        if stop():
            break
    process.send_signal(signal.SIGINT)
    with suppress(subprocess.TimeoutExpired):
        process.wait(settings.grace_s)
    return Interrupted.exit_code


class _Errors:
    """The standard error of a command: passed on line by line, and its last statement."""

    def __init__(self, stream: IO[str], logs: bool) -> None:
        self._last, self._logs = "", logs
        self._thread = Thread(target=self._read, args=[stream], daemon=True)
        self._thread.start()

    def _read(self, stream: IO[str]) -> None:
        with stream:
            for line in stream:
                if self._logs:
                    sys.stderr.write(line)
                if line.startswith(_SAID) or (line.strip() and not self._last.startswith(_SAID)):
                    self._last = line.strip()

    def last(self) -> str:
        """Return the error that the command states, without `tuner: `, or else its last line."""
        self._thread.join(1.0)  # a process that the command left behind may hold the pipe open
        return self._last.removeprefix(_SAID)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def main() -> int:
    """Run the task in the environment; with a process id and words, become the command, which dies with its parent."""
    if len(sys.argv) > 1:
        parent, *words = sys.argv[1:]
        die_with(int(parent))
        sys.argv = ["tuner", *words]
        runpy.run_module("tuner", run_name="__main__", alter_sys=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    ended = run(Task.from_text(os.environ.pop(TASK_VARIABLE)))
    sys.stdout.write(f"{ended.as_text()}\n")
    return 1 if ended.code is None else ended.code


if __name__ == "__main__":
    sys.exit(main())
