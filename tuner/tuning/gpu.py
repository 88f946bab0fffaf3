"""A GPU of this machine that is held for measuring, with its compile pool and worker processes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic, sleep

from tuner.db.store import Store
from tuner.errors import NoDevice, UsageError
from tuner.measure import device
from tuner.measure.card import CardMonitor, open_monitor
from tuner.measure.compile_pool import CompilePool
from tuner.measure.deadline import ADAPTIVE_DEADLINE, AdaptiveDeadline, CompileSettings
from tuner.measure.lock import GpuLock, lock_path
from tuner.measure.worker_pool import WorkerPool, measure_roofline_limits
from tuner.records import POLICIES, RooflineLimits

AUTO = "auto"


@dataclass(frozen=True)
class MeasureOptions:
    """Options of measuring: the card, and how problems are timed."""

    gpu: str = AUTO
    """`auto`, the number of a GPU, several such as `0,1`, or `all`."""
    replay: str | None = None
    """Name of a recorded space to replay in place of a GPU."""
    policy: str = AUTO
    """Name of a timing policy; `auto` takes a graph for short problems and single launches for others."""
    shared: bool = False
    """Measure even while other processes use the GPU, and mark the answers."""
    vendors: str | None = None
    """Vendors that are timed: `all`, `libraries`, `eager` and names, separated by commas. None: a search takes
    `libraries`, and a bench `all`."""

    def __post_init__(self) -> None:
        if self.policy not in (AUTO, *POLICIES):
            raise UsageError(f"a policy is {', '.join([AUTO, *POLICIES])}, not {self.policy[:40]!r}")


@dataclass(frozen=True)
class WaitSettings:
    """Waiting for other processes on a card."""

    foreign_s: float = 2.0
    """Seconds after which a process that still computes on the card counts as its user."""
    poll_s: float = 0.2
    """Seconds between two looks at the card."""


class HeldGpu:
    """A GPU that one search at a time measures on, from `hold` to `close`.

    Args:
        index: its number, as the CUDA driver counts.
        purpose: shown to the processes that wait for it.
        shared: whether other processes may compute on it meanwhile.
        jobs: compiles at a time; None is one for each usable core.
        adaptive: deadlines of compiles that adapt to their usual time; None is the fixed deadline alone.
        note: receives a sentence if the GPU is waited for or surveyed.
        watches: whether the workers look out for other processes on the card, as for `WorkerPool`.
    """

    def __init__(
        self,
        index: int,
        purpose: str,
        shared: bool,
        jobs: int | None = None,
        adaptive: AdaptiveDeadline | None = ADAPTIVE_DEADLINE,
        *,
        note: Callable[[str], None] = lambda message: None,
        settings: WaitSettings = WaitSettings(),
        watches: bool = True,
    ) -> None:
        self.index = index
        self.compilers = CompilePool(jobs, CompileSettings(adaptive=adaptive))
        self.workers = WorkerPool(index, watches=watches)
        self._purpose, self._shared, self._note, self._settings = purpose, shared, note, settings
        self._lock: GpuLock | None = None
        self._card: CardMonitor | None = None

    def prepare(self) -> CardMonitor:
        """Start a worker process; return the card's monitor, made before any process of ours was on the card."""
        if self._card is None:
            self._card = open_monitor(device.bus_id(self.index))
            self.workers.prepare()
        return self._card

    def hold(self) -> None:
        """Wait until no other search measures on it.

        Raises:
            NoDevice: other processes compute on it, and it is not `shared`.
        """
        if self._lock is not None:
            return
        card = self.prepare()  # a worker starts while the lock is waited for
        self._lock = GpuLock(lock_path(device.bus_id(self.index)), self._purpose, on_wait=self._note)
        foreign = () if self._shared else self._foreign(card)
        if foreign:
            self.close()
            raise NoDevice(
                f"GPU {self.index} is in use by process {', '.join(map(str, foreign))}; wait for it, "
                "or measure beside it with --shared"
            )

    def roofline_limits(self, store: Store) -> RooflineLimits:
        """Return the measured limits of the card; measure and store them if the store has none."""
        card = device.describe(self.index)
        known = store.roofline_limits(card)
        if known is not None:
            return known
        self.hold()
        self._note("Measuring the roofline limits of this card, once.")
        worker = self.workers.take()
        try:
            measured = measure_roofline_limits(worker)
        except BaseException:  # a survey that fails, or Ctrl-C
            worker.kill()
            self.close()
            raise
        self.workers.give_back(worker)
        store.keep_roofline_limits(card, measured)
        return measured

    def close(self) -> None:
        """End the processes and release the GPU."""
        self.compilers.close()
        self.workers.close()
        if self._lock is not None:
            self._lock.release()
        self._lock = self._card = None

    def _foreign(self, card: CardMonitor) -> tuple[int, ...]:
        """Return the processes that keep computing on the card.

        A worker that another search leaves, or that waits for its turn, makes its context and is idle after a moment.
        """
        until = monotonic() + self._settings.foreign_s
        while (state := card.state()) is not None and state.foreign and monotonic() < until:
            sleep(self._settings.poll_s)
        return state.foreign if state is not None else ()
