"""`tuner pin OP`: keep the answer to a problem until it is unpinned."""

from __future__ import annotations

from contextlib import closing

import click

from tuner.cli.history import device_option, past_of
from tuner.cli.op_commands import OpCommands
from tuner.cli.ops import db_option, json_option
from tuner.cli.rollback import open_to_change
from tuner.cli.text import print_json
from tuner.db.database import Database
from tuner.errors import NothingFound
from tuner.kernels.spec import Problem, Signature
from tuner.report.text import config_text


def _pin(
    reference: str,
    signature: Signature,
    problem: Problem,
    *,
    note: str,
    device_id: str | None,
    db: Database | None,
    as_json: bool,
) -> int:
    with closing(open_to_change(db)) as store:
        serving = past_of(store, reference, problem, device_id).serving
        if serving is None:
            raise NothingFound("no answer is in service to be pinned; tuner search finds one")
        pin = store.pins.add(serving.id, note)
    if as_json:
        about = {"op": pin.op, "problem": problem.values, "device": pin.device, "answer": pin.answer_id}
        print_json({**about, "config": dict(pin.config), "note": pin.note, "pinned_at": pin.created_at})
        return 0
    click.echo(config_text(serving.answer.config))
    click.echo(
        f"answer {pin.answer_id} is pinned on {pin.device}: no search, retune or import replaces it until tuner unpin"
    )
    return 0


command = OpCommands(
    _pin,
    [
        click.Option(["--note"], metavar="TEXT", default="", help="The reason, shown with the pin."),
        device_option,
        db_option,
        json_option,
    ],
    name="pin",
    help="Keep the answer that serves a problem: no search, retune or import replaces it until tuner unpin.",
)
