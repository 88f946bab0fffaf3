"""The measurer of a GPU of this machine: a compile pool that runs ahead, and a worker process that launches.

This process never uses CUDA. It sends configs to the pool, sends compiled configs to the worker, one at a time, holds
each stage of a request to its deadline, and replaces the worker if a config has ended it.

Consecutive searches may share compile pool and worker pool, which saves a worker's start of 5 s. The compile pool is
given back once all configs are compiled, the worker once all are measured, so that the next search compiles while this
one compares its finalists.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import wait
from time import monotonic
from typing import Any

from tuner.errors import MeasureError
from tuner.kernels.spec import Config, Limits, Problem
from tuner.measure.compile_pool import CompilePool, failed_compile
from tuner.measure.deadline import COMPILE_SETTINGS, CompileSettings
from tuner.measure.messages import Compile, Compiled, Drop, Measure, Recheck, Rounds, Task
from tuner.measure.vendors_in_use import VendorsInUse
from tuner.measure.worker_pool import WORKER, WorkerPool
from tuner.measure.worker_session import WORKER_SETTINGS, WorkerLost, WorkerSession, WorkerSettings
from tuner.records import COLD, Comparison, Evidence, Measurement, Outcome, Policy
from tuner.records.progress import InProgress


class GpuMeasurer:
    """Measurements of configs of one problem on one GPU.

    Args:
        kernel: reference for `catalog.resolve`; the helper processes load the kernel themselves.
        limits: of the card, for which the pool compiles.
        gpu: index among the GPUs visible to this process.
        jobs: number of concurrent compiles; None is one a usable core.
        policy: how configs are timed.
        vendors: names of the vendors that may take part in comparisons; None is the kernel's own alone.
        each_vendor: whether all of them take part; else the one that is fastest by a short timing does.
        stop_beaten: whether a config that is far behind the best after its first samples gets no more.
        compilers: compile pool to wait for, use and give back; None is an own one with `jobs` and `compile_settings`.
        workers: worker processes of that GPU. One is waited for when there is something to measure, and given back if
            it can serve again.
        spare: whether a second worker starts while the first measures, to replace it after a crash. Its start disturbs
            what is measured meanwhile.
        compile_as: reference by which the compile pool finds the kernel; None is `kernel`.
        on_close: called after `close`.
        worker: module of the worker process, without `workers`.
        settings: deadlines of the worker process.
    """

    def __init__(
        self,
        kernel: str,
        problem: Problem,
        limits: Limits,
        *,
        gpu: int = 0,
        jobs: int | None = None,
        policy: Policy = COLD,
        vendors: tuple[str, ...] | None = None,
        each_vendor: bool = False,
        stop_beaten: bool = True,
        compilers: CompilePool | None = None,
        workers: WorkerPool | None = None,
        spare: bool = True,
        compile_as: str | None = None,
        on_close: Callable[[], None] | None = None,
        worker: str = WORKER,
        compile_settings: CompileSettings = COMPILE_SETTINGS,
        settings: WorkerSettings = WORKER_SETTINGS,
    ) -> None:
        self._task = Task(kernel, problem, limits, policy)
        self._vendors = VendorsInUse(vendors, each_vendor)
        self._stop_beaten = stop_beaten
        self._compilers = compilers or CompilePool(jobs, compile_settings)
        self._workers = workers or WorkerPool(gpu, worker)
        self._spare, self._settings = spare, settings
        self._on_close = [self._compilers.close] * (compilers is None) + [self._workers.close] * (workers is None)
        if on_close is not None:
            self._on_close.append(on_close)
        self._best_us: float | None = None
        self._seed = 0
        self._compiled: deque[Compiled] = deque()
        self._retried: set[Config] = set()
        self._done: deque[Measurement] = deque()
        self._measuring: Compiled | None = None
        self._dropping = False
        self._pool = self._compilers.take(compile_as or kernel, problem, limits)
        self._may_compile = True
        self._compiling = 0
        self._session: WorkerSession | None = None
        """None while another measurer uses the worker."""
        try:
            if self._workers.turn.acquire(blocking=False):
                self._take_worker()
        except BaseException:
            self.close()
            raise

    @property
    def capacity(self) -> int:
        return self._compilers.jobs + self._settings.compiled_ahead

    @property
    def waits_for_device(self) -> bool:
        return self._session is None

    @property
    def in_progress(self) -> InProgress:
        """The configs that it works on now. Any thread may read it."""
        measuring = self._measuring
        return InProgress(self._compiling, len(self._compiled), None if measuring is None else measuring.config.text)

    @property
    def vendors(self) -> tuple[str, ...] | None:
        """Names of the vendors that take part, in the form of the argument: after rounds, of those that ran."""
        return self._vendors.names

    def submit(self, config: Config) -> None:
        assert self._may_compile, "nothing is submitted after settle"
        self._pool.send(Compile(self._task.problem, config))
        self._compiling += 1

    def next(self, timeout_s: float) -> Measurement | None:
        self._worker()
        until = monotonic() + timeout_s
        while not self._done:
            self._start_next()
            self._step(until)
            if monotonic() >= until:
                break
        self._start_next()  # the worker is busy while the caller learns from this result
        return self._done.popleft() if self._done else None

    def settle(self, timeout_s: float) -> Sequence[Measurement]:
        self._worker()
        until = monotonic() + timeout_s
        self._pool.send(Drop())
        self._dropping = True
        while self._dropping or self._measuring is not None:
            self._step(None if self._measuring is None else until)
            if self._measuring is not None and monotonic() >= until:
                self._measuring = None  # neither success nor failure
                self._replace_worker()
        self._compiled.clear()
        self._give_back_pool()
        ended = list(self._done)
        self._done.clear()
        return ended

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        try:
            result = self._answer(Rounds(tuple(configs), rounds, seconds, seed))
        except WorkerLost as lost:
            if lost.stage.vendor:  # it is left out now
                return self.compare(configs, rounds, seconds, seed)
            if lost.stage.config is None:
                raise MeasureError(f"the vendor's kernel ended the GPU worker: {lost}") from lost
            return lost.measurement(lost.stage.config)
        assert isinstance(result, Comparison | Measurement)
        return self._vendors.after(result) if isinstance(result, Comparison) else result

    def recheck(self, configs: Sequence[Config], seed: int) -> Sequence[Evidence | Measurement]:
        return [self._recheck_one(config, seed) for config in configs]

    def close(self) -> None:
        self._give_back_pool()
        if self._session is not None:
            if self._session.idle:
                self._workers.give_back(self._session.process)
            else:
                self._session.process.kill()
            self._workers.turn.release()
        for close in self._on_close:
            close()

    def _start_next(self) -> None:
        """Send the next compiled config to the worker if it is idle."""
        worker = self._worker()
        if worker.idle and self._compiled:
            self._measuring = self._compiled.popleft()
            self._seed += 1
            best_us = self._best_us if self._stop_beaten else None
            worker.request(Measure(self._measuring.config, best_us, self._seed))

    def _recheck_one(self, config: Config, seed: int) -> Evidence | Measurement:
        try:
            result = self._answer(Recheck(config, seed))
        except WorkerLost as lost:
            return lost.measurement(config)
        assert isinstance(result, Measurement | Evidence)
        return result

    def _give_back_pool(self) -> None:
        if self._may_compile:
            self._compilers.give_back(idle=self._compiling == 0)
        self._may_compile = False

    def _worker(self) -> WorkerSession:
        """Return the session with the worker. Blocks while another measurer uses the worker."""
        if self._session is None:
            self._workers.turn.acquire()
            self._take_worker()
        assert self._session is not None
        return self._session

    def _take_worker(self) -> None:
        """Start a session; release the turn if no worker can be started, else other measurers would block forever."""
        try:
            self._session = self._new_session()
        except BaseException:
            self._workers.turn.release()
            raise

    def _new_session(self) -> WorkerSession:
        return WorkerSession(self._workers.take(), self._vendors.of(self._task), self._settings)

    def _replace_worker(self) -> None:
        """Kill the worker. The next one loads the task while the CUDA context of the old one is torn down."""
        old = self._worker().process
        old.end()
        self._session = self._new_session()
        old.kill()

    def _answer(self, request: Recheck | Rounds) -> Any:
        """Return the worker's answer to a request that is made while nothing else is in progress."""
        while not self._worker().idle:
            self._step(None)
        self._worker().request(request)
        try:
            while (answer := self._receive(None)) is None:
                pass
        except WorkerLost as lost:
            self._vendors.leave_out(lost)
            self._replace_worker()
            raise
        self._after(answer)
        return answer

    def _step(self, until: float | None) -> None:
        """Wait for a message of pool or worker, at most until a time of `monotonic()`, and process it."""
        try:
            answer = self._receive(until)
        except WorkerLost as lost:
            if self._worker().starting:
                raise MeasureError(f"the GPU worker did not start: {lost}") from lost
            self._replace_worker()
            if self._measuring is None:  # killed by another process while idle
                return
            if not (lost.by_others and self._retry()):
                self._finish(lost.measurement(self._measuring.config))
            return
        if answer is not None:
            self._after(answer)
            if not (answer.outcome is Outcome.OUT_OF_MEMORY and self._retry()):
                self._finish(answer)

    def _receive(self, until: float | None) -> Any:
        """Return the worker's answer, or None without one. Processes the pool's results on the way.

        Raises:
            WorkerLost: the worker died, or its stage is over its deadline.
        """
        worker = self._worker()
        limits = [when for when in (until, worker.deadline) if when is not None]
        timeout = max(0.0, min(limits) - monotonic()) if limits else None
        ready = wait([worker.process.pipe, *[self._pool.pipe] * self._may_compile], timeout)
        if self._pool.pipe in ready:
            self._receive_compiled()
        if worker.process.pipe in ready:
            starting = worker.starting
            answer = worker.receive()
            if starting and worker.idle and self._spare:  # not before, so that it does not slow this start
                self._workers.prepare()
            return answer
        worker.check_deadline()
        return None

    def _receive_compiled(self) -> None:
        try:
            message = self._pool.receive()
        except EOFError:
            raise MeasureError(f"the compile pool died: {self._pool.exit_text()}") from None
        if isinstance(message, Drop):
            self._dropping = False
            self._compiling = 0
            return
        self._compiling -= 1
        if message.outcome is Outcome.OK:
            self._compiled.append(message)
        else:
            self._done.append(failed_compile(message))

    def _after(self, answer: Any) -> None:
        """Mark the worker idle, or replace it if a config corrupted its context or left its memory full."""
        if isinstance(answer, Measurement) and answer.outcome in (Outcome.CRASHED, Outcome.OUT_OF_MEMORY):
            self._replace_worker()
        else:
            self._worker().become_idle()

    def _retry(self) -> bool:
        """Queue the measured config again, once, after a failure that it may not have caused. Return whether it is."""
        assert self._measuring is not None
        if self._measuring.config in self._retried:
            return False
        self._retried.add(self._measuring.config)
        self._compiled.appendleft(self._measuring)
        self._measuring = None
        return True

    def _finish(self, measurement: Measurement) -> None:
        assert self._measuring is not None
        if measurement.ok:
            self._best_us = min(measurement.latency_us, self._best_us or measurement.latency_us)
        self._done.append(replace(measurement, compile_s=self._measuring.compile_s))
        self._measuring = None
