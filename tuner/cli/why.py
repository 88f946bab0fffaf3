"""`tuner why OP`: the fields in which the stored answers differ from a query."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import click
from rich.markup import escape

from tuner.cli.best import kernel_of, lookup_service
from tuner.cli.grid import Output, print_lines
from tuner.cli.op_commands import OpCommands
from tuner.cli.ops import EMPTY, db_option, json_option, open_to_read
from tuner.cli.text import print_json
from tuner.db.database import Database
from tuner.db.store import Store
from tuner.errors import NothingFound
from tuner.kernels.spec import Problem, Signature
from tuner.lookup.neighbours import apart
from tuner.lookup.query import COMPARED, Query
from tuner.lookup.ranking import differences, replayed_from
from tuner.lookup.service import LookupService
from tuner.lookup.table import LookupResult
from tuner.measure import device
from tuner.records import StoredAnswer
from tuner.report.text import minute_text, problem_text


@dataclass(frozen=True)
class Why:
    """Everything stored about a problem, compared with a query."""

    query: Query
    found: LookupResult
    """Result of the lookup."""
    answers: tuple[tuple[StoredAnswer, tuple[str, ...]], ...]
    """Answers to the problem on any device, each with its differences from the query, the fewest first."""
    near: tuple[tuple[Problem, tuple[str, ...]], ...]
    """Problems with an answer on this device, the nearest first, each with its differences."""
    missed: tuple[dict[str, Any], ...]
    """Counts of missed queries for the problem, by device."""

    def as_json(self, snapshot: str) -> dict[str, Any]:
        """Return plain values for JSON."""
        serves = self.found.stored
        return {
            "op": self.found.problem.op,
            "problem": self.found.problem.values,
            "device": self.found.device,
            "asked": {name: getattr(self.query, name) for name in COMPARED},
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
    lookup = lookup_service(store, reference, here)
    known = () if device_id is None else _known_devices(store, problem)
    if here is None and not (lookup.devices or known):
        raise NothingFound(EMPTY)
    resolved = lookup.resolve_device(device_id, known=known)
    query = lookup.query(problem, device=device_id, triton=triton, kernel=lambda: kernel_of(reference), policy=policy)
    report = why(store, lookup, reference, query, resolved)
    if as_json:
        print_json(report.as_json(store.snapshot))
    else:
        console = Output()
        print_lines(_lines(report), console)
    return 0 if report.found.match == "exact" else 1


def _known_devices(store: Store, problem: Problem) -> set[str]:
    """Return the ids of the devices that were searched on, and of those in missed queries for this problem."""
    return {card.id for card in store.cards()} | {request["device"] for request in store.missed(problem)}


def why(store: Store, lookup: LookupService, reference: str, query: Query, device_id: str) -> Why:
    """Compare everything stored with a query for a kernel on a device."""
    table = lookup.table(query.problem.op, device_id)
    everywhere = [stored for stored in store.answers(op=query.problem.op) if stored.answer.problem == query.problem]
    refused = {stored.id: lookup.refusal(stored) for stored in everywhere}
    answers = [
        (stored, (*_differs(stored, query, device_id), *filter(None, [refused[stored.id]]))) for stored in everywhere
    ]
    tuned = {stored.answer.problem.text: stored.answer.problem for stored in table}
    return Why(
        query,
        replace(lookup.find_on(device_id, query), reference=reference),
        tuple(sorted(answers, key=lambda pair: (len(pair[1]), -pair[0].id))),
        tuple((tuned[text], apart(tuned[text], query.problem)) for text in table.nearest(query.problem)),
        tuple(store.missed(query.problem)),
    )


def _differs(stored: StoredAnswer, query: Query, device_id: str) -> tuple[str, ...]:
    """Return a sentence for each field, device and recorded space included, in which an answer differs."""
    card, recorded = stored.provenance.device.id, stored.provenance.recorded
    return (
        *([] if card == device_id else [f"device: tuned on {card}, the query has {device_id}"]),
        *differences(stored, query),
        *([] if recorded is None else [replayed_from(recorded)]),
    )


def _lines(report: Why) -> Iterator[str]:
    found, query = report.found, report.query
    yield f"[bold]{escape(problem_text(found.problem))}[/]  on {found.device}"
    versions = {name: getattr(query, name) for name in COMPARED}
    compared = ", ".join(f"{name} {escape(value)}" for name, value in versions.items() if value is not None)
    yield f"  compared with {compared or 'no version: an answer of any version serves'}"
    yield f"  {_conclusion(report)}"
    for stored, differs in report.answers:
        of = f"answer {stored.id}, {stored.provenance.device.id}, {minute_text(stored.created_at)} UTC"
        yield f"  {of}: {escape('; '.join(differs)) or 'no difference'}"
    for problem, differs in report.near:
        yield f"  near: {escape(problem.text)}: {escape('; '.join(differs))}"
    for request in report.missed:
        yield f"  missed {request['count']:,} times on {request['device']}, last {request['last_at'][:16]}"
    if found.match != "exact":
        yield f"  to tune it:  [bold]{escape(found.command)}[/]"


def _conclusion(report: Why) -> str:
    """Return what serves; the lines below it say in what each answer differs."""
    found, stored = report.found, report.found.stored
    if stored is None:
        return "no answer serves" + ("" if report.answers or report.near else ": no problem is tuned on this device")
    if found.neighbour is not None:
        return f"a neighbour's answer serves: {escape(found.neighbour.text)}"
    if found.match == "exact":
        return f"[green]answer {stored.id} serves, and is exact[/]"
    return f"[yellow]answer {stored.id} serves, and is stale[/]"


command = OpCommands(
    _why,
    [
        click.Option(
            ["--device", "device_id"],
            metavar="ID",
            help="Device id.  [default: the GPU here, else the only device stored]",
        ),
        click.Option(["--triton"], metavar="VERSION", help="Triton version to compare with."),
        click.Option(["--policy"], metavar="POLICY", help="Measuring policy to compare with, such as cold-events-1."),
        db_option,
        json_option,
    ],
    name="why",
    help="Show the fields in which the stored answers differ from a query made here.",
)
