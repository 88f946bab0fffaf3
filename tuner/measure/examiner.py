"""Examination of several configs by the processes of a GPU: compiled in parallel, then run one after the other.

Configs that have the same outputs within tolerance form a group. A config is compared with the first of each group, the
largest group first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from time import monotonic

from tuner.errors import MeasureError
from tuner.kernels.spec import Config, Limits, Problem
from tuner.measure.compile_pool import CompilePool, failed_compile
from tuner.measure.messages import FILL, Compile, Compiled, Examine, Ran, Task
from tuner.measure.worker_pool import WorkerPool
from tuner.measure.worker_session import WORKER_SETTINGS, WorkerLost, WorkerSession, WorkerSettings
from tuner.records import Measurement, Outcome

_POLL_S = 0.2
"""Polling interval of the stop token, in seconds."""


@dataclass
class Groups:
    """Configs that ran, in groups whose outputs agree, and configs that failed."""

    groups: list[list[Ran]] = field(default_factory=list)
    failed: list[Measurement] = field(default_factory=list)

    @property
    def largest(self) -> list[list[Ran]]:
        """All groups of the largest size, in the order of their first configs."""
        most = max(map(len, self.groups), default=0)
        return [group for group in self.groups if len(group) == most]

    @property
    def representatives(self) -> tuple[Config, ...]:
        """The first config of each group, the largest group first."""
        return tuple(group[0].config for group in sorted(self.groups, key=len, reverse=True))

    def add(self, ran: Ran) -> None:
        """Add a config to the group that it agrees with, or as a new one."""
        for group in self.groups:
            if group[0].config == ran.agrees:
                group.append(ran)
                return
        self.groups.append([ran])

    def drop(self, failed: Measurement) -> None:
        """Take a config out of its group, since it failed when it ran again."""
        for group in self.groups:
            group[:] = [ran for ran in group if ran.config != failed.config]
        self.groups = [group for group in self.groups if group]
        self.failed.append(failed)


class _Stopped(Exception):
    """The stop token was set while a worker was waited for."""


class Examiner:
    """Examines configs of one problem of a kernel whose roles and right results are unknown.

    Args:
        kernel: reference of the kernel, each of whose tensors may be written.
        reset: tensors that are zeroed before each launch.
        stop: polled between configs.
    """

    def __init__(
        self,
        kernel: str,
        problem: Problem,
        limits: Limits,
        *,
        reset: Sequence[str],
        compilers: CompilePool,
        workers: WorkerPool,
        stop: Callable[[], bool] = lambda: False,
        settings: WorkerSettings = WORKER_SETTINGS,
    ) -> None:
        self._task = Task(kernel, problem, limits, examines=True)
        self._reset, self._read = tuple(reset), tuple[str, ...]()
        self._compilers, self._workers, self._stop, self._settings = compilers, workers, stop, settings
        self._session: WorkerSession | None = None

    def examine(self, configs: Sequence[Config]) -> Groups:
        """Examine the configs in their order, until the token is set.

        A config that does not compile, hangs, crashes or runs out of memory counts as failed.

        Raises:
            MeasureError: the processes cannot be kept alive.
        """
        found, compiled = Groups(), self._compiled(configs)
        found.failed += [failed_compile(result) for result in compiled.values() if result.outcome is not Outcome.OK]
        with self._workers.turn, suppress(_Stopped):
            try:
                for config in configs:
                    if self._stop():
                        break
                    if config in compiled and compiled[config].outcome is Outcome.OK:
                        self._examine(config, found)
            finally:
                self._end()
        return found

    def _compiled(self, configs: Sequence[Config]) -> dict[Config, Compiled]:
        """Compile all configs at once."""
        pool = self._compilers.take(self._task.kernel, self._task.problem, self._task.limits)
        compiled: dict[Config, Compiled] = {}
        try:
            for config in configs:
                pool.send(Compile(self._task.problem, config))
            while len(compiled) < len(configs) and not self._stop():
                if wait([pool.pipe], _POLL_S):
                    result = pool.receive()
                    compiled[result.config] = result
        except EOFError:
            raise MeasureError(f"the compile pool died: {pool.exit_text()}") from None
        finally:
            self._compilers.give_back(idle=len(compiled) == len(configs))
        return compiled

    def _examine(self, config: Config, found: Groups) -> None:
        """Examine one config. Repeat it if it failed on other contents of a tensor, or if a representative failed."""
        retried = False
        while True:
            try:
                result = self._answer(Examine(config, found.representatives, 0, self._reset, self._read))
            except WorkerLost as lost:
                self._replace()
                if lost.by_others and not retried:
                    retried = True
                    continue
                of = lost.stage.config or config
                result = lost.measurement(of)
            else:
                if isinstance(result, Measurement) and result.outcome in (Outcome.CRASHED, Outcome.OUT_OF_MEMORY):
                    self._replace()
            if isinstance(result, Ran):
                found.add(result)
                return
            if result.stage.startswith(FILL):  # the config reads this tensor
                self._read += (result.stage.removeprefix(FILL),)
                continue
            found.drop(result)
            if result.config == config:
                return

    def _answer(self, request: Examine) -> Ran | Measurement:
        """Return the worker's answer.

        Raises:
            WorkerLost: the worker died, or its stage is over its deadline.
        """
        worker = self._started()
        worker.request(request)
        while (answer := self._next(worker)) is None:
            pass
        worker.become_idle()
        assert isinstance(answer, Ran | Measurement)
        return answer

    def _started(self) -> WorkerSession:
        """Return a worker that has loaded the task."""
        if self._session is None:
            self._session = WorkerSession(self._workers.take(), self._task, self._settings)
        try:
            while not self._session.idle:
                self._next(self._session)
        except WorkerLost as lost:
            raise MeasureError(f"the GPU worker did not start: {lost}") from lost
        return self._session

    def _replace(self) -> None:
        """Kill the worker. The next request starts another."""
        if self._session is not None:
            self._session.process.kill()
        self._session = None

    def _end(self) -> None:
        """Give the worker back if it is idle."""
        if self._session is not None and self._session.idle:
            self._workers.give_back(self._session.process)
            self._session = None
        self._replace()

    def _next(self, worker: WorkerSession) -> Ran | Measurement | None:
        """Return the worker's answer, or None if there is none yet.

        Raises:
            WorkerLost: the worker died, or its stage is over its deadline.
            _Stopped: the token is set.
        """
        limit = worker.deadline
        if wait([worker.process.pipe], _POLL_S if limit is None else min(_POLL_S, max(0.0, limit - monotonic()))):
            answer: Ran | Measurement | None = worker.receive()
            return answer
        if self._stop():
            raise _Stopped
        worker.check_deadline()
        return None
