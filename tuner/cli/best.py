"""`tuner best OP`: the stored answer for a problem."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import click

from tuner import catalog
from tuner.cli.op_commands import OpCommands
from tuner.cli.ops import EMPTY, db_option, json_option, open_to_read
from tuner.cli.text import give, print_partial
from tuner.db.database import Database
from tuner.db.store import Store
from tuner.errors import NoDevice, NothingFound, UnknownName, UsageError
from tuner.kernels.spec import Kernel, Problem, Signature
from tuner.lookup.completed import completed
from tuner.lookup.neighbours import fits
from tuner.lookup.offered import not_offered_by, not_offered_now
from tuner.lookup.service import LookupService, StoredTables
from tuner.lookup.table import LookupResult
from tuner.measure import device
from tuner.records import POLICIES, Provenance, StoredAnswer


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
        raise UsageError("--strict compares versions, so it needs --triton, or a GPU here and no --device")
    lookup = lookup_service(store, reference, here)
    found = _find(lookup, reference, problem, device_id=device_id, triton=triton, strict=strict)
    if found.stored is not None:  # with the knobs that the service gives, which has no kernel
        found = replace(found, stored=completed(found.stored, store.signatures(problem.op).get(problem.op)))
    give(found, store, as_json)
    return 0 if found.stored is not None else 1


def find(store: Store, reference: str, problem: Problem, *, here: int | None, device_id: str | None) -> LookupResult:
    """Return the stored answer for a problem itself, never a neighbour's.

    Args:
        here: index of the caller's GPU, whose software the answer is compared with.
        device_id: id or alias of the device; None is GPU `here`, else the only device stored.

    Raises:
        NothingFound: the store has no answers.
    """
    lookup = lookup_service(store, reference, here)
    return _find(lookup, reference, problem, device_id=device_id, neighbours=False)


def lookup_service(store: Store, reference: str, here: int | None) -> LookupService:
    """Return the lookup in a store for a kernel on GPU `here`.

    If the kernel's code cannot be loaded, its stored signature tells which configs it has, and a neighbour's config is
    taken for valid.
    """
    kernel = kernel_of(reference)
    in_use = not_offered_now(store.signatures_by_source() if kernel is None else {})
    refused = in_use if kernel is None else partial(not_offered_by, kernel)

    def is_valid(problem: Problem, stored: StoredAnswer) -> bool:
        return kernel is None or fits(kernel, problem, stored)

    tables = StoredTables(store)
    if here is None:
        return LookupService(tables, fits=is_valid, refused=refused)
    card, environment = device.describe(here), device.environment(here)
    return LookupService(tables, card=card, environment=environment, fits=is_valid, refused=refused)


def _find(
    lookup: LookupService,
    reference: str,
    problem: Problem,
    *,
    device_id: str | None,
    triton: str | None = None,
    strict: bool = False,
    neighbours: bool = True,
) -> LookupResult:
    if not lookup.devices:
        raise NothingFound(EMPTY)
    query = lookup.query(problem, device=device_id, triton=triton, kernel=lambda: kernel_of(reference), strict=strict)
    return replace(lookup.find(query, device_id, neighbours=neighbours), reference=reference)


def kernel_of(reference: str) -> Kernel | None:
    """Return a kernel, or None if its code cannot be loaded."""
    try:
        return catalog.resolve(reference)
    except (NoDevice, UnknownName):  # an op that is known by its stored signature only
        return None


def _print_partial(store: Store, reference: str, signature: Signature, problem: Problem, as_json: bool) -> int:
    """Print the fastest single measurement on GPU 0, of any run."""
    if not device.count():
        raise NoDevice("--partial needs a GPU here, since it reads the searches on this machine's GPU")
    kernel = catalog.resolve(reference)
    for policy in POLICIES.values():
        here = Provenance(
            device.describe(0), device.environment(0), kernel.source, policy.text, definition=kernel.definition
        )
        measured = store.partial(signature, problem, here)
        if measured is not None:
            print_partial(measured, as_json)
            return 0
    raise NothingFound(f"nothing is measured yet for {problem.text}; tuner search measures it")


command = OpCommands(
    _best,
    [
        click.Option(
            ["--device", "device_id"],
            metavar="ID",
            help="Device id.  [default: the GPU here, else the only device stored]",
        ),
        click.Option(["--triton"], metavar="VERSION", help="Triton version to compare with."),
        click.Option(["--strict"], is_flag=True, help="Accept exact answers only, neither stale nor of a neighbour."),
        click.Option(["--partial"], is_flag=True, help="Show the fastest measurement of an interrupted search."),
        db_option,
        json_option,
    ],
    name="best",
    help="Show the stored best config of a problem.",
)
