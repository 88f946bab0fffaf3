"""`tuner rollback OP`: serve an earlier answer again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

import click

from tuner.cli.history import device_option, past_of
from tuner.cli.op_commands import OpCommands
from tuner.cli.ops import EMPTY, db_option, json_option
from tuner.cli.text import print_json, say
from tuner.cli.whole import Whole
from tuner.db.database import Database
from tuner.db.settings import LARGEST_ID
from tuner.db.store import Store, default_database
from tuner.errors import NothingFound, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.records import IMPORTED, StoredAnswer
from tuner.report.text import config_text, latency_text


def _roll_back(
    reference: str,
    signature: Signature,
    problem: Problem,
    *,
    to: int | None,
    device_id: str | None,
    db: Database | None,
    as_json: bool,
) -> int:
    with closing(open_to_change(db)) as store:
        past = past_of(store, reference, problem, device_id)
        generations = [generation.stored for generation in past.history.generations]
        earlier = _before(past.serving, generations) if to is None else _named(to, generations, problem)
        id = store.roll_back(earlier.id, None if past.serving is None else past.serving.id)
        restored, snapshot = store.answer(id), store.snapshot
    assert restored is not None  # it was just written
    if as_json:
        replaced = None if past.serving is None else past.serving.id
        about = {"op": problem.op, "problem": problem.values, "device": past.history.device, "answer": id}
        config = {"restored": restored.restored, "replaced": replaced, "config": dict(restored.answer.config)}
        print_json({**about, **config, "latency_us": restored.answer.latency_us, "snapshot": snapshot})
        return 0
    click.echo(f"{config_text(restored.answer.config)}")
    click.echo(f"{latency_text(restored.answer)}, measured with Triton {restored.measured_with.environment.triton}")
    say(
        f"Answer {id} serves the config of answer {restored.restored}. tuner verify checks it on this card; tuner pin "
        "keeps it against later searches and retunes."
    )
    return 0


def open_to_change(db: Database | None) -> Store:
    """Open the database of a command that changes what serves, which must exist."""
    database = db or default_database()
    if not database.exists():
        raise NothingFound(EMPTY)
    return Store.open(database)


def _before(serving: StoredAnswer | None, generations: Sequence[StoredAnswer]) -> StoredAnswer:
    """Return the newest earlier answer in service with another config than the one that serves."""
    if serving is None:
        raise NothingFound("no answer is in service; tuner history lists all, and --to names one of them")
    is_recorded = serving.provenance.recorded is not None
    others = [
        stored
        for stored in generations
        if stored.id < serving.id
        and stored.forgotten_at is None
        and stored.answer.kind != IMPORTED
        and (stored.provenance.recorded is not None) == is_recorded
        and stored.answer.config != serving.answer.config
    ]
    if not others:
        raise NothingFound(
            f"no earlier answer with another config than that of answer {serving.id} is in service; tuner history "
            "lists all, and --to names one of them"
        )
    return others[-1]


def _named(id: int, generations: Sequence[StoredAnswer], problem: Problem) -> StoredAnswer:
    """Return the generation of that id."""
    for stored in generations:
        if stored.id == id:
            return stored
    known = ", ".join(str(stored.id) for stored in generations)
    raise UsageError(f"--to names an answer to {problem.text}: {known}, not {id}")


command = OpCommands(
    _roll_back,
    [
        click.Option(
            ["--to"],
            type=Whole(1, LARGEST_ID),
            metavar="ID",
            help="The answer to restore, by its id in tuner history.  "
            "[default: the newest earlier one with another config]",
        ),
        device_option,
        db_option,
        json_option,
    ],
    name="rollback",
    help="Serve an earlier answer to a problem again.\n\n"
    "It is stored as a new generation: with the config and measurements of the earlier one, and under the key of the "
    "answer that it replaces. Nothing is deleted. Run twice, it restores the answer that it replaced.",
)
