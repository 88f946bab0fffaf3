"""Where a search's measurements come from: a GPU here, or a recorded space that stands in for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from time import monotonic, sleep

import tuner
from tuner import catalog
from tuner.cli.text import say
from tuner.db.store import Store
from tuner.errors import MeasureError, NoDevice, NothingFound, UsageError
from tuner.kernels.spec import Config, Problem
from tuner.lookup.table import Query
from tuner.measure import device, recorded
from tuner.measure.card import CardMonitor, open_monitor
from tuner.measure.compile_pool import CompilePool
from tuner.measure.deadline import ADAPTIVE_DEADLINE, AdaptiveDeadline
from tuner.measure.gpu import GpuMeasurer, WorkerPool, measure_roofline_limits
from tuner.measure.lock import GpuLock, lock_path
from tuner.measure.measurer import Measurer
from tuner.records import POLICIES, Comparison, Policy, Provenance, RooflineLimits
from tuner.search.space import feasible
from tuner.tuning.stand_in import none_recorded, say_what_stands_in

AUTO = "auto"
_SHORT_US = 5.0
"""A problem that the card could do in less is timed in a graph: events alone cost 2 us, and vary by 0.3."""
_MOMENT_S = 2.0
"""Who is still on the card after this is there to stay."""
_LAUNCH_BOUND = 2.0
"""An answer below this many times an empty kernel's latency is launching more than anything else."""


@dataclass(frozen=True)
class Target:
    """All that a search needs to know of what it searches on."""

    space: Sequence[Config]
    default: Config | None
    provenance: Provenance
    policy: Policy
    flops: int
    bytes: int
    measurer: Callable[[], Measurer]
    """Starts measuring; called when there is something to measure."""
    roofline_limits: RooflineLimits | None = None

    def asks(self, problem: Problem) -> Query:
        """The question to which an earlier answer from this source is exact, but for being recorded."""
        provenance = self.provenance
        return Query.here(problem, provenance.environment, provenance.source, policy=provenance.policy)

    def marks(self, latency_us: float, comparison: Comparison) -> tuple[str, ...]:
        """What to know of an answer's numbers."""
        floor = 0.0 if self.roofline_limits is None else self.roofline_limits.launch_us.get(self.policy.text, 0.0)
        return (*comparison.marks, *["launch_bound"] * (latency_us < _LAUNCH_BOUND * floor))


def choose_target(
    reference: str, problem: Problem, store: Store, *, gpu: str, replay: str | None, policy: str, shared: bool
) -> Target:
    """The recorded space called `replay`; else the GPU; else a recorded space of the problem, and says so.

    Raises:
        NoDevice: no GPU and no recorded space of the problem; the message names the op's.
    """
    if replay is not None:
        return recorded_target(recorded.load(replay, problem.op), problem, policy)
    index = device.choose(gpu)
    if index is not None:
        return gpu_target(reference, problem, store, index, policy=policy, shared=shared)
    spaces = recorded.of_problem(problem)
    if not spaces:
        raise none_recorded([problem])
    say_what_stands_in([spaces])
    return recorded_target(spaces[0], problem, policy)


def recorded_target(space: recorded.RecordedSpace, problem: Problem, policy: str) -> Target:
    """A recorded space as a source."""
    if space.problem != problem:
        raise UsageError(f"{space.name} records {space.problem.text}, not {problem.text}")
    if policy != AUTO and POLICIES[policy] != space.policy:
        raise UsageError(f"{space.name} was timed by policy {space.policy.text}, not {POLICIES[policy].text}")
    return Target(
        space=[measurement.config for measurement in space.measurements],
        default=space.default,
        provenance=Provenance(
            space.device, space.environment, space.source, space.policy.text, space.name, tuner.__version__
        ),
        policy=space.policy,
        flops=space.flops,
        bytes=space.bytes,
        measurer=lambda: recorded.RecordedMeasurer(space),
    )


def gpu_target(
    reference: str,
    problem: Problem,
    store: Store,
    gpu: int | HeldGpu,
    *,
    policy: str = AUTO,
    shared: bool = False,
    stop_beaten: bool = True,
    spare: bool = True,
) -> Target:
    """A GPU of this machine as a source. Its ceilings are measured if the store does not have them.

    Args:
        gpu: one that is held, and stays so when the measurer is closed; or the index of one that is held from the first
            measurement until then.
        shared: of a GPU that is not held yet.
        stop_beaten: as for `GpuMeasurer`; where all is wanted in full, a slow compile is waited for too.
        spare: as for `GpuMeasurer`.

    Raises:
        NothingFound: no config is valid.
        NoDevice: others compute on the card, and it was not said that it may be `shared`.
    """
    held = (
        gpu
        if isinstance(gpu, HeldGpu)
        else HeldGpu(gpu, problem.text, shared, adaptive=ADAPTIVE_DEADLINE if stop_beaten else None)
    )
    with ExitStack() as undo:  # what got ready early, where something is wrong
        if held is not gpu:
            undo.callback(held.close)
        card = device.describe(held.index)
        if surveys := store.roofline_limits(card) is None:
            held.prepare()  # a worker gets ready for that while we go on
        kernel = catalog.resolve(reference)
        if surveys:
            held.compilers.prepare(reference, problem, card.limits)
        space = list(feasible(kernel, problem, card.limits))
        if not space:
            raise NothingFound(f"no config of {problem.op} is valid for {problem.text} on {card.name}")
        default = kernel.default_config(problem, card.limits)
        if default not in set(space):
            say(f"The kernel's default is not valid for {problem.text} on {card.name}, and is left out.")
        roofline_limits = held.roofline_limits(store)
        flops, bytes = kernel.flops(problem), kernel.bytes(problem)
        timed = POLICIES[_automatic(roofline_limits.roofline_us(problem, flops, bytes)) if policy == AUTO else policy]
        undo.pop_all()

    def measurer() -> Measurer:
        held.hold()
        return GpuMeasurer(
            reference,
            problem,
            card.limits,
            policy=timed,
            stop_beaten=stop_beaten,
            compilers=held.compilers,
            workers=held.workers,
            spare=spare,
            on_close=None if held is gpu else held.close,
        )

    return Target(
        space=space,
        default=default if default in set(space) else None,
        provenance=Provenance(card, device.environment(held.index), kernel.source, timed.text, None, tuner.__version__),
        policy=timed,
        flops=flops,
        bytes=bytes,
        measurer=measurer,
        roofline_limits=roofline_limits,
    )


def _automatic(roofline_us: float) -> str:
    return "graph" if roofline_us < _SHORT_US else "cold"


def _foreign(card: CardMonitor) -> tuple[int, ...]:
    """Who keeps computing on it. A worker that another search leaves, or that waits its turn as ours does, is there for
    a moment: it makes its context and is still."""
    until = monotonic() + _MOMENT_S
    while (state := card.state()) is not None and state.foreign and monotonic() < until:
        sleep(_MOMENT_S / 10)
    return state.foreign if state is not None else ()


class HeldGpu:
    """A card that is held until it is closed, and the compilers and workers for it.

    Args:
        what: it is held for, told to those who wait.
        shared: whether others may compute on it meanwhile.
        jobs: compiles at once for it; None is one a usable core.
        adaptive: where a compile may take less than the usual deadline.
    """

    def __init__(
        self,
        index: int,
        what: str,
        shared: bool,
        jobs: int | None = None,
        adaptive: AdaptiveDeadline | None = ADAPTIVE_DEADLINE,
    ) -> None:
        self.index = index
        self.compilers = CompilePool(jobs, adaptive=adaptive)
        self.workers = WorkerPool(index)
        self._what, self._shared = what, shared
        self._lock: GpuLock | None = None
        self._card: CardMonitor | None = None

    def prepare(self) -> CardMonitor:
        """Lets a worker get ready; the card as it was before, where that is none of the others."""
        if self._card is None:
            self._card = open_monitor(device.bus_id(self.index))
            self.workers.prepare()
        return self._card

    def hold(self) -> None:
        """Waits until no other search measures on it.

        Raises:
            NoDevice: others compute on it all the same.
        """
        if self._lock is not None:
            return
        card = self.prepare()  # a worker gets ready while we wait
        self._lock = GpuLock(lock_path(device.bus_id(self.index)), self._what, on_wait=say)
        foreign = () if self._shared else _foreign(card)
        if foreign:
            self.close()
            raise NoDevice(
                f"GPU {self.index} is in use by process {', '.join(map(str, foreign))}; wait for it, "
                "or measure beside it with --shared"
            )

    def roofline_limits(self, store: Store) -> RooflineLimits:
        """What it reaches at best, measured if the store does not have it."""
        card = device.describe(self.index)
        known = store.roofline_limits(card)
        if known is not None:
            return known
        self.hold()
        say("Measuring what this card reaches at best, once.")
        worker = self.workers.take()
        try:
            measured = measure_roofline_limits(worker)
        except MeasureError:
            worker.kill()
            self.close()
            raise
        self.workers.give_back(worker)
        store.keep_roofline_limits(card, measured)
        return measured

    def close(self) -> None:
        """Lets the next one in."""
        self.compilers.close()
        self.workers.close()
        if self._lock is not None:
            self._lock.release()
        self._lock = self._card = None
