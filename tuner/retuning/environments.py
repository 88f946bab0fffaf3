"""Stored answers side by side in two environments on one card, before an upgrade is made.

Each environment has its own compile pool and worker process. They take turns on the card, a few rounds each, so that
drift of the card affects both. Nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from enum import StrEnum
from time import monotonic
from typing import Any

from tuner.db.store import Store
from tuner.errors import StoreError, TunerError
from tuner.kernels.spec import Config, Problem
from tuner.measure import cores, device
from tuner.measure.card import CardMonitor
from tuner.measure.compile_pool import CompilePool
from tuner.measure.gpu import GpuMeasurer
from tuner.measure.measurer import Measurer
from tuner.measure.worker_pool import WorkerPool
from tuner.records import VENDOR, Comparison, Environment, Interval, Measurement, median
from tuner.report.default import failure_text
from tuner.report.text import interval_text
from tuner.retuning.other_environment import OtherEnvironment
from tuner.search.comparison import joined, only_timed
from tuner.search.verdict import VERDICT, interval_of_median, ratio
from tuner.suites.suite import Entry
from tuner.tuning.bench import measure_configs
from tuner.tuning.events import Events
from tuner.tuning.gpu import HeldGpu, MeasureOptions
from tuner.tuning.target import Target, gpu_target


@dataclass(frozen=True)
class EnvironmentSettings:
    """Rounds of a comparison of environments."""

    turn_rounds: int = 5
    """Rounds of one environment before the other has its turn. Source: chosen, some ms of drift at most."""
    precision: float = 1.01
    """Upper over lower end of the ratio's interval at which no more rounds are needed: 0.5 % either way."""
    longest_s: float = 10.0
    """Time limit of the rounds of a problem, in seconds."""
    disturbed: int = 10
    """Turns of a problem that are discarded and repeated because other processes used the card."""


SETTINGS = EnvironmentSettings()


class Change(StrEnum):
    """What another environment does to an answer."""

    SAME = "same"
    """Within 1 %, or no difference is shown."""
    FASTER = "faster"
    SLOWER = "slower"
    BROKEN = "broken"
    """Its config does not compile, crashes or is wrong in the other environment."""
    NOT_MEASURED = "not measured"


@dataclass(frozen=True)
class Side:
    """An answer's config in one environment."""

    latency_us: float
    interval_us: Interval
    vendor_us: float | None
    """Latency of the vendor's implementation; None if it was not timed."""
    ahead: Config | None = None
    """Another stored contender that is ahead there with confidence, by more than 1 %."""
    ahead_by: float | None = None
    """Its speed over that of the answer's config."""


@dataclass(frozen=True)
class Compared:
    """An answer in two environments."""

    problem: Problem
    answer_id: int
    config: Config
    change: Change
    text: str
    """One sentence, for people."""
    here: Side | None = None
    there: Side | None = None
    ratio: float | None = None
    """Latency there over latency here, turn by turn: 1.05 is 5 % slower there."""
    interval: Interval | None = None

    def as_json(self) -> dict[str, Any]:
        """Return the document of the comparison."""

        def side(given: Side | None) -> dict[str, Any] | None:
            return None if given is None else {**asdict(given), "ahead": given.ahead and dict(given.ahead)}

        return {
            "op": self.problem.op,
            "problem": self.problem.values,
            "answer": self.answer_id,
            "config": dict(self.config),
            "change": str(self.change),
            "text": self.text,
            "here": side(self.here),
            "there": side(self.there),
            "ratio": self.ratio,
            "interval": self.interval,
        }


@dataclass(frozen=True)
class Subject:
    """An answer to be compared, and the configs that are timed beside it."""

    entry: Entry
    answer_id: int
    config: Config
    others: tuple[Config, ...] = ()
    """Such as its runner-up. The default is added."""


def compare_environments(
    subjects: Sequence[Subject],
    other: OtherEnvironment,
    store: Store,
    index: int,
    options: MeasureOptions,
    events: Events,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Compared]:
    """Measure each answer in this environment and in another one, in turns on one card.

    Raises:
        NoDevice: other processes compute on the card.
        StoreError: the database cannot be read.
    """
    jobs = max(1, cores.usable() // 2)
    with ExitStack() as stack:
        card = HeldGpu(index, "two environments", options.shared, jobs, note=events.note, watches=False)
        stack.callback(card.close)
        card.hold()
        card.roofline_limits(store)
        there = CompilePool(jobs, python=other.python), WorkerPool(index, python=other.python, watches=False)
        for pool in there:
            stack.callback(pool.close)
        for subject in subjects:
            if stop():
                return
            try:
                compared = _compare(subject, other, card, there, store, options, events, stop)
            except StoreError:
                raise
            except TunerError as error:
                compared = _without_rounds(subject, Change.NOT_MEASURED, str(error))
            if compared is not None:
                yield compared


def _compare(
    subject: Subject,
    other: OtherEnvironment,
    card: HeldGpu,
    pools: tuple[CompilePool, WorkerPool],
    store: Store,
    options: MeasureOptions,
    events: Events,
    stop: Callable[[], bool],
) -> Compared | None:
    """Return the comparison of one answer; None if it was stopped."""
    entry = subject.entry
    target = gpu_target(entry, store, card, options=options, events=events, spare=False)
    if (source := other.sources[entry.reference]) != target.provenance.source:
        text = source if source.startswith("error: ") else "the kernel's source there is another one"
        return _without_rounds(subject, Change.NOT_MEASURED, text)
    configs = [config for config in _contenders(subject, target) if config in target.space]
    if subject.config not in configs:
        return _without_rounds(subject, Change.NOT_MEASURED, "its config is not feasible any more")
    with ExitStack() as stack:
        here = target.measurer()
        stack.callback(here.close)
        there = GpuMeasurer(
            entry.reference,
            entry.problem,
            device.describe(card.index).limits,
            policy=target.policy,
            compilers=pools[0],
            workers=pools[1],
            spare=False,
        )
        stack.callback(there.close)
        return in_turns(subject, configs, (here, there), card.prepare(), stop)


def _contenders(subject: Subject, target: Target) -> list[Config]:
    default = [] if target.default is None else [target.default]
    return list(dict.fromkeys([subject.config, *subject.others, *default]))


def in_turns(
    subject: Subject,
    configs: Sequence[Config],
    measurers: tuple[Measurer, Measurer],
    monitor: CardMonitor,
    stop: Callable[[], bool],
) -> Compared | None:
    """Check the configs in both environments, then time them in turns; return None if it was stopped.

    Args:
        configs: contenders, the answer's config among them.
        measurers: of this environment, and of the other one.
        monitor: of the card.
    """
    alone = [measure_configs(configs, measurer, stop) for measurer in measurers]
    if alone[0] is None or alone[1] is None:
        return None
    if not alone[0][subject.config].ok:
        return _without_rounds(subject, Change.NOT_MEASURED, f"here: {failure_text(alone[0][subject.config])}")
    if not alone[1][subject.config].ok:
        return _without_rounds(subject, Change.BROKEN, failure_text(alone[1][subject.config]))
    right = [[config for config in configs if found[config].ok] for found in alone if found is not None]
    monitor.register_own_processes()  # both workers have their contexts by now
    rounds = _rounds(subject.config, (right[0], right[1]), measurers, monitor, stop)
    if rounds is None:
        return None
    if isinstance(rounds, Measurement):
        return _without_rounds(subject, Change.NOT_MEASURED, failure_text(rounds))
    return judge(subject, right, rounds)


def _rounds(
    own: Config,
    configs: tuple[Sequence[Config], Sequence[Config]],
    measurers: tuple[Measurer, Measurer],
    monitor: CardMonitor,
    stop: Callable[[], bool],
) -> tuple[Comparison, Comparison] | Measurement | None:
    """Return as many rounds of both as the ratio needs, within the time limit; or a failure, or None if stopped."""
    end = monotonic() + SETTINGS.longest_s
    both: list[Comparison | None] = [None, None]
    turn = disturbed = 0
    while True:
        if stop():
            return None
        more: list[Comparison] = []
        for side in (0, 1) if turn % 2 == 0 else (1, 0):
            found = measurers[side].compare(configs[side], SETTINGS.turn_rounds, SETTINGS.longest_s, turn)
            timed = only_timed(configs[side], found)
            if isinstance(timed, Measurement):
                return timed
            more.insert(side, timed)
        turn += 1
        state = monitor.state()
        if state is not None and state.marks and disturbed < SETTINGS.disturbed:
            disturbed += 1
            continue
        both = [joined(before, now) for before, now in zip(both, more, strict=True)]
        here, there = both
        assert here is not None
        assert there is not None
        if len(here.rounds) >= VERDICT.min_rounds:
            low, high = across(here, there, own.text)[1]
            if high <= SETTINGS.precision * low or monotonic() >= end or len(here.rounds) >= VERDICT.max_rounds:
                return here, there


def across(here: Comparison, there: Comparison, contender: str) -> tuple[float, Interval]:
    """Return the latency of a contender there over its latency here, round by round, and the interval."""
    count = min(len(here.rounds), len(there.rounds))
    pairs = zip(there.of(contender)[:count], here.of(contender)[:count], strict=True)
    return ratio(Comparison(("there", "here"), tuple(pairs)), "there", "here")


def judge(subject: Subject, configs: Sequence[Sequence[Config]], rounds: tuple[Comparison, Comparison]) -> Compared:
    """Return what the rounds of two environments say about an answer.

    Args:
        configs: the contenders of each environment besides the vendor.
        rounds: those of this environment, and of the other one.
    """
    here, there = (_side(subject.config, each, found) for each, found in zip(configs, rounds, strict=True))
    found, interval = across(*rounds, subject.config.text)
    change = Change.SAME
    if interval[0] > VERDICT.equivalent:
        change = Change.SLOWER
    elif interval[1] < 1 / VERDICT.equivalent:
        change = Change.FASTER
    text = f"{found:.3f} of its time here ({interval_text(interval, 3)})"
    if there.ahead is not None and here.ahead is None:
        text += f"; another config is {there.ahead_by:.3f} x as fast there: {there.ahead.text}"
    return Compared(
        subject.entry.problem, subject.answer_id, subject.config, change, text, here, there, found, interval
    )


def _side(own: Config, configs: Sequence[Config], rounds: Comparison) -> Side:
    latencies = rounds.of(own.text)
    vendor = median(rounds.of(VENDOR)) if VENDOR in rounds.contenders else None
    ahead: dict[Config, float] = {}
    for config in configs:
        speed, interval = ratio(rounds, own.text, config.text)
        if interval[0] > VERDICT.equivalent:
            ahead[config] = speed
    best = max(ahead, key=lambda config: ahead[config], default=None)
    return Side(median(latencies), interval_of_median(latencies), vendor, best, None if best is None else ahead[best])


def _without_rounds(subject: Subject, change: Change, text: str) -> Compared:
    return Compared(subject.entry.problem, subject.answer_id, subject.config, change, text)


def environments_text(here: Environment, there: Environment) -> str:
    """Return the versions in which two environments differ, such as `Triton 3.6.0 and 3.7.1`; empty if in none."""
    names = {"triton": "Triton", "ptxas": "ptxas", "torch": "PyTorch", "driver": "driver"}
    parts = [
        f"{shown} {getattr(here, name) or 'unknown'} and {getattr(there, name) or 'unknown'}"
        for name, shown in names.items()
        if getattr(here, name) != getattr(there, name)
    ]
    return ", ".join(parts)
