"""Stored answers side by side in two environments on one card, before an upgrade is made.

Each environment has its own compile pool and worker process. They take turns on the card, a few rounds each, so that
drift of the card affects both. Nothing is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from time import monotonic

from tuner.db.store import Store
from tuner.errors import StoreError, TunerError
from tuner.kernels.spec import Config
from tuner.kernels.vendors import EAGER
from tuner.measure import cores, device
from tuner.measure.card import CardMonitor
from tuner.measure.compile_pool import CompilePool
from tuner.measure.gpu import GpuMeasurer
from tuner.measure.measurer import Measurer
from tuner.measure.worker_pool import WorkerPool
from tuner.records import Comparison, Measurement
from tuner.report.default import failure_text
from tuner.retuning.check import Known
from tuner.retuning.compared import Change, Compared, across, judge
from tuner.retuning.other_environment import OtherEnvironment
from tuner.retuning.selection import Chosen
from tuner.search.comparison import joined, only_timed
from tuner.search.verdict import VERDICT
from tuner.suites.suite import Entry
from tuner.tuning.bench import measure_configs
from tuner.tuning.events import Events
from tuner.tuning.gpu import AUTO, HeldGpu, MeasureOptions
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
    """Turns of a problem that are discarded and repeated because other processes used the card, or it throttled."""


SETTINGS = EnvironmentSettings()


@dataclass(frozen=True)
class Subject:
    """An answer to be compared, and the configs that are timed beside it."""

    entry: Entry
    answer_id: int
    config: Config
    others: tuple[Config, ...] = ()
    """Such as its runner-up. The default is added."""
    policy: str = AUTO
    """Name of the timing policy."""

    @staticmethod
    def of(chosen: Chosen, store: Store) -> Subject:
        """Return a selected answer with the config that comes next after its own."""
        stored = chosen.stored
        next_best = tuple(Known.of(stored, store, chosen.entry.signature).candidates[:1])
        return Subject(chosen.entry, stored.id, stored.answer.config, next_best, chosen.policy)


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
    how = replace(options, policy=subject.policy, vendors=EAGER)
    target = gpu_target(entry, store, card, options=how, events=events, spare=False)
    if (source := other.sources[entry.reference]) != target.provenance.source:
        text = source if source.startswith("error: ") else "the kernel's source there is another one"
        return _without_rounds(subject, Change.NOT_MEASURED, text)
    configs = [config for config in _contenders(subject, target) if config in target.space]
    if subject.config not in configs:
        text = f"its config is not feasible any more: {target.why_not(subject.config)}"
        return _without_rounds(subject, Change.NOT_MEASURED, text)
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
        return in_turns(subject, configs, (here, there), card.prepare(), stop, is_shared=options.shared)


def _contenders(subject: Subject, target: Target) -> list[Config]:
    default = [] if target.default is None else [target.default]
    return list(dict.fromkeys([subject.config, *subject.others, *default]))


@dataclass(frozen=True)
class _Failed:
    """A config that failed in one of two environments."""

    side: int
    """0: this environment; 1: the other one."""
    measurement: Measurement


def in_turns(
    subject: Subject,
    configs: Sequence[Config],
    measurers: tuple[Measurer, Measurer],
    monitor: CardMonitor,
    stop: Callable[[], bool],
    *,
    is_shared: bool = False,
) -> Compared | None:
    """Check the configs in both environments, then time them in turns; return None if it was stopped.

    Args:
        configs: contenders, the answer's config among them.
        measurers: of this environment, and of the other one.
        monitor: of the card.
        is_shared: whether other processes may use the card.
    """
    alone = [found for measurer in measurers if (found := measure_configs(configs, measurer, stop)) is not None]
    if len(alone) < len(measurers):
        return None
    for side, found in enumerate(alone):
        if not found[subject.config].ok:
            return _failed(subject, _Failed(side, found[subject.config]))
    right = [[config for config in configs if found[config].ok] for found in alone]
    monitor.register_own_processes()  # both workers have their contexts by now
    rounds = _rounds(subject.config, right, measurers, monitor, stop, is_shared)
    while isinstance(rounds, _Failed):
        if rounds.measurement.config == subject.config:
            return _failed(subject, rounds)
        right[rounds.side].remove(rounds.measurement.config)
        rounds = _rounds(subject.config, right, measurers, monitor, stop, is_shared)
    if rounds is None:
        return None
    if isinstance(rounds, str):
        return _without_rounds(subject, Change.NOT_MEASURED, rounds)
    return judge(subject.entry.problem, subject.answer_id, subject.config, right, rounds)


def _rounds(
    own: Config,
    configs: Sequence[Sequence[Config]],
    measurers: tuple[Measurer, Measurer],
    monitor: CardMonitor,
    stop: Callable[[], bool],
    is_shared: bool,
) -> tuple[Comparison, Comparison] | _Failed | str | None:
    """Return enough rounds of both within the time limit; or why there are none; or None if it was stopped.

    Args:
        configs: contenders of each environment.
    """
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
                return _Failed(side, timed)
            more.insert(side, timed)
        turn += 1
        state = monitor.state()
        marks = () if state is None else state.marks
        if marks and disturbed < SETTINGS.disturbed:
            disturbed += 1
            continue
        if "contended" in marks and not is_shared:
            return "other processes used the card; run it again, or measure beside them with --shared"
        both = [joined(before, now) for before, now in zip(both, more, strict=True)]
        here, there = both
        assert here is not None
        assert there is not None
        if len(here.rounds) >= VERDICT.min_rounds:
            low, high = across(here, there, own.text)[1]
            if high <= SETTINGS.precision * low or monotonic() >= end or len(here.rounds) >= VERDICT.max_rounds:
                return here, there


def _failed(subject: Subject, failed: _Failed) -> Compared:
    """Return what a failure of the answer's own config says."""
    text = failure_text(failed.measurement)
    return (
        _without_rounds(subject, Change.BROKEN, text)
        if failed.side
        else _without_rounds(subject, Change.NOT_MEASURED, f"here: {text}")
    )


def _without_rounds(subject: Subject, change: Change, text: str) -> Compared:
    return Compared(subject.entry.problem, subject.answer_id, subject.config, change, text)
