"""Options that several commands share, and the databases that they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import click

from tuner import catalog, recorded
from tuner.db.database import Database
from tuner.db.sqlite import IN_MEMORY
from tuner.db.store import Store, database_at, default_database, is_named
from tuner.errors import ReadOnly, UnknownName
from tuner.kernels.spec import Signature
from tuner.records import POLICIES

EMPTY = "there are no answers; tuner search OP finds and stores one"
"""Message of a database without answers in service."""


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
    metavar="FILE|URL",
    help="The database: a file or postgresql://user@host/name; else TUNER_DB, else a file in your data folder.",
)
json_option = click.Option(["--json", "as_json"], is_flag=True, help="Print exactly one JSON document.")
gpu_option = click.Option(
    ["--gpu"],
    metavar="N|auto",
    default="auto",
    show_default=True,
    help="Number of a GPU of this machine, or auto for the first.",
)
gpus_option = click.Option(
    ["--gpu"],
    metavar="N,...|all|auto",
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


def vendors_option(usual: str, use: str) -> click.Option:
    """Return the option that chooses vendors.

    Args:
        usual: the group that is timed without it.
        use: what becomes of the vendors that are timed, as a sentence.
    """
    return click.Option(
        ["--vendors"],
        metavar="all|libraries|eager|NAME,...",
        help="Implementations to compare with. eager: that of the kernel, such as torch; libraries: also those of "
        f"installed libraries, such as liger; all: also torch.compile. {use}  [default: {usual}]",
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


def signature_of(reference: str, db: Database | None = None) -> Signature:
    """Return the signature of a kernel, or the stored one if its code cannot be loaded.

    Raises:
        UnknownName: There is neither. If calls of that name are captured, the message says how they are searched.
    """
    try:
        return catalog.signature(reference, lambda: known_signatures(db))
    except UnknownName as error:
        store = open_if_there(db)
        if store is None:
            raise
        with closing(store):
            if not store.captured.all(reference):
                raise
        raise UnknownName(
            f"{reference} has captured calls and was not searched; run tuner search {reference} --captured"
        ) from error


def known_patterns(signature: Signature, db: Database | None = None) -> Sequence[Signature]:
    """Return the signatures of an op, the newest first: the one given, unless its captured calls have several."""
    store = open_if_there(db) if signature.captured else None
    if store is None:
        return (signature,)
    with closing(store):
        return store.patterns().get(signature.op, (signature,))
