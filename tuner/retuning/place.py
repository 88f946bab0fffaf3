"""The place of a retune: the cards or recorded spaces that it measures on, and the answers that it measures there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from tuner import recorded
from tuner.db.store import Store
from tuner.errors import NoDevice, NothingFound, UsageError
from tuner.kernels.spec import Kernel, Problem
from tuner.measure import device
from tuner.records import Environment
from tuner.retuning.selection import Selection, Wanted, select_live, select_recorded
from tuner.suites.suite import Entry
from tuner.tuning.api import checked_problem, kernel_reference, known_signature, several_problems
from tuner.tuning.events import Events
from tuner.tuning.gpu import AUTO, HeldGpu, MeasureOptions
from tuner.tuning.lanes import chosen_gpus, on_cards
from tuner.tuning.other_gpus import gpu_here


@dataclass(frozen=True)
class Place:
    """The card or recorded spaces of a retune, and what it measures there."""

    device: str
    environment: Environment
    gpus: Sequence[int]
    wanted: Wanted
    selection: Selection

    @contextmanager
    def cards(self, store: Store, options: MeasureOptions, events: Events) -> Iterator[list[HeldGpu | None]]:
        """Hold the cards; None stands for recorded spaces in place of one."""
        if not self.gpus:
            yield [None]
            return
        with on_cards(self.gpus, "tuner retune", store, options, events) as lanes:
            yield [lane.card for lane in lanes]


def place_of(
    store: Store,
    options: MeasureOptions,
    kernel: str | Path | Kernel | None,
    problem: object,
    filters: Wanted,
) -> Place:
    """Return the place to measure on, and what is selected there.

    Raises:
        NothingFound: no answer is in service, or none of the kernel and problems.
    """
    named = _wanted(store, kernel, problem)
    wanted = replace(named, stale=filters.stale, demand=filters.demand, policy=options.policy)
    if options.replay is not None:
        spaces = _spaces(store, options.replay, wanted)
        name = ",".join(sorted({space.device.id for space in spaces}))
        place = Place(name, spaces[0].environment, [], wanted, select_recorded(store, wanted, spaces))
    else:
        gpus = chosen_gpus(options.gpu)
        if not gpus:
            raise NoDevice(
                f"a retune measures on a GPU, and there is no {gpu_here()}; run it on a machine with the card, or "
                "replay recorded spaces with --replay auto"
            )
        card, environment = device.describe(gpus[0]), device.environment(gpus[0])
        place = Place(card.id, environment, gpus, wanted, select_live(store, wanted, card, environment))
    if not place.selection.total:
        lost = "".join(f"; {sentence}" for sentence in place.selection.left_out.values())
        raise NothingFound(
            f"no answer of {place.device} that can be measured is in service{lost}; tuner search finds one"
        )
    return place


def _wanted(store: Store, kernel: str | Path | Kernel | None, problem: object) -> Wanted:
    if kernel is None:
        if problem is None:
            return Wanted()
        several = several_problems(problem)
        given = [problem] if several is None else several
        references = {each.problem.op: each.reference for each in given if isinstance(each, Entry)}
        problems = [each.problem if isinstance(each, Entry) else each for each in given]
        if not all(isinstance(each, Problem) for each in problems):
            raise UsageError("sizes by name are of a kernel; name it: tuner.retune('gemm', {'M': 4096})")
        texts = frozenset(each.text for each in problems if isinstance(each, Problem))
        return Wanted(references=references, problems=texts)
    reference = kernel_reference(kernel)
    signature = kernel.signature if isinstance(kernel, Kernel) else known_signature(reference, store)
    if problem is None:
        return Wanted(reference, op=signature.op)
    several = several_problems(problem)
    checked = (checked_problem(signature, each) for each in ([problem] if several is None else several))
    return Wanted(reference, op=signature.op, problems=frozenset(each.text for each in checked))


def _spaces(store: Store, replay: str, wanted: Wanted) -> list[recorded.RecordedSpace]:
    """Return the recorded space of a name or file; for `auto`, those that stored answers were replayed from."""
    if replay != AUTO:
        return [recorded.load(replay)]
    shipped = set(recorded.names())
    names = {stored.provenance.recorded for stored in store.answers(op=wanted.op)}
    found = [recorded.load(name) for name in sorted(name for name in names if name in shipped and name is not None)]
    if not found:
        raise NothingFound(
            "no answer in service was replayed from a recorded space that ships; tuner search OP --replay auto stores "
            "one, or name a file with --replay"
        )
    return found
