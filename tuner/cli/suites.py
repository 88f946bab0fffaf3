"""Options of commands that take a suite in place of an op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import click

from tuner import catalog
from tuner.cli.ops import signature_of
from tuner.db.database import Database
from tuner.errors import NoDevice, UsageError
from tuner.kernels.spec import Kernel, Signature
from tuner.suites.drawn import FORM, draw_suite, is_random
from tuner.suites.suite import Suite, load, names, size


def suite_options(verb: str) -> list[click.Parameter]:
    """Return the options that select a suite and problems of it."""
    return [
        click.Option(
            ["--suite"],
            metavar="NAME|FILE",
            help=f"{verb} the problems of a suite; --list prints those that ship. {FORM} draws COUNT problems of "
            "each op, or of OP, with sizes as in models.",
        ),
        click.Option(["--list", "list_"], is_flag=True, help="Print the suites that ship."),
        click.Option(["--dtype"], metavar="DTYPE", help="Dtype of all problems, in place of the suite's."),
        click.Option(
            ["--only"],
            multiple=True,
            callback=_value,
            metavar="NAME=VALUE",
            help="Only problems with this value, such as op=gemm or M=16; may be given several times.",
        ),
    ]


def selected_suite(
    ctx: click.Context, suite: str | None, dtype: str | None, only: tuple[str, ...], list_: bool, db: Database | None
) -> Suite | None:
    """Return the suite that the options select, or None if an op follows or --list printed the names.

    Raises:
        UsageError: No suite is named.
    """
    if ctx.invoked_subcommand is not None:
        return None
    if list_:
        for name in names():
            click.echo(f"{name:14}  {size(name):3} problems")
        click.echo(f"{FORM}   COUNT problems of each op, drawn from SEED")
        return None
    if suite is None:
        raise UsageError(f"name an OP, or a suite with --suite: {', '.join(names())}, or a file.json")
    wanted = dict(word.split("=", 1) for word in only)
    if is_random(suite):
        return draw_suite(suite, _kernels(wanted.get("op")), dtype).only(wanted)
    return load(suite, _signature(db), dtype).only(wanted)


def _kernels(reference: str | None) -> Iterator[tuple[str, Kernel]]:
    """Yield a kernel by its reference, or all that can be named and imported.

    Raises:
        NoDevice: no code can be imported.
    """
    if reference is not None:
        yield reference, catalog.resolve(reference)
        return
    failed = list[NoDevice]()
    for name in (names := catalog.names()):
        try:
            kernel = catalog.load(name)
        except NoDevice as error:
            failed.append(error)
        else:
            yield name, kernel
    if len(failed) == len(names):
        raise failed[0]


def _signature(db: Database | None) -> Callable[[str], Signature]:
    return partial(signature_of, db=db)


def _value(ctx: click.Context, param: click.Parameter, words: tuple[str, ...]) -> tuple[str, ...]:
    for word in words:
        if "=" not in word:
            raise UsageError(f"--only takes NAME=VALUE, such as op=gemm or M=16, not {word[:40]!r}")
    return words
