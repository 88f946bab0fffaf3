"""The command line: `tuner`. One command a file; this is where the rooms are put together."""

from __future__ import annotations

import sys
from importlib import import_module

import click

import tuner
from tuner.errors import TunerError

_COMMANDS = ("search", "best", "list", "serve", "record")
INTERRUPTED = 130


class _Commands(click.Group):
    """Loads a command's file when it is called, so that `tuner best` does not import Optuna."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_COMMANDS]  # `list` is a command here

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        command = import_module(f"tuner.cli.{name}").command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tuner.__version__, package_name="triton-tuner", prog_name="tuner")
def cli() -> None:
    """Finds the fastest launch configuration of a Triton kernel on your GPU, keeps it, and serves it.

    \b
    Exit codes: 0 ok, 1 nothing to give, 2 usage, 3 no device, 5 store unavailable,
    130 interrupted with the best so far kept.
    """


def main() -> None:
    """Entry point: errors become one line on stderr and an exit code."""
    try:
        code = cli.main(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        code = error.exit_code
    except TunerError as error:
        click.echo(f"tuner: {error}", err=True)
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)
