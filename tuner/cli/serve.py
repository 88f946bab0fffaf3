"""`tuner serve`: the HTTP service over the store."""

from __future__ import annotations

from pathlib import Path

import click

from tuner import device
from tuner.cli.ops import db_option, known_signatures
from tuner.cli.show import say
from tuner.db.store import Store, default_path
from tuner.errors import UsageError


def _serve(host: str, port: int, device_id: str | None, db: Path | None) -> int:
    try:
        import uvicorn

        from tuner.api.app import create_app
    except ModuleNotFoundError as error:
        raise UsageError(f"serving needs {error.name}; pip install 'triton-tuner[serve]'") from error
    store = Store.open(db or default_path())
    own = device_id or (device.describe(0).id if device.count() else None)
    app = create_app(store, device=own, signatures=known_signatures(db))
    say(f"Serving http://{host}:{port}/best-config, described at /docs; Ctrl-C ends it.")
    uvicorn.run(app, host=host, port=port, log_level="warning")
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
