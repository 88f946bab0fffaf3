"""Measuring on a GPU of this machine: a compile pool that runs ahead and a worker that launches.

This process never touches CUDA. It hands configs to the pool, hands what compiled to the worker, one at a time, holds
every stage of a request to a deadline, and goes on with a spare worker when a config took the old one along.

Searches may follow each other with the same compilers and workers, which saves the 5 s that a new worker takes to
start. The compilers are given back when all is compiled, the worker when all is measured: so the next problem's first
configs compile while this one's finalists meet.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing.connection import wait
from threading import Lock
from time import monotonic
from typing import Any

from tuner.errors import MeasureError
from tuner.kernels.spec import Config, Limits, Problem
from tuner.measure.compile_pool import CompilePool
from tuner.measure.device import bus_id
from tuner.measure.messages import (
    Compile,
    Compiled,
    Drop,
    Measure,
    MeasureRooflineLimits,
    Ready,
    Recheck,
    Rounds,
    Stage,
    Task,
    Unable,
)
from tuner.measure.processes import CARD, Child
from tuner.records import COLD, Comparison, Evidence, Measurement, Outcome, Policy, RooflineLimits

_START_S = 120.0
"""A worker imports torch and makes a context in about 5 s; from a cold disk it takes longer."""
_AHEAD = 4
"""Compiled configs waiting for the worker, so that it never waits for the pool."""
_WORKER = "tuner.measure.worker"


class _WorkerLost(Exception):
    """The worker died or was killed while it held a request, or a config of several in it."""

    def __init__(self, outcome: Outcome, stage: Stage, text: str, *, by_others: bool = False) -> None:
        super().__init__(text)
        self.outcome, self.stage = outcome, stage
        self.by_others = by_others
        """Something outside killed it, such as the system when memory ran out."""

    def measurement(self, config: Config) -> Measurement:
        """What this says of the config in hand."""
        return Measurement(config, self.outcome, stage=self.stage.name, error=str(self))


_WAITING, _STARTING, _IDLE = Stage("wait"), Stage("start"), Stage("idle")


class GpuMeasurer:
    """Measures configs of one problem on one GPU.

    Args:
        kernel: what `catalog.resolve` takes; the helper processes load it themselves.
        limits: of the card, for which the pool compiles.
        gpu: index among the GPUs this process is shown.
        jobs: compiles at once; None is one a usable core.
        compile_s: seconds a compile may take.
        compilers: in place of own ones with those two; waited for, and given back.
        measure_s: seconds that each of launching, checking and timing one config may take.
        policy: how to time.
        stop_beaten: whether configs that a first look shows to be far behind the best get no more than that look.
        workers: of that GPU; they are waited for when there is something to measure, left to the caller, and get back
            the one in use if it can serve again.
        spare: whether a second worker gets ready while the first works, for when a config takes that along. Its start
            can be seen in what is measured meanwhile.
        on_close: called when all is closed.
        worker: the module to run as worker, where no `workers` are given.
    """

    def __init__(
        self,
        kernel: str,
        problem: Problem,
        limits: Limits,
        *,
        gpu: int = 0,
        jobs: int | None = None,
        compile_s: float = 30.0,
        measure_s: float = 10.0,
        policy: Policy = COLD,
        stop_beaten: bool = True,
        compilers: CompilePool | None = None,
        workers: WorkerPool | None = None,
        spare: bool = True,
        on_close: Callable[[], None] | None = None,
        worker: str = _WORKER,
    ) -> None:
        self._task = Task(kernel, problem, limits, policy)
        self._measure_s = measure_s
        self._stop_beaten = stop_beaten
        self._compilers = compilers or CompilePool(jobs, compile_s)
        self._workers = workers or WorkerPool(gpu, worker)
        self._spare = spare
        self._on_close = [self._compilers.close] * (compilers is None) + [self._workers.close] * (workers is None)
        if on_close is not None:
            self._on_close.append(on_close)
        self._best_us: float | None = None
        self._seed = 0
        self._compiled: deque[Compiled] = deque()
        self._tried_again: set[Config] = set()
        self._done: deque[Measurement] = deque()
        self._in_hand: Compiled | None = None
        self._dropping = False
        self._pool = self._compilers.take(kernel, problem, limits)
        self._may_compile = True
        self._compiling = 0
        self._stage = _WAITING
        self._worker: Child
        try:
            if self._workers.turn.acquire(blocking=False):
                self._take_worker()
        except BaseException:
            self.close()
            raise

    @property
    def capacity(self) -> int:
        return self._compilers.jobs + _AHEAD

    @property
    def waits_for_device(self) -> bool:
        return self._stage is _WAITING

    def submit(self, config: Config) -> None:
        assert self._may_compile, "nothing is submitted after settle"
        self._pool.send(Compile(self._task.problem, config))
        self._compiling += 1

    def next(self, timeout_s: float) -> Measurement | None:
        self._begin()
        until = monotonic() + timeout_s
        while not self._done:
            self._hand_over()
            self._step(until)
            if monotonic() >= until:
                break
        self._hand_over()  # so that the worker is at the next one while the caller learns from this one
        return self._done.popleft() if self._done else None

    def settle(self, timeout_s: float) -> Sequence[Measurement]:
        self._begin()
        until = monotonic() + timeout_s
        self._pool.send(Drop())
        self._dropping = True
        while self._dropping or self._in_hand is not None:
            self._step(None if self._in_hand is None else until)
            if self._in_hand is not None and monotonic() >= until:
                self._in_hand = None  # nobody knows what it would have been
                self._replace_worker()
        self._compiled.clear()
        self._give_back_pool()
        ended = list(self._done)
        self._done.clear()
        return ended

    def recheck(self, configs: Sequence[Config], seed: int) -> Sequence[Evidence | Measurement]:
        return [self._right_again(config, seed) for config in configs]

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        try:
            result = self._ask(Rounds(tuple(configs), rounds, seconds, seed))
        except _WorkerLost as lost:
            if lost.stage.config is None:
                raise MeasureError(f"the vendor's kernel took the GPU worker along: {lost}") from lost
            return lost.measurement(lost.stage.config)
        assert isinstance(result, Comparison | Measurement)
        return result

    def close(self) -> None:
        self._give_back_pool()
        if self._stage is not _WAITING:
            if self._stage is _IDLE:
                self._workers.give_back(self._worker)
            else:
                self._worker.kill()
            self._workers.turn.release()
        for close in self._on_close:
            close()

    def _hand_over(self) -> None:
        """Gives an idle worker the next config that compiled."""
        if self._stage is _IDLE and self._compiled:
            self._in_hand = self._compiled.popleft()
            self._seed += 1
            beaten_by = self._best_us if self._stop_beaten else None
            self._request(Measure(self._in_hand.config, beaten_by, self._seed))

    def _right_again(self, config: Config, seed: int) -> Evidence | Measurement:
        try:
            result = self._ask(Recheck(config, seed))
        except _WorkerLost as lost:
            return lost.measurement(config)
        assert isinstance(result, Measurement | Evidence)
        return result

    def _give_back_pool(self) -> None:
        if self._may_compile:
            self._compilers.give_back(idle=self._compiling == 0)
        self._may_compile = False

    def _begin(self) -> None:
        """Waits until no other measurer has a worker."""
        if self._stage is _WAITING:
            self._workers.turn.acquire()
            self._take_worker()

    def _take_worker(self) -> None:
        """Now that it is our turn, which others get if none can be started: they would wait for ever."""
        try:
            self._worker = self._next_worker()
        except BaseException:
            self._workers.turn.release()
            raise

    def _next_worker(self) -> Child:
        """One that has still to take up the task."""
        worker = self._workers.take()
        worker.send(self._task)
        self._stage = _STARTING
        self._deadline = monotonic() + _START_S
        return worker

    def _replace_worker(self) -> None:
        """The next one takes up the task while the old one's context is torn down, which takes a while."""
        old = self._worker
        old.end()
        self._worker = self._next_worker()
        old.kill()

    def _request(self, request: Any) -> None:
        self._worker.send(request)
        self._enter(Stage("launch"))

    def _enter(self, stage: Stage) -> None:
        self._stage = stage
        self._deadline = monotonic() + self._measure_s

    def _ask(self, request: Any) -> Any:
        """The worker's answer to a request that is made when nothing else is on its way."""
        self._begin()
        while self._stage is not _IDLE:
            self._step(None)
        self._request(request)
        try:
            while (answer := self._hear(None)) is None:
                pass
        except _WorkerLost:
            self._replace_worker()
            raise
        self._after(answer)
        return answer

    def _step(self, until: float | None) -> None:
        """Waits for the pool or the worker to say something, until a deadline, and takes it in."""
        try:
            answer = self._hear(until)
        except _WorkerLost as lost:
            if self._stage is _STARTING:
                raise MeasureError(f"the GPU worker did not start: {lost}") from lost
            self._replace_worker()
            if self._in_hand is None:  # it died idle, of something outside
                return
            if not (lost.by_others and self._again()):
                self._finish(lost.measurement(self._in_hand.config))
            return
        if answer is not None:
            self._after(answer)
            if not (answer.outcome is Outcome.OUT_OF_MEMORY and self._again()):
                self._finish(answer)

    def _hear(self, until: float | None) -> Any:
        """What the worker answered, if anything was; what the pool says is taken in on the way."""
        limits = [when for when in (until, None if self._stage is _IDLE else self._deadline) if when is not None]
        timeout = max(0.0, min(limits) - monotonic()) if limits else None
        ready = wait([self._worker.pipe, *[self._pool.pipe] * self._may_compile], timeout)
        if self._pool.pipe in ready:
            self._hear_pool()
        if self._worker.pipe in ready:
            return self._hear_worker()
        if self._stage is not _IDLE and monotonic() >= self._deadline:
            raise _WorkerLost(
                Outcome.TIMEOUT, self._stage, f"no end in sight in stage {self._stage.name}; worker killed"
            )
        return None

    def _hear_worker(self) -> Any:
        try:
            message = self._worker.receive()
        except EOFError:
            words = self._worker.exit_text()
            killed = self._worker.killed
            raise _WorkerLost(Outcome.CRASHED, self._stage, f"the worker died: {words}", by_others=killed) from None
        if isinstance(message, Unable):
            raise MeasureError(message.why)
        if isinstance(message, Stage):
            self._enter(message)
            return None
        if isinstance(message, Ready):
            self._stage = _IDLE
            if self._spare:  # not before, so that it does not hold up this one
                self._workers.prepare()
            return None
        return message

    def _hear_pool(self) -> None:
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
            self._done.append(
                Measurement(
                    message.config,
                    message.outcome,
                    stage="compile",
                    error=message.error,
                    compile_s=message.compile_s,
                    compiled_by="pool",
                    shared_bytes=message.shared_bytes,
                )
            )

    def _after(self, answer: Any) -> None:
        """The worker waits for the next request, unless a config ruined its context or left its memory full."""
        if isinstance(answer, Measurement) and answer.outcome in (Outcome.CRASHED, Outcome.OUT_OF_MEMORY):
            self._replace_worker()
        else:
            self._stage = _IDLE

    def _again(self) -> bool:
        """Puts the config in hand back in front, once, where what happened may not have been its fault."""
        assert self._in_hand is not None
        if self._in_hand.config in self._tried_again:
            return False
        self._tried_again.add(self._in_hand.config)
        self._compiled.appendleft(self._in_hand)
        self._in_hand = None
        return True

    def _finish(self, measurement: Measurement) -> None:
        assert self._in_hand is not None
        if measurement.ok:
            self._best_us = min(measurement.latency_us, self._best_us or measurement.latency_us)
        self._done.append(replace(measurement, compile_s=self._in_hand.compile_s))
        self._in_hand = None


class WorkerPool:
    """The workers of one GPU: at most one is in use, and at most one waits for a task.

    `turn` is held by the measurer that has one in use.
    """

    def __init__(self, gpu: int, module: str = _WORKER) -> None:
        self._gpu, self._module = gpu, module
        self.turn = Lock()
        self.waiting: Child | None = None

    def prepare(self) -> None:
        """Sees to it that one waits, or is on its way to."""
        if self.waiting is None:
            self.waiting = start_worker(self._gpu, self._module)

    def take(self) -> Child:
        """The one that waits, or a new one."""
        worker, self.waiting = self.waiting, None
        if worker is not None and not worker.runs:
            worker.kill()
            worker = None
        return worker or start_worker(self._gpu, self._module)

    def give_back(self, worker: Child) -> None:
        """Keeps one that is idle for the next task, unless a fresh one waits."""
        if self.waiting is None:
            self.waiting = worker
        else:
            worker.kill()

    def close(self) -> None:
        """Ends the one that waits."""
        if self.waiting is not None:
            self.waiting.kill()
        self.waiting = None


def start_worker(gpu: int, module: str = _WORKER) -> Child:
    """A worker without a task: it imports what it needs, makes its context, and waits."""
    return Child(module, {"CUDA_VISIBLE_DEVICES": _visible(gpu), CARD: bus_id(gpu)})


def measure_roofline_limits(worker: Child) -> RooflineLimits:
    """What the card reaches at best, measured by a worker that has no task yet.

    Raises:
        MeasureError: the worker died, or the card has not the memory for it.
    """
    worker.send(MeasureRooflineLimits())
    try:
        answer = worker.receive()
    except EOFError:
        raise MeasureError(f"the GPU worker did not start: {worker.exit_text()}") from None
    if isinstance(answer, Unable):
        raise MeasureError(answer.why)
    assert isinstance(answer, RooflineLimits)
    return answer


def _visible(gpu: int) -> str:
    """`CUDA_VISIBLE_DEVICES` for a child that shall see one card of those that this process sees."""
    shown = [entry for entry in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if entry]
    return shown[gpu] if shown else str(gpu)
