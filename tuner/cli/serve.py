"""`tuner serve`: the HTTP service over the store."""

from __future__ import annotations

import socket

import click

from tuner import device
from tuner.cli.ops import db_option, known_signatures, open_to_read
from tuner.cli.show import say
from tuner.db.database import Database
from tuner.errors import UsageError
from tuner.lookup import device_asked


def _serve(host: str, port: int, device_id: str | None, db: Database | None) -> int:
    try:
        import uvicorn

        from tuner.api.app import create_app
    except ModuleNotFoundError as error:
        raise UsageError(f"serving needs {error.name}; pip install 'triton-tuner[serve]'") from error
    store = open_to_read(db)
    here = device.describe(0).id if device.count() else None
    if device_id is not None:
        device_asked(device_id, here, store.devices())
    app = create_app(store, device=device_id or here, signatures=known_signatures(db))
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
        except (OSError, OverflowError) as error:
            raise UsageError(f"{host}:{port} cannot be served on: {error}") from error
        say(f"Serving http://{host}:{listening.getsockname()[1]}/best-config, described at /docs; Ctrl-C ends it.")
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
    return 0


command = click.Command(
    "serve",
    callback=_serve,
    params=[
        click.Option(["--host"], default="127.0.0.1", show_default=True, help="Address to listen on."),
        click.Option(["--port"], type=click.IntRange(0, 65535), default=8000, show_default=True),
        click.Option(["--device", "device_id"], metavar="ID", help="Device of questions that name none."),
        db_option,
    ],
    help="Serve the stored answers over HTTP.",
)
