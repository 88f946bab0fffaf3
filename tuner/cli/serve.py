"""`tuner serve`: the HTTP service over the store."""

from __future__ import annotations

import gc
import os
import socket
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import click

from tuner.api.settings import SETTINGS
from tuner.cli.ops import db_option, known_signatures, open_to_serve
from tuner.cli.text import say
from tuner.cli.whole import Whole
from tuner.db.database import Database
from tuner.errors import UsageError
from tuner.kernels.spec import Signature
from tuner.lookup.service import LookupService, StoredTables
from tuner.measure import device

if TYPE_CHECKING:
    from fastapi import FastAPI
    from uvicorn import Config


@dataclass(frozen=True)
class Served:
    """The arguments of the app of each worker process, which get it pickled."""

    db: Database | None
    device: str | None
    signatures: Mapping[str, Signature]
    token: str | None
    access_log: bool
    folder: Path | None = None
    """Folder that several worker processes share."""

    def app(self) -> FastAPI:
        """Return the app of one process, with a store of its own."""
        from tuner.api.app import create_app

        log = sys.stderr.write if self.access_log else None
        store = open_to_serve(self.db)
        gc.disable()  # the answers live as long as the process: collecting among 100,000 of them takes a second
        app = create_app(
            store,
            device=self.device,
            signatures=self.signatures,
            token=self.token,
            log=log,
            attempts=self.folder and self.folder / "attempts",
        )
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
        import fastapi  # noqa: F401  reports it missing once, not by each worker process
        import prometheus_client  # noqa: F401
        import uvicorn
    except ModuleNotFoundError as error:
        raise UsageError(f"serving needs {error.name}; pip install 'triton-tuner[serve]'") from error
    store = open_to_serve(db)
    card = device.describe(0) if device.count() else None
    lookup = LookupService(StoredTables(store), card=card)
    own = lookup.own_device if device_id is None else lookup.resolve_device(device_id)
    store.close()
    token = _token(token_file)
    several = TemporaryDirectory(prefix="triton-tuner-") if workers > 1 else nullcontext()
    with listening_on(host, port) as listening, several as folder:
        served = Served(db, own, known_signatures(db), token, access_log, None if folder is None else Path(folder))
        say(f"Serving http://{host}:{listening.getsockname()[1]}/; /docs describes its API. Ctrl-C ends it.")
        config = uvicorn.Config(
            partial(Served.app, served),
            factory=True,
            workers=workers,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=SETTINGS.shutdown_s,
        )
        if folder is None:
            uvicorn.Server(config).run(sockets=[listening])
        else:
            _run_several(config, listening, folder)
    return 0


def listening_on(host: str, port: int) -> socket.socket:
    """Return a socket bound to a host and port.

    Raises:
        UsageError: the address is in use, or is not one of this machine.
    """
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Head and body of a reply are sent one after the other; without TCP_NODELAY the body waits 40 ms for the head to be
    # acknowledged. asyncio sets it for its own sockets only; connections inherit it from this one.
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        made.bind((host, port))
    except (OSError, OverflowError) as error:
        made.close()
        raise UsageError(f"cannot listen on {host}:{port}: {error}; choose another with --host and --port") from error
    return made


def _run_several(config: Config, listening: socket.socket, folder: str) -> None:
    """Run worker processes that share one socket, and a folder in which their metrics are summed."""
    from uvicorn.supervisors import Multiprocess

    from tuner.api.metrics import MULTIPROCESS

    os.environ[MULTIPROCESS] = folder
    Multiprocess(config, sockets=[listening]).run()


def _token(file: Path | None) -> str | None:
    """Return the bearer token for writes from a file, else from `TUNER_TOKEN`; None without one."""
    given = os.environ.get("TUNER_TOKEN") if file is None else file.read_text()
    token = (given or "").strip()
    if file is not None and not token:
        raise UsageError(f"a token is one line of text, and {file} is empty; write one into it")
    return token or None


command = click.Command(
    "serve",
    callback=_serve,
    params=[
        click.Option(["--host"], default="127.0.0.1", show_default=True, help="Address to listen on."),
        click.Option(
            ["--port"],
            type=Whole(0, 65535),
            metavar="N",
            default=8000,
            show_default=True,
            help="Port to listen on; 0 takes a free one.",
        ),
        click.Option(
            ["--workers"],
            type=Whole(1, 64),
            metavar="N",
            default=1,
            show_default=True,
            help="Worker processes that share the port.",
        ),
        click.Option(
            ["--device", "device_id"], metavar="ID", help="Device of queries that name none.  [default: the GPU here]"
        ),
        click.Option(
            ["--token-file"],
            type=click.Path(path_type=Path, dir_okay=False, exists=True),
            help="File with the bearer token for writes; else TUNER_TOKEN; without one all writes are refused.",
        ),
        click.Option(
            ["--access-log/--no-access-log"],
            default=True,
            show_default=True,
            help="Log a line of JSON on stderr for each request.",
        ),
        db_option,
    ],
    help="Serve the stored answers over HTTP.",
)
