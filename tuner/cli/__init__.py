"""The command line, `tuner`: a module for each command reads options, calls the application layer and prints."""

from __future__ import annotations

import os
import signal
import sys
from difflib import get_close_matches
from importlib import import_module
from threading import Timer

import click

from tuner.errors import Interrupted, TunerError, UsageError
from tuner.version import __version__

_COMMANDS = {
    "search": "Find the best config of a problem, or of several, and store it.",
    "best": "Show the stored best config of a problem.",
    "why": "Show the fields in which the stored answers differ from a query made here.",
    "explain": "Explain why the stored best config is the best.",
    "profile": "Profile one config: what limits it, and the knob that moves it.",
    "verify": "Measure a stored answer again, and report whether it still holds.",
    "retune": "Measure the stored answers of a card again, name what changed, and repair it.",
    "retunes": "Show the report of one retune, or list the newest.",
    "check": "Check a kernel file without a GPU.",
    "bench": "Compare answers with the default and the vendors, for one problem or a suite.",
    "list": "List the stored answers.",
    "captured": "List the captured calls of autotuned kernels.",
    "show": "Show one search, or list the newest.",
    "history": "Show all generations of the answer to a problem.",
    "rollback": "Serve an earlier answer to a problem again.",
    "pin": "Keep the answer that serves a problem until tuner unpin.",
    "unpin": "Let a pinned answer be replaced again.",
    "forget": "Retire stored answers by hand.",
    "serve": "Serve the stored answers over HTTP.",
    "report": "Write the pages of the service as files.",
    "export": "Write the stored answers to one file, for other machines.",
    "run": "Run a Python script with stored configs for its autotuned kernels.",
    "work": "Take jobs and tune them, one at a time on each GPU.",
    "jobs": "List the jobs and their status.",
    "warm": "Compile the answers of a card before a server needs them.",
    "db": "Describe, upgrade, back up or prune the database.",
    "import": "Import answers and configs of other tools and stores.",
    "replay": "Compare samplers on recorded spaces.",
    "spaces": "List the recorded spaces, or write them for other tools.",
    "record": "Measure every config of a problem, and write the recorded space to a file.",
}
"""Command names and their help texts, stated here so that `tuner --help` imports no command."""
_FILES = {"import": "import_"}
"""File names of commands that are Python keywords."""
_AGAIN_S = 0.02
"""Delay after which a lost Ctrl-C is sent again, in seconds."""
INTERRUPTED = Interrupted.exit_code
"""Exit code of an interrupted command."""


class _Commands(click.Group):
    """Imports the module of a command when it is called, so that `tuner best` does not import Optuna."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS]  # `list` is a command here

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        try:
            command = import_module(f"tuner.cli.{_FILES.get(name, name)}").command
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "tuner":
                raise
            raise UsageError(f"tuner {name} needs {error.name}; pip install 'triton-tuner[search]'") from error
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-") and (alike := get_close_matches(name, _COMMANDS)):
            ctx.fail(f"No such command {name!r}. Did you mean {' or '.join(map(repr, alike))}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([*_COMMANDS.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="triton-tuner", prog_name="tuner")
def cli() -> None:
    """Find the fastest launch configuration of a Triton kernel on your GPU, store it, and serve it.

    \b
    Exit codes: 0 ok, 1 no answer, or a check failed, 2 usage, 3 no device,
    4 a stored answer changed or regressions were found, 5 store unavailable,
    130 interrupted; the trials are kept.
    """


def _print_error(text: str) -> None:
    from tuner.cli.grid import Output, escape  # rich takes a while to import, and most commands print no error

    output = Output(stderr=True)
    for line in f"tuner: {text}".splitlines():
        output.write(escape(line))


def _send_interrupt_again(unraisable: sys.UnraisableHookArgs) -> None:
    """Send Ctrl-C again if it came in code that cannot raise, such as a callback of the import system."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    again = Timer(_AGAIN_S, os.kill, (os.getpid(), signal.SIGINT))
    again.daemon = True
    again.start()


def main() -> None:
    """Run the command line; an error becomes one line on stderr and an exit code."""
    # The sampler's matrices are small, and compilers keep the cores busy: threads of numpy's then wait for each other.
    # 200 proposals took 21 s with 16 threads beside six busy processes on two cores, and 3.5 s with one.
    if sys.argv[1:2] != ["run"]:  # a script gets the environment as it is
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    before, sys.unraisablehook = sys.unraisablehook, _send_interrupt_again
    try:
        code = cli.main(prog_name="tuner", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except TunerError as error:
        _print_error(str(error))
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except OSError as error:  # of the output: a full disk, a closed pipe
        sys.stdout = open(os.devnull, "w")
        click.echo(f"tuner: the output cannot be written: {error.strerror}", err=True)
        code = 1
    finally:
        sys.unraisablehook = before
    sys.exit(code if isinstance(code, int) else 0)
