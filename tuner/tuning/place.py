"""Where a worker tunes: on a card of this machine, or, to try it out, on recorded spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from tuner import catalog
from tuner.db.queue import Able, Job
from tuner.db.store import Store
from tuner.errors import UsageError
from tuner.kernels.spec import Signature
from tuner.measure import device, recorded
from tuner.suites.suite import Entry
from tuner.tuning.session import on_cards
from tuner.tuning.target import AUTO, Target, recorded_target

Sources = Callable[[Entry, str], Target]
"""Of a problem, on the device of this id."""


@dataclass(frozen=True)
class Place:
    """What can be tuned there, and how."""

    able: tuple[Able, ...]
    entry: Callable[[Job], Entry]
    """What a job is about. It may raise what is wrong with it."""
    sources: Callable[[], AbstractContextManager[Sources]]
    """Entered while there is something to do: the card is held."""


def on_card(store: Store, kernels: tuple[str, ...], gpu: int, policy: str, shared: bool) -> Place:
    """A card, for the kernels of these names and files; for all that have a name, if none is given.

    Raises:
        TunerError: one of them cannot be loaded; better now than with every job.
    """
    references = {_op(reference): reference for reference in kernels or catalog.names()}

    @contextmanager
    def sources() -> Iterator[Sources]:
        with on_cards([gpu], "problems that were asked for", store, policy, shared) as (lane,):
            yield lambda entry, card: lane.source(entry, True)

    def entry(job: Job) -> Entry:
        reference = references[job.op]
        return _entry(job, reference, catalog.resolve(reference).signature)

    return Place((Able(device.describe(gpu).id, frozenset(references)),), entry, sources)


def on_recorded(name: str, policy: str) -> Place:
    """The recorded space of this name, or all of them: their problems on their devices, and no others."""
    names = recorded.names() if name == AUTO else [name]
    spaces = {(space.problem.text, space.device.id): space for space in map(recorded.load, names)}
    able = (
        Able(space.device.id, frozenset([space.problem.op]), frozenset([space.problem.text]))
        for space in spaces.values()
    )
    return Place(
        tuple(able),
        lambda job: _entry(job, job.op, spaces[job.problem, job.device].signature),
        lambda: nullcontext(
            lambda entry, card: recorded_target(spaces[entry.problem.text, card], entry.problem, policy)
        ),
    )


def _op(reference: str) -> str:
    return catalog.resolve(reference).signature.op


def _entry(job: Job, reference: str, signature: Signature) -> Entry:
    """A job's problem, read from its text with the signature that is known here."""
    words = (word.partition("=") for word in job.problem.split()[1:])
    told = {name: value for name, _, value in words}
    problem = signature.problem(told)
    if problem.text != job.problem:
        raise UsageError(f"{job.problem} was asked for, and {job.op} describes it as {problem.text} here")
    return Entry(reference, signature, problem)
