"""The compile pool that consecutive searches share: it compiles for the next search while another one measures."""

from __future__ import annotations

from threading import Lock

from tuner.kernels.spec import Limits, Problem
from tuner.measure import cores
from tuner.measure.deadline import COMPILE_SETTINGS, CompileSettings
from tuner.measure.messages import Compiled, Pool
from tuner.measure.processes import Child
from tuner.records import Measurement


class CompilePool:
    """The pool's process, used by one search at a time; `take` blocks until the search before gives it back.

    Args:
        jobs: number of concurrent compiles; None is one a usable core.
        settings: deadlines and niceness of the compiles.
        python: interpreter of the processes; None is that of this process.
    """

    def __init__(
        self, jobs: int | None = None, settings: CompileSettings = COMPILE_SETTINGS, python: str | None = None
    ) -> None:
        self.jobs = jobs or cores.usable()
        self._settings, self._python = settings, python
        self._turn = Lock()
        self._idle: tuple[str, Limits, Child] | None = None
        self._taken: tuple[str, Limits, Child] | None = None

    def prepare(self, kernel: str, problem: Problem, limits: Limits) -> None:
        """Start a process ahead of `take`, unless one runs already."""
        if self._turn.acquire(blocking=False):
            try:
                if self._idle is None:
                    self._idle = (kernel, limits, self._start(kernel, problem, limits))
            finally:
                self._turn.release()

    def take(self, kernel: str, problem: Problem, limits: Limits) -> Child:
        """Return a process that compiles the kernel for such a card: the idle one if it does, else a new one."""
        self._turn.acquire()
        try:
            if self._idle is not None and (self._idle[:2] != (kernel, limits) or not self._idle[2].runs):
                self.close()
            self._taken = self._idle or (kernel, limits, self._start(kernel, problem, limits))
        except BaseException:
            self._turn.release()  # else the next search would block forever
            raise
        self._idle = None
        return self._taken[2]

    def give_back(self, *, idle: bool) -> None:
        """Release the process for the next search. Kill it with its compilers if it is not idle."""
        assert self._taken is not None
        if idle:
            self._idle = self._taken
        else:
            self._taken[2].kill(self._settings.exit_grace_s)
        self._taken = None
        self._turn.release()

    def close(self) -> None:
        """End the process if no search uses it."""
        if self._idle is not None:
            self._idle[2].kill(self._settings.exit_grace_s)
        self._idle = None

    def _start(self, kernel: str, problem: Problem, limits: Limits) -> Child:
        process = Child("tuner.measure.compile", python=self._python)
        process.send(Pool(kernel, problem, limits, self.jobs, self._settings))
        return process


def failed_compile(result: Compiled) -> Measurement:
    """Return the failed measurement of a config that did not compile."""
    return Measurement(
        result.config,
        result.outcome,
        stage="compile",
        error=result.error,
        compile_s=result.compile_s,
        compiled_by="pool",
        shared_bytes=result.shared_bytes,
    )
