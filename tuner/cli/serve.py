"""`tuner serve`: the HTTP service over the store."""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from tuner.cli.ops import db_option, known_signatures, open_to_serve
from tuner.cli.text import say
from tuner.db.database import Database
from tuner.errors import UsageError
from tuner.kernels.spec import Signature
from tuner.lookup.aliases import known_as
from tuner.lookup.table import device_asked
from tuner.measure import device

if TYPE_CHECKING:
    from fastapi import FastAPI
    from uvicorn import Config

_LEAVE_S = 10
"""Requests that are being answered when the service is told to end get so long."""


@dataclass(frozen=True)
class Served:
    """What every worker process makes its app of; it is sent to them pickled."""

    db: Database | None
    device: str | None
    signatures: Mapping[str, Signature]
    token: str | None
    access_log: bool

    def app(self) -> FastAPI:
        """The app of one process, with a store of its own."""
        from tuner.api.app import create_app

        log = sys.stderr.write if self.access_log else None
        store = open_to_serve(self.db)
        gc.disable()  # what is read now is never garbage: looking through 100,000 answers for some takes a second
        app = create_app(store, device=self.device, signatures=self.signatures, token=self.token, log=log)
        gc.freeze()
        gc.enable()
        return app


def _serve(
    host: str,
    port: int,
    workers: int,
    device_id: str | None,
    token_file: Path | None,
    access_log: bool,
    db: Database | None,
) -> int:
    try:
        import fastapi  # noqa: F401  that it is missing is said here, and not by every worker
        import prometheus_client  # noqa: F401
        import uvicorn
    except ModuleNotFoundError as error:
        raise UsageError(f"serving needs {error.name}; pip install 'triton-tuner[serve]'") from error
    store = open_to_serve(db)
    card = device.describe(0) if device.count() else None
    here = None if card is None else known_as(card, store.devices(), store.cards())
    if device_id is not None:
        device_asked(device_id, here, store.devices())
    store.close()
    served = Served(db, device_id or here, known_signatures(db), _token(token_file), access_log)
    with listening_on(host, port) as listening:
        say(f"Serving http://{host}:{listening.getsockname()[1]}/best-config, described at /docs; Ctrl-C ends it.")
        config = uvicorn.Config(
            partial(Served.app, served),
            factory=True,
            workers=workers,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=_LEAVE_S,
        )
        if workers == 1:
            uvicorn.Server(config).run(sockets=[listening])
        else:
            _run_several(config, listening)
    return 0


def listening_on(host: str, port: int) -> socket.socket:
    """A socket for clients to connect to.

    Raises:
        UsageError: others have it, or it cannot be had here.
    """
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Head and body of an answer are sent one after the other, and the body waited 40 ms for the head to be
    # acknowledged. asyncio sees to that for sockets that it makes itself; connections inherit it from this one.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        made.bind((host, port))
    except (OSError, OverflowError) as error:
        made.close()
        raise UsageError(f"{host}:{port} cannot be served on: {error}") from error
    return made


def _run_several(config: Config, listening: socket.socket) -> None:
    """Worker processes that share one socket, and one folder where their numbers add up."""
    from uvicorn.supervisors import Multiprocess

    from tuner.api.metrics import MULTIPROCESS

    with TemporaryDirectory(prefix="triton-tuner-") as folder:
        os.environ[MULTIPROCESS] = folder
        Multiprocess(config, sockets=[listening]).run()


def _token(file: Path | None) -> str | None:
    """What writers must send: from a file, or `TUNER_TOKEN`."""
    given = os.environ.get("TUNER_TOKEN") if file is None else file.read_text()
    token = (given or "").strip()
    if file is not None and not token:
        raise UsageError(f"a token is one line of text, and {file} is empty")
    return token or None


command = click.Command(
    "serve",
    callback=_serve,
    params=[
        click.Option(["--host"], default="127.0.0.1", show_default=True, help="Address to listen on."),
        click.Option(
            ["--port"],
            type=click.IntRange(0, 65535),
            metavar="N",
            default=8000,
            show_default=True,
            help="0: any that is free.",
        ),
        click.Option(
            ["--workers"],
            type=click.IntRange(1, 64),
            metavar="N",
            default=1,
            show_default=True,
            help="Processes that share the port.",
        ),
        click.Option(["--device", "device_id"], metavar="ID", help="Device of questions that name none."),
        click.Option(
            ["--token-file"],
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            help="File with the token that writers send; else TUNER_TOKEN; else nobody writes.",
        ),
        click.Option(
            ["--access-log/--no-access-log"], default=True, help="A line of JSON on stderr for every request."
        ),
        db_option,
    ],
    help="Serve the stored answers over HTTP.",
)
