"""Options that several commands share, and groups with a subcommand for each op, made from its signature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from tuner import catalog, recorded
from tuner.db.database import Database
from tuner.db.sqlite import IN_MEMORY
from tuner.db.store import Store, database_at, default_database, is_named
from tuner.errors import ReadOnly
from tuner.kernels.spec import Signature
from tuner.records import POLICIES

EMPTY = "nothing is stored yet; tuner search OP finds and stores an answer"
"""Message of a database without answers."""


class _DatabaseName(click.Path):
    """A path, or a URL that begins with `postgresql://`."""

    name = "path|url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if "://" in str(value):
            return database_at(str(value))
        return database_at(Path(str(super().convert(value, param, ctx))))


db_option = click.Option(
    ["--db"],
    type=_DatabaseName(path_type=Path, dir_okay=False),
    help="The database: a file or postgresql://user@host/name; else TUNER_DB, else a file in your data folder.",
)
json_option = click.Option(["--json", "as_json"], is_flag=True, help="Print exactly one JSON document.")
gpu_option = click.Option(
    ["--gpu"], default="auto", show_default=True, help="Number of a GPU of this machine, or auto for the first."
)
gpus_option = click.Option(
    ["--gpu"],
    default="auto",
    show_default=True,
    help="GPUs of this machine: numbers such as 0,1, or all, or auto for the first.",
)
policy_option = click.Option(
    ["--policy"],
    type=click.Choice(["auto", *POLICIES]),
    default="auto",
    show_default=True,
    help="How latencies are measured. cold: single launches, cold L2; warm: CUDA graph, warm L2; graph: CUDA graph, "
    "cold L2; auto: graph for short problems, else cold.",
)
shared_option = click.Option(
    ["--shared"],
    is_flag=True,
    help="Measure even while other processes use the GPU; the answer is then marked as contended.",
)


def open_to_read(db: Database | None) -> Store:
    """Open the database of a command that only reads. A named one must exist; a missing usual one is read as empty."""
    if (db or default_database()).exists():
        return open_to_serve(db)
    if db is None and not is_named():
        return Store.open(IN_MEMORY)
    return Store.open(db or default_database(), create=False)


def open_to_serve(db: Database | None) -> Store:
    """Open the database of a command that writes no answers. One that an option names must exist."""
    if db is None:
        try:
            return Store.open(default_database())
        except ReadOnly:
            pass
    return Store.open(db or default_database(), create=False)


def open_if_there(db: Database | None) -> Store | None:
    """Open the database as `open_to_read` does; return None if there is none yet."""
    return open_to_serve(db) if (db or default_database()).exists() else None


def known_signatures(db: Database | None = None) -> Mapping[str, Signature]:
    """Return the signatures of recorded spaces and of the store, for ops whose code cannot be loaded."""
    store = open_if_there(db)
    if store is None:
        return recorded.signatures()
    try:
        return recorded.signatures() | store.signatures()
    finally:
        store.close()


class OpCommands(click.Group):
    """A group with a subcommand for every op, made from the op's signature.

    Args:
        action: called with the kernel's name or file, its signature, the problem, and the values of the options.
        options: the options besides those of the problem.
        asked: makes the third argument of the action from the signature and the values; the problem by default.
    """

    def __init__(
        self,
        action: Callable[..., Any],
        options: list[click.Parameter],
        *,
        asked: Callable[[Signature, Mapping[str, str]], Any] = Signature.problem,
        **settings: Any,
    ) -> None:
        super().__init__(subcommand_metavar="OP [OPTIONS]", **settings)
        self._action, self._options, self._asked = action, options, asked

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*catalog.names(), *(name.partition("-")[0] for name in recorded.names())})

    def get_command(self, ctx: click.Context, name: str) -> click.Command:
        signature = catalog.signature(name, lambda: known_signatures(ctx.obj))

        def run(**values: Any) -> Any:
            given = {name: values.pop(name) for name in signature.parameters}
            asked = self._asked(signature, {name: value for name, value in given.items() if value is not None})
            return self._action(name, signature, asked, **values)

        return click.Command(
            name,
            params=[*_problem_options(signature), *self._options],
            callback=run,
            help=f"{self.help}\n\n{signature.op}: {signature.summary}",
            short_help=signature.summary,
        )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        ctx.obj = _db_among(args)  # whose signatures may be needed before there are options to parse
        return args[0], self.get_command(ctx, args[0]), args[1:]


def _db_among(args: list[str]) -> Database | None:
    for word, following in zip(args, [*args[1:], ""], strict=True):
        if word == "--db" or word.startswith("--db="):
            return database_at(word.partition("=")[2] or following)
    return None


def _problem_options(signature: Signature) -> list[click.Parameter]:
    """Values stay text: the signature checks them, and words the refusal."""
    options: list[click.Parameter] = []
    for dim in signature.dims:
        default = "" if dim.default is None else f"  [default: {dim.default}]"
        options.append(click.Option([f"--{dim.name}", dim.name], metavar="SIZE", help=f"{dim.help}{default}"))
    shown = "|".join(signature.dtypes)
    options.append(click.Option(["--dtype"], metavar="DTYPE", help=f"{shown}  [default: {signature.dtypes[0]}]"))
    for attribute in signature.attributes:
        choices = "|".join(map(str, attribute.choices))
        help = f"{choices}: {attribute.help}  [default: {attribute.default}]"
        options.append(click.Option([f"--{attribute.name}", attribute.name], metavar="CHOICE", help=help))
    return options
