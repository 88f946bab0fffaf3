"""Helper processes: started as modules, spoken to over a pipe of their own, gone when we are.

They are started with `subprocess` and `-m`, not with `multiprocessing`, whose "spawn" runs the caller's main script
again. CompilePool print on stdout and stderr, so neither carries messages; both go to a file whose end is quoted when
the process dies.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe
from tempfile import TemporaryFile
from typing import Any

_PR_SET_PDEATHSIG = 1
_TAIL_BYTES = 2000
CARD = "TUNER_CARD"
"""In a GPU worker's environment: the bus address of its card."""


class Child:
    """A running helper: send it values, receive values, wait on `pipe`."""

    def __init__(self, module: str, environment: dict[str, str] | None = None) -> None:
        self.pipe, theirs = Pipe()
        self._log = TemporaryFile()
        # An interpreted kernel cannot be tuned, whatever the caller's own process does.
        inherited = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=inherited | (environment or {}),
            start_new_session=True,  # a Ctrl-C at the terminal is the caller's to handle
        )
        theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it is still there."""
        return self._process.poll() is None

    @property
    def killed(self) -> bool:
        """Whether it ended by a signal that only others send."""
        return self._process.poll() in (-signal.SIGKILL, -signal.SIGTERM)

    def send(self, message: Any) -> None:
        """Sends a value; a dead child is noticed when it is next received from."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send(message)

    def receive(self) -> Any:
        """The next value.

        Raises:
            EOFError: the child is gone.
        """
        try:
            return self.pipe.recv()
        except ConnectionResetError as error:
            raise EOFError from error

    def exit_text(self) -> str:
        """How it ended, and the end of what it printed."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)  # its pipe closes a moment before it is gone
        code = self._process.poll()
        how = "" if code is None else f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - _TAIL_BYTES))
        return f"{how}\n{self._log.read().decode(errors='replace').strip()}".strip()

    def end(self) -> None:
        """Sends the child and everything in its group to their end, without waiting for it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self, grace_s: float = 0.0) -> None:
        """Ends the child and everything in its group; first it may notice by itself that its pipe is closed."""
        self.pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s)
        self.end()
        self._process.wait()
        self._log.close()


def connect() -> Connection[Any, Any]:
    """Called by a helper's main: the pipe to its parent, closed at the other end when that is gone."""
    return Connection(int(sys.argv[1]))


def parent() -> int:
    """The process that started this helper."""
    return int(sys.argv[2])


def die_with(parent: int) -> None:
    """Asks the kernel to kill this process when its parent is gone: for one that may be too busy to notice (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it went before we asked
            os._exit(1)
