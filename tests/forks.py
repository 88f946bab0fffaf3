"""Worker and compile processes as forks, for tests that start dozens of them.

A new Python imports torch or Triton again for each process, which takes longer than its work. A fork of one that has
imported them gets all that a started process gets: arguments, environment, folder, pipe and file for its output. It
leads its own process group and can be killed. Other tests start these processes with `subprocess`, and prove that they
need none of this.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryFile
from threading import Lock
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any, NoReturn, Self

import pytest

POLLING_S = 0.002
"""Polling interval of waiting for a fork's end, in seconds."""


@pytest.fixture
def forked_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the worker and compile processes of this test as forks."""
    from tuner.measure import processes

    names = {"DEVNULL": subprocess.DEVNULL, "TimeoutExpired": subprocess.TimeoutExpired}
    monkeypatch.setattr(processes, "subprocess", SimpleNamespace(Popen=Fork.started, **names))


def printed(code: str) -> str:
    """Return what Python code prints in a fork of a process that has imported Triton, without its interpreter."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    with TemporaryFile("w+") as out, TemporaryFile("w+") as errors:
        fork = Fork("tuner.measure.compile", {"code": code}, environment, [out.fileno(), errors.fileno()])
        status = fork.wait()
        out.seek(0), errors.seek(0)
        assert status == 0, errors.read()
        return out.read()


class Fork:
    """A running fork of a process that has imported a module, with the part of `subprocess.Popen` that is used.

    Args:
        request: `module` and its `pipe`, or `code`, which it runs as its main program.
        descriptors: files for its stdout and stderr, then the pipe.
    """

    def __init__(
        self, module: str, request: Mapping[str, object], environment: Mapping[str, str], descriptors: Sequence[int]
    ) -> None:
        self._forking = _forking(module, environment.get("TRITON_INTERPRET", ""))
        asked = {**request, "environment": dict(environment), "folder": str(Path.cwd())}
        self.pid = self._forking.ask(asked, descriptors)
        self._code: int | None = None

    @classmethod
    def started(
        cls,
        arguments: Sequence[str],
        *,
        pass_fds: Sequence[int],
        stdout: Any,
        env: Mapping[str, str],
        **others: object,
    ) -> Self:
        """Return a fork by the arguments with which a process is started."""
        module, log = arguments[arguments.index("-m") + 1], stdout.fileno()
        return cls(module, {"module": module}, env, [log, log, *pass_fds])

    def poll(self) -> int | None:
        if self._code is None:
            self._code = self._forking.ask(self.pid)
        return self._code

    def wait(self, timeout: float | None = None) -> int:
        until = None if timeout is None else monotonic() + timeout
        while (code := self.poll()) is None:
            if until is not None and monotonic() > until:
                raise subprocess.TimeoutExpired(f"fork {self.pid}", timeout or 0.0)
            sleep(POLLING_S)
        return code


class Forking:
    """The process that is forked: it has imported a module, and is asked for forks and their exit codes."""

    def __init__(self, module: str, interpret: str) -> None:
        self._ours, theirs = socket.socketpair()
        self._turn = Lock()
        reached = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(reached), "TRITON_INTERPRET": interpret}
        if not interpret:
            del environment["TRITON_INTERPRET"]
        self._process = subprocess.Popen(
            [sys.executable, "-P", __file__, module, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment | {"OPENBLAS_NUM_THREADS": "1"},  # threads would not survive a fork
        )
        theirs.close()

    def ask(self, request: object, descriptors: Sequence[int] = ()) -> Any:
        """Return the id of a new fork, or the exit code of one whose id is asked for, None while it runs."""
        with self._turn:
            text = json.dumps(request).encode()
            self._ours.sendall(len(text).to_bytes(4))
            socket.send_fds(self._ours, [text[:1]], descriptors)
            self._ours.sendall(text[1:])
            return json.loads(self._ours.recv(64))

    def end(self) -> None:
        """End the process with its forks."""
        self._ours.close()
        self._process.wait()


@cache
def _forking(module: str, interpret: str) -> Forking:
    """Return the process that is forked for a module, one for each test process."""
    made = Forking(module, interpret)
    atexit.register(made.end)
    return made


def serve(module: str, asked: socket.socket) -> None:
    """Fork, and report exit codes, until the test process ends."""
    _load(module)
    gc.freeze()  # else the first collection in a fork copies every page that they share
    codes: dict[int, int] = {}
    while length := asked.recv(4, socket.MSG_WAITALL):
        first, descriptors, *_ = socket.recv_fds(asked, 1, 8)
        text = first + asked.recv(int.from_bytes(length) - 1, socket.MSG_WAITALL)
        request, answer = json.loads(text), None
        if isinstance(request, dict):
            answer = os.fork()
            if answer == 0:
                asked.close()
                become(request, *descriptors)
            codes.pop(answer, None)  # of an earlier fork with the same id
            for descriptor in descriptors:
                os.close(descriptor)
        else:
            if request not in codes:
                ended, status = os.waitpid(request, os.WNOHANG)
                if ended:
                    codes[ended] = os.waitstatus_to_exitcode(status)
            answer = codes.get(request)
        asked.sendall(json.dumps(answer).encode())


def _load(module: str) -> None:
    """Import a process's module and what it imports late."""
    import_module(module)
    import triton.language  # noqa: F401

    if module == "tuner.measure.compile":
        from tuner.measure.compile import _do_once

        _do_once()


def become(request: dict[str, Any], out: int, errors: int, *pipe: int) -> NoReturn:
    """Turn this process into the started one."""
    parent = os.getppid()  # this process ends with the one that it was forked from
    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, opened in enumerate((nothing, out, errors)):
        os.dup2(opened, descriptor)
    sys.path[:0] = [
        path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path and path not in sys.path
    ]
    code = 1
    try:
        if program := request.get("code"):
            exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
        else:
            module = request["module"]
            sys.argv = [module, *map(str, pipe), str(parent)]
            sys.modules.pop(module)  # it runs under the name __main__
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:  # noqa: BLE001  as at the end of any process
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
