"""Searches of captured calls: each call is examined on a card, then searched as any problem.

Worker processes load the kernel of a call from its document, which is written to a folder of the user's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import monotonic

from tuner import catalog
from tuner.captured.call import AGREEMENT, REFERENCE, CapturedCall
from tuner.captured.problem import problem_of_call, signature_of_call
from tuner.db.captured import StoredCall, most_frequent_first
from tuner.db.store import Store
from tuner.errors import Interrupted, KernelFault, NoDevice, NothingFound, UsageError
from tuner.kernels.spec import Problem
from tuner.measure import device
from tuner.measure.examiner import Examiner
from tuner.search.refusals import none_feasible
from tuner.suites.suite import Entry, Suite
from tuner.tuning.call_documents import written
from tuner.tuning.effort import Effort, require_search
from tuner.tuning.events import Events, StopToken
from tuner.tuning.gpu import HeldGpu, MeasureOptions
from tuner.tuning.judged import judged, listed
from tuner.tuning.lanes import Lane
from tuner.tuning.other_gpus import gpu_here
from tuner.tuning.several import tune_target
from tuner.tuning.target import WIDENED, Target, gpu_target
from tuner.tuning.tuned import Tuned


@dataclass(frozen=True)
class CapturedSettings:
    """Extent of a search of the configs that a function lists."""

    exhausted: int = 200
    """Largest number of listed configs that are all measured, whatever the effort."""


SETTINGS = CapturedSettings()


def entry_of(call: CapturedCall, *, widen: bool = False) -> Entry:
    """Return the problem of a call, whose kernel is found by its document."""
    return Entry(written(call, widen=widen), signature_of_call(call), problem_of_call(call))


def suite_of(calls: Sequence[StoredCall], name: str) -> Suite:
    """Return the problems of captured calls, the most frequent first. Their kernels are not loaded."""
    ordered = most_frequent_first(calls)
    entries = (Entry(each.call.op, signature_of_call(each.call), problem_of_call(each.call)) for each in ordered)
    return Suite(name, tuple(entries))


def tune_call(
    call: CapturedCall,
    store: Store,
    *,
    effort: Effort,
    options: MeasureOptions,
    events: Events,
    stop: StopToken,
    widen: bool = False,
    stored_id: int | None = None,
) -> Tuned:
    """Return the stored answer of a captured call if the effort accepts it; else examine it if needed, and search.

    Args:
        widen: search the neighbours of the listed configs too.
        stored_id: id of the call in the store; None stores it, or finds it there.

    Raises:
        TunerError: as `tune`, except that a search without an answer is returned.
    """
    require_search()
    index = device.choose(options.gpu)
    if index is None:
        raise no_gpu()
    if stored_id is None:
        store.captured.add(call, device.describe(index))
        call, stored_id = _in_store(call, store, device.describe(index).id)
    held = HeldGpu(index, problem_of_call(call).text, options.shared, note=events.note)
    try:
        tuning = CallTuning(store, options, events, stop, widen)
        started = monotonic()
        entry, target = tuning.target(call, stored_id, held, spare=True)
        tuned = tune_target(entry, target, effort, store, events, stop)
        return replace(tuned, seconds=monotonic() - started)
    finally:
        held.close()


def _in_store(call: CapturedCall, store: Store, card: str) -> tuple[CapturedCall, int | None]:
    """Return a call with its stored examination, and its id, which is None if the call is not stored."""
    for stored in store.captured.all(call.op, card, problem_of_call(call).text):
        return replace(call, examined=stored.call.examined), stored.id
    return call, None


def captured_reference(reference: str, problem: Problem, store: Store, card: str) -> str:
    """Return the reference of a kernel for the catalog: for an op without own code, the document of a captured call.

    Args:
        reference: name of an op, or a file.
        card: device id.

    Raises:
        NothingFound: calls of the op are captured, but this problem is not among them or not examined.
    """
    if is_known(reference):
        return reference
    calls = store.captured.all(reference, card)
    if not calls:
        return reference
    call = next((stored.call for stored in calls if stored.problem == problem.text), None)
    if call is None or call.examined is None:
        search = f"tuner search {reference} --captured"
        if call is not None:
            raise NothingFound(f"{problem.text} is captured, and was not examined on {card}; {search}")
        raise not_captured(problem, calls)
    return entry_of(call, widen=True).reference


def not_captured(problem: Problem, calls: Sequence[StoredCall]) -> NothingFound:
    """Return the error of a problem that is not among these captured calls, all of one card."""
    known = max(calls, key=lambda stored: stored.count)
    return NothingFound(
        f"{problem.text} is not among the captured calls on {known.device}, such as {known.problem}; "
        f"run it again with tuner run --mode capture, then tuner search {problem.op} --captured"
    )


def is_known(reference: str) -> bool:
    """Return whether a reference names code that the catalog finds without captured calls."""
    return reference in catalog.names() or Path(reference).suffix in (".py", ".json")


def no_gpu() -> NoDevice:
    """Return the error of a machine without a GPU."""
    return NoDevice(
        f"captured calls are examined and tuned on a GPU, and there is no {gpu_here()}; "
        "run it on a machine with an NVIDIA GPU"
    )


@dataclass(frozen=True)
class CallTuning:
    """Options under which captured calls become targets."""

    store: Store
    options: MeasureOptions
    events: Events = field(default_factory=Events)
    stop: StopToken = field(default_factory=StopToken)
    widen: bool = False

    def lane(self, lane: Lane, calls: Mapping[str, StoredCall]) -> Lane:
        """Return a lane that takes the problems of these calls, by the texts of the problems.

        An error of one call is the outcome of this call only.
        """

        def target(entry: Entry, spare: bool) -> Target:
            assert lane.card is not None
            stored = calls[entry.problem.text]
            with _own_outcome():
                return self.target(stored.call, stored.id, lane.card, spare=spare)[1]

        return replace(lane, target=target)

    def target(self, call: CapturedCall, stored_id: int | None, held: HeldGpu, *, spare: bool) -> tuple[Entry, Target]:
        """Return the problem and the target of a call, after an examination if it is needed.

        Raises:
            NothingFound: no config is feasible or runs, or as many configs agree on one result as on another.
            UsageError: the function cannot be loaded.
            Interrupted: the token was set while it was examined.
        """
        widen = self.widen or self._was_widened(problem_of_call(call), device.describe(held.index).id)
        entry = entry_of(self.examined(call, stored_id, held), widen=widen)
        target = gpu_target(
            *(entry, self.store, held),
            options=self.options,
            events=self.events,
            spare=spare,
            compile_as=written(replace(call, examined=None)),  # as for the examination, whose compile pool goes on
        )
        few = not widen and len(target.space) <= SETTINGS.exhausted
        return entry, replace(target, is_exhausted=few, is_widened=widen)

    def _was_widened(self, problem: Problem, card: str) -> bool:
        """Return whether the newest answer is of a widened search, which a narrower one must not replace."""
        stored = [each for each in self.store.answers(op=problem.op, device=card) if each.answer.problem == problem]
        return bool(stored) and bool(stored[-1].settings.get(WIDENED))

    def examined(self, call: CapturedCall, stored_id: int | None, held: HeldGpu) -> CapturedCall:
        """Return a call with its examination: the stored one if function and Triton are the same, else a new one."""
        unknown = replace(call, examined=None)
        entry = entry_of(unknown)
        kernel, triton = catalog.resolve(entry.reference), device.environment(held.index).triton
        before, basis = call.examined, REFERENCE if kernel.definition else AGREEMENT
        if before is not None and (before.source, before.triton, before.basis) == (kernel.source, triton, basis):
            return call
        card = device.describe(held.index)
        configs = listed(kernel, call, card.limits)
        if not configs:
            raise NothingFound(none_feasible(kernel, entry.problem, card.name, card.limits))
        held.hold()
        self.events.note(f"Examining {len(configs):,} configs of {entry.problem.text}.")
        examiner = Examiner(
            entry.reference,
            entry.problem,
            card.limits,
            reset=call.reset,
            compilers=held.compilers,
            workers=held.workers,
            stop=self.stop,
        )
        found = examiner.examine(configs)
        if self.stop():
            raise Interrupted(
                f"{entry.problem.text}: stopped while it was examined; the same command examines it again"
            )
        examined = judged(found, kernel, basis, triton)
        if stored_id is not None:
            self.store.captured.examined(stored_id, examined)
        return replace(call, examined=examined)


@contextmanager
def _own_outcome() -> Iterator[None]:
    """Raise NothingFound for an error in loading one call."""
    try:
        yield
    except KernelFault:
        raise
    except (UsageError, NoDevice) as error:
        raise NothingFound(str(error)) from error
