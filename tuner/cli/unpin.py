"""`tuner unpin OP`: let the answer to a problem be replaced again."""

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


def _unpin(
    reference: str,
    signature: Signature,
    problem: Problem,
    *,
    device_id: str | None,
    db: Database | None,
    as_json: bool,
) -> int:
    with closing(open_to_change(db)) as store:
        history = past_of(store, reference, problem, device_id).history
        pin = history.pin
        if pin is None or not store.pins.remove(problem, history.device):
            raise NothingFound(f"no answer is pinned for {problem.text} on {history.device}; tuner list marks pins")
    if as_json:
        about = {"op": problem.op, "problem": problem.values, "device": history.device}
        print_json({**about, "answer": pin.answer_id, "note": pin.note})
    else:
        click.echo(f"answer {pin.answer_id} is not pinned any more; searches and retunes may replace it")
    return 0


command = OpCommands(
    _unpin,
    [device_option, db_option, json_option],
    name="unpin",
    help="Let searches, retunes and imports replace a pinned answer again.",
)
