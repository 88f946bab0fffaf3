"""`tuner why OP`: why what is stored for a problem is not, or is, exactly what is asked for here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import click
from rich.console import Console
from rich.markup import escape

from tuner.cli.best import fitting, other_names, question, table_of
from tuner.cli.ops import EMPTY, OpCommands, db_option, json_option, open_to_read
from tuner.cli.text import print_json, problem_text
from tuner.db.database import Database
from tuner.db.store import Store
from tuner.errors import NothingFound
from tuner.kernels.spec import Problem, Signature
from tuner.lookup.table import COMPARED, LookupResult, Query, device_asked, differences, replayed_from
from tuner.measure import device
from tuner.records import StoredAnswer


@dataclass(frozen=True)
class Why:
    """All that is stored about a problem, held against a question."""

    asked: Query
    found: LookupResult
    """What serves."""
    answers: tuple[tuple[StoredAnswer, tuple[str, ...]], ...]
    """To this very problem, on whatever card: each with the fields of its key that differ, the fewest first."""
    near: tuple[tuple[Problem, tuple[str, ...]], ...]
    """Problems that are tuned on this card, the nearest first, each with what differs."""
    missed: tuple[dict[str, Any], ...]
    """How often it was asked for and missed, by card."""

    def as_json(self, snapshot: str) -> dict[str, Any]:
        """Plain values."""
        serves = self.found.stored
        return {
            "op": self.found.problem.op,
            "problem": self.found.problem.values,
            "device": self.found.device,
            "asked": {name: getattr(self.asked, name) for name in COMPARED},
            "match": self.found.match,
            "serves": None if serves is None else serves.id,
            "answers": [
                {
                    "id": stored.id,
                    "device": stored.provenance.device.id,
                    "recorded": stored.provenance.recorded,
                    "tuned_at": stored.created_at,
                    "tuned_with": stored.provenance.as_json(),
                    "differs": list(differs),
                }
                for stored, differs in self.answers
            ],
            "nearest": [{"problem": problem.values, "differs": list(differs)} for problem, differs in self.near],
            "missed": [
                {name: request[name] for name in ("device", "count", "first_at", "last_at")} for request in self.missed
            ],
            "command": self.found.command,
            "snapshot": snapshot,
        }


def _why(
    reference: str,
    signature: Signature,
    problem: Problem,
    *,
    device_id: str | None,
    triton: str | None,
    policy: str | None,
    db: Database | None,
    as_json: bool,
) -> int:
    store = open_to_read(db)
    here = device.choose("auto")
    card = None if here is None else device.describe(here)
    names = other_names(store, card)
    own = None if card is None else card.id
    known = store.devices() if device_id is None else _heard_of(store, problem)
    if own is None and not known:
        raise NothingFound(EMPTY)
    about = device_asked(device_id, own, known, names)
    asked = question(reference, problem, here=here, device_id=device_id, triton=triton, policy=policy)
    told = why(store, reference, asked, about)
    if as_json:
        print_json(told.as_json(store.snapshot))
    else:
        console = Console(highlight=False, soft_wrap=True)
        for line in _lines(told):
            console.print(line)
    return 0 if told.found.match == "exact" else 1


def _heard_of(store: Store, problem: Problem) -> list[str]:
    """Ids of the devices that were searched on, and of those that asked for this problem in vain."""
    missed = {request["device"] for request in store.missed(problem)}
    return sorted({card.id for card in store.cards()} | missed)


def why(store: Store, reference: str, asked: Query, about: str) -> Why:
    """Holds all that is stored against a question about a device, of a kernel called so."""
    table = table_of(store, asked.problem.op, about)
    everywhere = [stored for stored in store.answers(op=asked.problem.op) if stored.answer.problem == asked.problem]
    answers = [(stored, _differs(stored, asked, about)) for stored in everywhere]
    tuned = {stored.answer.problem.text: stored.answer.problem for stored in table}
    return Why(
        asked,
        replace(table.find(asked, fitting(reference, asked.problem)), reference=reference),
        tuple(sorted(answers, key=lambda pair: (len(pair[1]), -pair[0].id))),
        tuple((tuned[text], _apart(tuned[text], asked.problem)) for text in table.nearest(asked.problem)),
        tuple(store.missed(asked.problem)),
    )


def _differs(stored: StoredAnswer, asked: Query, about: str) -> tuple[str, ...]:
    card, recorded = stored.provenance.device.id, stored.provenance.recorded
    return (
        *([] if card == about else [f"device: tuned on {card}, asked for {about}"]),
        *differences(stored, asked),
        *([] if recorded is None else [replayed_from(recorded)]),
    )


def _apart(tuned: Problem, asked: Problem) -> tuple[str, ...]:
    """The dims, dtype and attributes in which two problems differ."""
    names = dict.fromkeys([*asked.values, *tuned.values])
    pairs = {name: (tuned.values.get(name), asked.values.get(name)) for name in names}
    return tuple(f"{name}: tuned {has}, asked {wants}" for name, (has, wants) in pairs.items() if has != wants)


def _lines(told: Why) -> Iterator[str]:
    found, asked = told.found, told.asked
    yield f"[bold]{problem_text(found.problem)}[/]  on {found.device}"
    versions = {name: getattr(asked, name) for name in COMPARED}
    compared = ", ".join(f"{name} {escape(value)}" for name, value in versions.items() if value is not None)
    yield f"  asked with {compared or 'nothing to compare: any version will do'}"
    yield f"  {_conclusion(told)}"
    for stored, differs in told.answers:
        of = f"answer {stored.id}, {stored.provenance.device.id}, {stored.created_at[:16].replace('T', ' ')} UTC"
        yield f"  {of}: {escape('; '.join(differs)) or 'all the same'}"
    for problem, differs in told.near:
        yield f"  near: {problem.text}: {'; '.join(differs)}"
    for request in told.missed:
        yield f"  missed {request['count']:,} times on {request['device']}, last {request['last_at'][:16]}"
    if found.match != "exact":
        yield f"  to tune it:  [bold]{found.command}[/]"


def _conclusion(told: Why) -> str:
    found, stored = told.found, told.found.stored
    if stored is None:
        nearest = told.answers[0][1] if told.answers else told.near[0][1] if told.near else ()
        return f"nothing serves: {escape('; '.join(nearest)) or 'nothing is tuned on this device'}"
    if found.neighbour is not None:
        return f"a neighbour's answer serves: {escape(found.neighbour.text)}"
    if found.match == "exact":
        return f"[green]answer {stored.id} serves, and is exact[/]"
    return f"[yellow]answer {stored.id} serves, and is stale: {escape('; '.join(found.stale))}[/]"


command = OpCommands(
    _why,
    [
        click.Option(["--device", "device_id"], metavar="ID", help="Device id; else the GPU here, else the only one."),
        click.Option(["--triton"], metavar="VERSION", help="Triton version to compare with."),
        click.Option(["--policy"], metavar="POLICY", help="How it is to be timed, such as cold-events-1."),
        db_option,
        json_option,
    ],
    name="why",
    help="Show in which fields the stored answers differ from what is asked for here.",
)
