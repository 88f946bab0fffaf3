"""The compile pool, handed from one search to the next: started once, at work while the card is at another's."""

from __future__ import annotations

from threading import Lock

from tuner.kernels.spec import Limits, Problem
from tuner.measure import cores
from tuner.measure.deadline import ADAPTIVE_DEADLINE, AdaptiveDeadline
from tuner.measure.messages import Pool
from tuner.measure.processes import Child

_GRACE_S = 2.0
"""It ends its compilers, which are in groups of their own."""


class CompilePool:
    """One search has them at a time; the next one waits until that has given them back.

    Args:
        jobs: compiles at once; None is one a usable core.
        deadline_s: seconds a compile may take.
        adaptive: where it may take less.
    """

    def __init__(
        self, jobs: int | None = None, deadline_s: float = 30.0, adaptive: AdaptiveDeadline | None = ADAPTIVE_DEADLINE
    ) -> None:
        self.jobs = jobs or cores.usable()
        self._deadline_s, self._adaptive = deadline_s, adaptive
        self._turn = Lock()
        self._idle: tuple[str, Limits, Child] | None = None
        self._taken: tuple[str, Limits, Child] | None = None

    def prepare(self, kernel: str, problem: Problem, limits: Limits) -> None:
        """Lets a pool get ready that will be taken; nothing while there is one."""
        if self._turn.acquire(blocking=False):
            try:
                if self._idle is None:
                    self._idle = (kernel, limits, self._started(kernel, problem, limits))
            finally:
                self._turn.release()

    def take(self, kernel: str, problem: Problem, limits: Limits) -> Child:
        """A pool that compiles a kernel for such a card, the one that is there if it does."""
        self._turn.acquire()
        try:
            if self._idle is not None and (self._idle[:2] != (kernel, limits) or not self._idle[2].runs):
                self.close()
            self._taken = self._idle or (kernel, limits, self._started(kernel, problem, limits))
        except BaseException:
            self._turn.release()  # or the next one would wait for ever
            raise
        self._idle = None
        return self._taken[2]

    def give_back(self, *, idle: bool) -> None:
        """Lets the next one have them. A pool that is not idle is ended with all that it was at."""
        assert self._taken is not None
        if idle:
            self._idle = self._taken
        else:
            self._taken[2].kill(_GRACE_S)
        self._taken = None
        self._turn.release()

    def close(self) -> None:
        """Ends a pool that nobody has."""
        if self._idle is not None:
            self._idle[2].kill(_GRACE_S)
        self._idle = None

    def _started(self, kernel: str, problem: Problem, limits: Limits) -> Child:
        pool = Child("tuner.measure.compile")
        pool.send(Pool(kernel, problem, limits, self.jobs, self._deadline_s, self._adaptive))
        return pool
