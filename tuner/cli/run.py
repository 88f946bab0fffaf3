"""`tuner run`: an unchanged Python script, with stored configs for its autotuned kernels.

The process is replaced by `python SCRIPT ARGS` with another folder first on PYTHONPATH. The `sitecustomize` of that
folder installs the tuner, in the process and in its child processes.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path

import click

from tuner.cli.ops import open_to_read
from tuner.cli.text import say
from tuner.client import run_report
from tuner.db.store import database_at, default_database
from tuner.errors import UsageError

_STARTED = Path(__file__).parent / "started"
"""Folder of the `sitecustomize`."""
_MODES = ("serve", "capture", "tune")
_OTHER_SOURCES = ("TUNER_SNAPSHOT", "TUNER_URL")
"""Variables that would be read before the database that --db names."""


def _run(
    script: str, arguments: tuple[str, ...], is_module: bool, mode: str | None, db: str | None, quiet: bool
) -> None:
    if is_module:
        _check_module(script)
    else:
        _check_script(script)
    environment = _environment(mode, db)
    if find_spec("triton") is not None:
        environment |= _for_children(db, quiet)
    elif not quiet:
        say(f"triton is not installed in {sys.prefix}, so no kernel is served; the script runs without the tuner")
    command = [sys.executable, *(("-m",) if is_module else ()), script, *arguments]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(sys.executable, command, environment)
    except OSError as error:
        raise UsageError(f"{sys.executable} cannot be started: {error.strerror}") from error


def _environment(mode: str | None, db: str | None) -> dict[str, str]:
    """Return the environment of the script: that of this process, with the options as variables."""
    environment = dict(os.environ)
    if mode is not None:
        environment["TUNER_AUTOTUNE"] = mode
    if db is None:
        return environment
    database = database_at(db)
    if environment.get("TUNER_AUTOTUNE", _MODES[0]) == _MODES[0]:
        open_to_read(database).close()  # a misspelt name is an error here, not an empty database
    environment["TUNER_DB"] = db if "://" in db else str(Path(db).absolute())
    return {name: value for name, value in environment.items() if name not in _OTHER_SOURCES}


def _for_children(db: str | None, quiet: bool) -> dict[str, str]:
    """Return the variables that `sitecustomize` reads, in the process that this one becomes and in its children."""
    earlier = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    path = os.pathsep.join([str(_STARTED), *(entry for entry in earlier if entry != str(_STARTED))])
    variables = {"TUNER_RUN": str(os.getpid()), "PYTHONPATH": path, run_report.VARIABLE: ""}
    if not quiet:
        number, name = tempfile.mkstemp(prefix="tuner-run-")
        os.close(number)
        database = database_at(Path(db).absolute() if "://" not in db else db) if db else default_database()
        run_report.begin(Path(name), str(database), is_option=db is not None)
        variables[run_report.VARIABLE] = name
    return variables


def _check_script(script: str) -> None:
    if Path(script).exists():
        return
    way_out = "tuner run -m MODULE runs a module"
    command = shutil.which(script)
    if command is not None and _is_python(Path(command)):
        way_out = f"for the command of that name: tuner run {command}"
    raise UsageError(f"SCRIPT is a Python file, and there is no {script[:200]!r}; {way_out}")


def _is_python(file: Path) -> bool:
    """Return whether the file is a Python script, as the commands of packages are."""
    try:
        with file.open("rb") as opened:
            first = opened.readline(200)
    except OSError:
        return False
    return first.startswith(b"#!") and b"python" in first


def _check_module(module: str) -> None:
    """Check that the module's package can be found. Python looks for its submodules, since that imports the package.

    Raises:
        UsageError: it cannot be found.
    """
    package = module.partition(".")[0]
    try:
        found = PathFinder.find_spec(package, [os.getcwd()]) or find_spec(package)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise UsageError(
            f"-m names a module that {sys.executable} can import, and there is no {module[:200]!r}; "
            "install it there, or run it from its folder"
        )


command = click.Command(
    "run",
    callback=_run,
    context_settings={"allow_interspersed_args": False, "ignore_unknown_options": False},
    options_metavar="[OPTIONS] [-m]",
    params=[
        click.Argument(["script"], metavar="SCRIPT|MODULE"),
        click.Argument(["arguments"], metavar="[ARGS]...", nargs=-1, type=click.UNPROCESSED),
        click.Option(["-m", "is_module"], is_flag=True, help="Run a module, as python -m does."),
        click.Option(
            ["--mode"],
            type=click.Choice(_MODES),
            help="serve: stored answers. capture: also store each call without an answer, for tuner search --captured. "
            "tune: search for each call without an answer now.  [default: TUNER_AUTOTUNE, else serve]",
        ),
        click.Option(
            ["--db"],
            metavar="FILE|URL",
            help="The database, in place of the source that TUNER_SNAPSHOT, TUNER_URL or TUNER_DB names.",
        ),
        click.Option(["--quiet"], is_flag=True, help="Print no summary at the end."),
    ],
    help="Run a Python script unchanged, with stored configs for its kernels under triton.autotune and those of\n"
    "libraries, in child processes too.\n\n"
    "Options go before SCRIPT; what follows it belongs to the script.",
)
