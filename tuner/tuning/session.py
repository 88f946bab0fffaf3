"""Measuring the problems of a suite, one after the other: on cards that are held meanwhile, or on recorded spaces."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from time import monotonic

from tuner.cli.bench_rows import short
from tuner.cli.effort import Effort
from tuner.cli.text import failures_text, say
from tuner.db.store import Store
from tuner.errors import MeasureError, NoDevice, NothingFound, UsageError
from tuner.kernels.spec import Problem
from tuner.measure import cores, device, recorded
from tuner.search.loop import Budget
from tuner.suites.suite import Entry, Suite
from tuner.tuning.bench import Row, Subject, bench
from tuner.tuning.kept_rows import Kept
from tuner.tuning.lanes import Stop
from tuner.tuning.run import TRIALS, stored_answer
from tuner.tuning.stand_in import none_recorded, say_what_stands_in
from tuner.tuning.target import HeldGpu, Target, gpu_target, recorded_target


@dataclass(frozen=True)
class Lane:
    """Where problems are measured, one after the other: a card that is held, or the recorded spaces."""

    device: str
    source: Callable[[Entry, bool], Target]
    """Of a problem; the flag says whether for a search, in which workers may be lost."""


@dataclass(frozen=True)
class Session:
    """What the problems of a suite share."""

    store: Store
    kept: Kept
    search_s: float | None

    def row(self, lane: Lane, entry: Entry, stop: Stop) -> Row | None:
        """Of one problem: searched first if it is untuned and that was asked for; None if it was stopped."""
        started = monotonic()
        try:
            source = lane.source(entry, False)
            subject = self._subject(entry, source)
            if subject.answer is None and self.search_s is not None:
                self._search(lane, entry, self.search_s, stop)
                subject = self._subject(entry, source)
            row = self.kept.row(subject)
            if row is not None:
                return row
            measurer = source.measurer()
            try:
                row = bench(subject, measurer, stop=stop)
            finally:
                measurer.close()
        except (NothingFound, MeasureError) as error:
            row = Row(entry.problem, lane.device, "failed", error=str(error))
        return row and replace(row, seconds=monotonic() - started)

    def _subject(self, entry: Entry, source: Target) -> Subject:
        found = stored_answer(self.store, source, entry.problem)
        exact = found.stored is not None and not found.differences
        return Subject(
            entry.problem,
            source.provenance,
            answer=found.stored.answer.config if found.stored is not None and exact else None,
            default=source.default,
            flops=source.flops,
            bytes=source.bytes,
            roofline_limits=source.roofline_limits or self.store.roofline_limits(source.provenance.device),
        )

    def _search(self, lane: Lane, entry: Entry, seconds: float, stop: Stop) -> None:
        result = Effort(Budget(TRIALS, seconds)).search(entry, lane.source(entry, True), self.store, stop)
        if result.verdict is None and not stop():
            say(
                f"{short(entry.problem)}: no answer in {seconds:g} s; {failures_text(result.failures) or 'none failed'}"
            )


def chosen_gpus(chosen: str) -> list[int]:
    """The GPUs that `auto`, `all` or `0,1` name; [] where `auto` finds none."""
    words = [str(index) for index in range(device.count())] if chosen == "all" else chosen.split(",")
    if not words:
        raise NoDevice("--gpu all was asked for, and the driver shows none")
    gpus = list(dict.fromkeys(index for word in words if (index := device.choose(word)) is not None))
    models = sorted({device.describe(index).id for index in gpus})
    if len(models) > 1:
        raise UsageError(f"a suite is measured on cards of one model, not on {', '.join(models)}; name some with --gpu")
    return gpus


@contextmanager
def on_cards(gpus: Sequence[int], what: str, store: Store, policy: str, shared: bool) -> Iterator[list[Lane]]:
    """The cards, held for the whole suite; their compile pools share the cores."""
    jobs = max(1, cores.usable() // len(gpus))
    with ExitStack() as stack:
        cards = [HeldGpu(index, what, shared, jobs) for index in gpus]
        for card in cards:
            stack.callback(card.close)
            card.prepare()  # all of them get ready while we hold one after the other
        for card in cards:
            card.hold()
        cards[0].roofline_limits(store)  # once for all, as they are of one model
        yield [_on_card(card, store, policy) for card in cards]


def _on_card(card: HeldGpu, store: Store, policy: str) -> Lane:
    def source(entry: Entry, searching: bool) -> Target:
        return gpu_target(entry.reference, entry.problem, store, card, policy=policy, spare=searching)

    return Lane(device.describe(card.index).id, source)


def on_recorded(suite: Suite, replay: str | None, policy: str) -> tuple[Suite, Lane]:
    """The problems that were recorded, and where they are replayed."""

    def of(problem: Problem) -> list[recorded.RecordedSpace]:
        return recorded.of_problem(problem) if replay is None else [recorded.load(replay, problem.op)]

    found = {entry.problem.text: spaces for entry in suite.entries if (spaces := of(entry.problem))}
    entries = tuple(entry for entry in suite.entries if entry.problem.text in found)
    if not entries:
        raise none_recorded([entry.problem for entry in suite.entries])
    if replay is None:
        say_what_stands_in([*found.values()], left_out=len(suite.entries) - len(entries))
    return Suite(suite.name, entries), Lane(
        "", lambda entry, searching: recorded_target(found[entry.problem.text][0], entry.problem, policy)
    )
