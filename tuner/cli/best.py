"""`tuner best OP`: what is stored for a problem."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import click

from tuner import catalog
from tuner.cli.ops import EMPTY, OpCommands, db_option, json_option, open_to_read
from tuner.cli.text import give, print_partial
from tuner.db.database import Database
from tuner.db.store import Store
from tuner.errors import NoDevice, NothingFound, UnknownName, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.lookup.aliases import aliases
from tuner.lookup.neighbours import fits
from tuner.lookup.table import LookupResult, Query, Table, device_asked
from tuner.measure import device
from tuner.records import POLICIES, Device, Provenance, StoredAnswer


def _best(
    reference: str,
    signature: Signature,
    problem: Problem,
    *,
    device_id: str | None,
    triton: str | None,
    strict: bool,
    partial: bool,
    db: Database | None,
    as_json: bool,
) -> int:
    store = open_to_read(db)
    if partial:
        return _print_partial(store, reference, signature, problem, as_json)
    here = device.choose("auto")
    if strict and triton is None and (here is None or device_id is not None):
        raise UsageError("--strict compares versions, so it needs --triton, or a GPU here that the question is about")
    found = find(
        *(store, reference, problem), here=here, device_id=device_id, triton=triton, strict=strict, neighbours=True
    )
    give(found, store, as_json)
    return 0 if found.stored is not None else 1


def find(
    store: Store,
    reference: str,
    problem: Problem,
    *,
    here: int | None,
    device_id: str | None,
    triton: str | None = None,
    strict: bool = False,
    neighbours: bool = False,
) -> LookupResult:
    """What the store has for a problem on the device of that id, else on GPU `here`, else on the only one stored.

    Args:
        neighbours: whether the answer may be another problem's.

    Raises:
        NothingFound: nothing at all is stored.
    """
    asked = question(reference, problem, here=here, device_id=device_id, triton=triton, strict=strict)
    stored = store.devices()
    if not stored:
        raise NothingFound(EMPTY)
    card = None if here is None else device.describe(here)
    own = None if card is None else card.id
    about = device_asked(device_id, own, stored, other_names(store, card))
    table = (
        table_of(store, problem.op, about) if neighbours else Table(about, store.answers(op=problem.op, device=about))
    )
    found = replace(table.find(asked, fitting(reference, problem)), reference=reference)
    called = device_id or own
    return found if called in (None, about) else replace(found, alias=called)


def other_names(store: Store, card: Device | None) -> Mapping[str, str]:
    """Names of cards, the one here among them, under which no answers are stored, and where the same card's are."""
    return aliases(store.devices(), [*store.cards(), *([] if card is None else [card])])


def question(
    reference: str,
    problem: Problem,
    *,
    here: int | None,
    device_id: str | None,
    triton: str | None,
    policy: str | None = None,
    strict: bool = False,
) -> Query:
    """What is asked: with all that GPU `here` would run with, unless another card or version is named."""
    if device_id is None and triton is None and here is not None:
        source = _source(reference)
        return Query.here(problem, device.environment(here), source, policy=policy, strict=strict)
    return Query(problem, triton=triton, policy=policy, strict=strict)


def table_of(store: Store, op: str, device_id: str) -> Table:
    """All that questions about an op on a device are answered from, neighbours' answers too."""
    transfers = store.transfers(op=op, device=device_id).get((op, device_id), ())
    return Table(device_id, store.answers(op=op, device=device_id), transfers)


def _source(reference: str) -> str | None:
    """Of the kernel's code, where that can be loaded."""
    try:
        return catalog.resolve(reference).source
    except (NoDevice, UnknownName):  # of a name that the database alone knows
        return None


def fitting(reference: str, problem: Problem) -> Callable[[StoredAnswer], bool]:
    """Whether another problem's config is valid for this one, as far as the kernel's code can be loaded: when asked."""

    def is_valid(stored: StoredAnswer) -> bool:
        try:
            return fits(catalog.resolve(reference), problem, stored)
        except (NoDevice, UnknownName):
            return True

    return is_valid


def _print_partial(store: Store, reference: str, signature: Signature, problem: Problem, as_json: bool) -> int:
    """The fastest single measurement on the card here, of whatever run."""
    if not device.count():
        raise NoDevice("--partial is about searches on the GPU of this machine, and there is none")
    for policy in POLICIES.values():
        here = Provenance(device.describe(0), device.environment(0), catalog.resolve(reference).source, policy.text)
        measured = store.partial(signature, problem, here)
        if measured is not None:
            print_partial(measured, as_json)
            return 0
    raise NothingFound(f"nothing is measured yet of {problem.text}; tuner search measures it")


command = OpCommands(
    _best,
    [
        click.Option(["--device", "device_id"], metavar="ID", help="Device id; else the GPU here, else the only one."),
        click.Option(["--triton"], metavar="VERSION", help="Triton version to compare with."),
        click.Option(["--strict"], is_flag=True, help="Take nothing that is stale or another problem's."),
        click.Option(["--partial"], is_flag=True, help="The best so far of a search that was interrupted."),
        db_option,
        json_option,
    ],
    name="best",
    help="Show the stored best config of a problem.",
)
