"""Lanes: cards on which problems are measured in parallel. A free lane takes the next problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Thread
from typing import Generic, TypeVar

from tuner import recorded
from tuner.db.store import Store
from tuner.errors import NoDevice, UsageError
from tuner.kernels.spec import Problem
from tuner.measure import cores, device
from tuner.suites.suite import Entry, Suite
from tuner.tuning.events import Events, StopToken
from tuner.tuning.gpu import AUTO, HeldGpu, MeasureOptions
from tuner.tuning.stand_in import none_recorded, note_what_stands_in
from tuner.tuning.target import Target, gpu_target, recorded_target

Work = TypeVar("Work")
Done = TypeVar("Done")


@dataclass(frozen=True)
class Lane:
    """A card on which problems are measured one after the other, or the recorded spaces."""

    device: str
    """Id of the card; empty if each recorded space has its own."""
    target: Callable[[Entry, bool], Target]
    """Return the target of a problem; the flag is whether to keep a spare worker ready, as for `GpuMeasurer`."""
    card: HeldGpu | None = None
    """The card; None for recorded spaces."""


def chosen_gpus(chosen: str) -> list[int]:
    """Return the GPUs that `auto`, `all` or `0,1` name; none if `auto` finds none.

    Raises:
        NoDevice: a named GPU is not there.
        UsageError: the GPUs are of different models.
    """
    words = [str(index) for index in range(device.count())] if chosen == "all" else chosen.split(",")
    if not words:
        raise NoDevice("--gpu all needs a GPU, and the driver shows none")
    gpus = list(dict.fromkeys(index for word in words if (index := device.choose(word)) is not None))
    models = sorted({device.describe(index).id for index in gpus})
    if len(models) > 1:
        raise UsageError(f"problems are measured on cards of one model, not {', '.join(models)}; name some with --gpu")
    return gpus


@contextmanager
def open_lanes(
    suite: Suite, store: Store, options: MeasureOptions, events: Events
) -> Iterator[tuple[Suite, list[Lane]]]:
    """Hold the chosen GPUs; without any, or with `replay`, open the recorded spaces of the problems.

    Yields:
        The problems that can be measured (without a GPU only those that were recorded), and the lanes.
    """
    gpus = [] if options.replay is not None else chosen_gpus(options.gpu)
    if gpus:
        with on_cards(gpus, suite.name, store, options, events) as lanes:
            yield suite, lanes
    else:
        suite, lane = _on_recorded(suite, options, events)
        yield suite, [lane]


@contextmanager
def on_cards(
    gpus: Sequence[int], purpose: str, store: Store, options: MeasureOptions, events: Events
) -> Iterator[list[Lane]]:
    """Hold cards of one model, a lane each; their compile pools share the cores of the host."""
    jobs = max(1, cores.usable() // len(gpus))
    with ExitStack() as stack:
        cards = [HeldGpu(index, purpose, options.shared, jobs, note=events.note) for index in gpus]
        for card in cards:
            stack.callback(card.close)
            card.prepare()  # the workers of all cards start while the cards are held one after the other
        for card in cards:
            card.hold()
        cards[0].roofline_limits(store)  # once, as the cards are of one model
        yield [_on_card(card, store, options, events) for card in cards]


def _on_card(card: HeldGpu, store: Store, options: MeasureOptions, events: Events) -> Lane:
    def target(entry: Entry, spare: bool) -> Target:
        return gpu_target(entry, store, card, options=options, events=events, spare=spare)

    return Lane(device.describe(card.index).id, target, card)


def _on_recorded(suite: Suite, options: MeasureOptions, events: Events) -> tuple[Suite, Lane]:
    named = options.replay if options.replay != AUTO else None

    def spaces_of(problem: Problem) -> list[recorded.RecordedSpace]:
        return recorded.of_problem(problem) if named is None else [recorded.load(named, problem.op)]

    found = {entry.problem.text: spaces for entry in suite.entries if (spaces := spaces_of(entry.problem))}
    entries = tuple(entry for entry in suite.entries if entry.problem.text in found)
    if not entries:
        raise none_recorded([entry.problem for entry in suite.entries])
    if named is None:
        note_what_stands_in([*found.values()], events, left_out=len(suite.entries) - len(entries))
    return Suite(suite.name, entries), Lane(
        "", lambda entry, spare: recorded_target(found[entry.problem.text][0], entry.problem, options.policy)
    )


@dataclass(frozen=True)
class _Outcome(Generic[Done]):
    """The outcome of a piece of work: a result, an error, or neither if it was stopped; or the end of a lane."""

    result: Done | None = None
    error: BaseException | None = None
    last: bool = False


def spread(
    work: Sequence[Work],
    lanes: Sequence[Callable[[Work], Done | None]],
    on_result: Callable[[Done], None],
    stop: StopToken,
) -> None:
    """Do all work, each lane one piece at a time. An error in a lane stops the others, and is raised.

    An error in the calling thread, such as a KeyboardInterrupt, stops the lanes too, and is raised once they have
    ended, since the caller then closes what they use. If they had been stopped before, it is raised at once.

    Args:
        lanes: called in a thread each until no work is left; they poll `stop` themselves, and return None if it is set.
        on_result: called in the calling thread, in the order in which results come.
        stop: set by an error; once it is set, lanes begin no further piece.
    """
    todo: SimpleQueue[Work] = SimpleQueue()
    outcomes: SimpleQueue[_Outcome[Done]] = SimpleQueue()
    all_ended = Event()
    for piece in work:
        todo.put(piece)

    def run(lane: Callable[[Work], Done | None]) -> None:
        try:
            _run_lane(lane, todo, outcomes, stop)
        finally:
            outcomes.put(_Outcome(last=True))
            all_ended.wait()  # a worker process dies with the thread that started it, and may serve another lane now

    running, errors = len(lanes), list[BaseException]()
    with stop.watched():
        for lane in lanes:
            # Worker processes that a lane starts die with its thread at the latest, and that dies with this process.
            Thread(target=run, args=[lane], daemon=True).start()
        try:
            while running:
                outcome = outcomes.get()
                running -= outcome.last
                if outcome.error is not None:
                    errors.append(outcome.error)
                    stop.set()
                elif outcome.result is not None:
                    on_result(outcome.result)
        except BaseException:
            was_stopped = stop()
            stop.set()
            while running and not was_stopped:
                running -= outcomes.get().last
            raise
        finally:
            all_ended.set()
    if errors:
        raise errors[0]


def _run_lane(
    lane: Callable[[Work], Done | None],
    todo: SimpleQueue[Work],
    outcomes: SimpleQueue[_Outcome[Done]],
    stop: StopToken,
) -> None:
    """Take pieces of work until none is left or the token is set."""
    try:
        while not stop():
            try:
                piece = todo.get_nowait()
            except Empty:
                break
            outcomes.put(_Outcome(lane(piece)))
    except BaseException as error:  # noqa: BLE001  raised again in the caller's thread
        outcomes.put(_Outcome(error=error))
