"""Helper processes: started as modules, with a pipe for messages, and ended with their parent.

They are started with `subprocess` and `-m`, not with `multiprocessing`, whose "spawn" runs the caller's main script
again. Compilers print on stdout and stderr, so neither carries messages. Both go to a file; its end is part of the
error message if the process dies.
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
"""Length of the quoted end of a dead process's output, in bytes."""
BUS_ID_VARIABLE = "TUNER_CARD"
"""Environment variable with the bus address of a GPU worker's card."""


def helper_environment() -> dict[str, str]:
    """Return the environment of a helper process.

    An interpreted kernel cannot be tuned, so that TRITON_INTERPRET is left out. So is TUNER_RUN: a helper launches its
    kernels as they are, under `tuner run` too.
    """
    return {name: value for name, value in os.environ.items() if name not in ("TRITON_INTERPRET", "TUNER_RUN")}


class Child:
    """A running helper process, with a pipe for messages.

    Args:
        module: run with `python -m`.
        environment: variables added to those of this process.
        python: interpreter that runs it, with this version of the tuner installed; None is that of this process.
    """

    def __init__(self, module: str, environment: dict[str, str] | None = None, python: str | None = None) -> None:
        self.pipe, theirs = Pipe()
        self._log = TemporaryFile()
        self._process = subprocess.Popen(
            [python or sys.executable, "-P", "-m", module, str(theirs.fileno()), str(os.getpid())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
            env=helper_environment() | (environment or {}),
            start_new_session=True,  # a Ctrl-C at the terminal is the caller's to handle
        )
        theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        """True until the process has ended."""
        return self._process.poll() is None

    @property
    def killed(self) -> bool:
        """True if it ended by SIGKILL or SIGTERM, which only other processes send."""
        return self._process.poll() in (-signal.SIGKILL, -signal.SIGTERM)

    def send(self, message: Any) -> None:
        """Send a message. A dead process shows in the next `receive`."""
        with suppress(BrokenPipeError, ConnectionResetError):
            self.pipe.send(message)

    def receive(self) -> Any:
        """Return the next message. Blocks.

        Raises:
            EOFError: the process has ended.
        """
        try:
            return self.pipe.recv()
        except ConnectionResetError as error:
            raise EOFError from error

    def exit_text(self) -> str:
        """Return how the process ended, and the end of its output."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(1)  # its pipe closes a moment before it ends
        code = self._process.poll()
        how = "" if code is None else f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        self._log.seek(0, os.SEEK_END)
        self._log.seek(max(0, self._log.tell() - _TAIL_BYTES))
        return f"{how}\n{self._log.read().decode(errors='replace').strip()}".strip()

    def end(self) -> None:
        """Send SIGKILL to the process and its group, without waiting for their end."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def kill(self, grace_s: float = 0.0) -> None:
        """End the process and its group, and wait for the process.

        Args:
            grace_s: time to end by itself, since its pipe is closed, in s.
        """
        self.pipe.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(grace_s)
        self.end()
        self._process.wait()
        self._log.close()


def connect() -> Connection[Any, Any]:
    """Return a helper's pipe to its parent. It is at its end once the parent has ended."""
    return Connection(int(sys.argv[1]))


def parent() -> int:
    """Return the id of the process that started this helper."""
    return int(sys.argv[2])


def die_with(parent: int) -> None:
    """Have the operating system kill this process when its parent ends (Linux). For processes too busy to notice."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent had ended before
            os._exit(1)
