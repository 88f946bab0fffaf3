"""`tuner` as a process, for tests that start hundreds: forks of one that has loaded what commands load.

A new Python would load it again every time, which takes longer than most commands. A fork gets what a started process
gets: arguments, environment, folder and files for its output. It returns its exit code. Other tests start `tuner` with
`subprocess` and prove that it needs none of this.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

LATE = ("alembic.command", "fastapi", "numpy.random", "sqlalchemy.dialects.sqlite")
"""Modules that commands import late, besides their own."""
LIMIT_S = 120
"""Time limit of a command, in seconds."""


def run_tuner(
    *arguments: str, environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command with `environment` added to this process's."""
    with tempfile.TemporaryDirectory() as scratch:
        outputs = [f"{scratch}/stdout", f"{scratch}/stderr"]
        request = {
            "arguments": arguments,
            "environment": {**os.environ, "COLUMNS": "120", **(environment or {})},
            "folder": str(folder or Path.cwd()),
            "outputs": outputs,
        }
        code = _ask(request)
        stdout, stderr = (Path(output).read_text() for output in outputs)
    assert "Traceback" not in stderr, stderr
    return subprocess.CompletedProcess(arguments, code, stdout, stderr)


def _ask(request: dict[str, Any]) -> int:
    forking = _forking()
    assert forking.stdin is not None
    assert forking.stdout is not None
    forking.stdin.write(json.dumps(request) + "\n")
    forking.stdin.flush()
    return int(forking.stdout.readline())


@cache
def _forking() -> subprocess.Popen[str]:
    """Return the process that is forked, one for each test process."""
    started = subprocess.Popen(
        [sys.executable, "-P", __file__],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},  # threads would not survive a fork
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(started.communicate)  # it ends with this process
    return started


def serve() -> None:
    """Run the commands that are read from stdin, one a line; write their exit codes to stdout."""
    load()
    gc.freeze()  # else the first collection in a fork copies every page that they share
    for line in sys.stdin:
        child = os.fork()
        if not child:
            become(json.loads(line))
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


def load() -> None:
    """Import what commands import, and read the recorded spaces."""
    import click

    from tuner import catalog
    from tuner.cli import cli
    from tuner.recorded import shipped

    with click.Context(cli) as context:
        for name in cli.list_commands(context):
            cli.get_command(context, name)
    for op in catalog.names():
        catalog.load(op)
    for name in LATE:
        import_module(name)
    shipped.loads = cache(shipped.loads)  # type: ignore[attr-defined]  # by content
    for name in shipped.names():
        shipped.load(name)


def become(request: dict[str, Any]) -> NoReturn:
    """Turn this process into the command. It ends without clean-up, which takes longer than most commands."""
    from tuner.cli import main

    signal.alarm(LIMIT_S)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for descriptor, file in enumerate((os.devnull, *request["outputs"])):
        opened = os.open(file, os.O_RDWR | os.O_CREAT)
        os.dup2(opened, descriptor)
        os.close(opened)
    sys.argv = ["tuner", *request["arguments"]]
    code = 1
    try:
        main()
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:  # noqa: BLE001  as at the end of any process
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    serve()
