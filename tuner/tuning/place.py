"""The place where a job worker tunes: cards of this machine, or recorded spaces for a trial without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial

from tuner import catalog, recorded
from tuner.captured.problem import signature_of_call
from tuner.db.queue import Job, JobFilter
from tuner.db.store import Store
from tuner.errors import UsageError
from tuner.kernels.spec import Signature
from tuner.kernels.values import parsed
from tuner.measure import device
from tuner.suites.suite import Entry
from tuner.tuning.captured import CallTuning
from tuner.tuning.events import Events
from tuner.tuning.gpu import AUTO, MeasureOptions
from tuner.tuning.lanes import Lane, on_cards
from tuner.tuning.target import Target, recorded_target

Targets = Callable[[Entry, str], Target]
"""Return the target of a problem on the device of an id."""


@dataclass(frozen=True)
class Place:
    """The jobs that can be done in a place, and their targets."""

    able: tuple[JobFilter, ...]
    entry: Callable[[Job], Entry]
    """Return the problem of a job. Raises TunerError if the job makes no sense here."""
    lanes: Callable[[], AbstractContextManager[Sequence[Targets]]]
    """Hold the cards while entered; each lane does one job at a time."""


def on_gpus(
    store: Store, kernels: tuple[str, ...], gpus: Sequence[int], options: MeasureOptions, events: Events
) -> Place:
    """Return cards of one model as a place, for the kernels of these names and files.

    Without any, for all with a name, and for the problems of captured calls.

    Raises:
        TunerError: a kernel cannot be loaded.
    """
    references = {catalog.resolve(reference).signature.op: reference for reference in kernels or catalog.names()}
    card = device.describe(gpus[0]).id
    captured = {} if kernels else {each.problem: each for each in store.captured.all(device=card)}
    calls = {problem: each for problem, each in captured.items() if each.call.op not in references}
    tuning = CallTuning(store, options, events)

    @contextmanager
    def lanes() -> Iterator[Sequence[Targets]]:
        with on_cards(gpus, "jobs", store, options, events) as cards:
            yield [partial(_on_lane, lane, tuning.lane(lane, calls), frozenset(calls)) for lane in cards]

    def entry(job: Job) -> Entry:
        if job.problem in calls:
            return _entry(job, job.op, signature_of_call(calls[job.problem].call))
        reference = references[job.op]
        return _entry(job, reference, catalog.resolve(reference).signature)

    able = [JobFilter(card, frozenset(references))]
    if calls:
        able.append(JobFilter(card, frozenset(each.call.op for each in calls.values()), frozenset(calls)))
    return Place(tuple(able), entry, lanes)


def _on_lane(lane: Lane, captured: Lane, calls: frozenset[str], entry: Entry, card: str) -> Target:
    return (captured if entry.problem.text in calls else lane).target(entry, True)


def on_recorded(name: str, policy: str) -> Place:
    """Return the recorded space of this name as a place, or for `auto` all of them: their problems on their devices."""
    names = recorded.names() if name == AUTO else [name]
    spaces = {(space.problem.text, space.device.id): space for space in map(recorded.load, names)}
    able = (
        JobFilter(space.device.id, frozenset([space.problem.op]), frozenset([space.problem.text]))
        for space in spaces.values()
    )
    return Place(
        tuple(able),
        lambda job: _entry(job, job.op, spaces[job.problem, job.device].signature),
        lambda: nullcontext(
            [lambda entry, card: recorded_target(spaces[entry.problem.text, card], entry.problem, policy)]
        ),
    )


def _entry(job: Job, reference: str, signature: Signature) -> Entry:
    """Return the problem of a job, parsed from its text by the signature that is known here."""
    problem = signature.problem(parsed(job.problem))
    if problem.text != job.problem:
        raise UsageError(f"the job is for {job.problem}, which is {problem.text} by the signature of {job.op} here")
    return Entry(reference, signature, problem)
