"""The worker process, which owns the GPU: it launches, checks and times one config after another.

`python -m tuner.measure.worker` serves one problem at a time. It may be killed at any time, and ends itself if a config
has corrupted its CUDA context. It reports the stage that it begins, so that its parent can attribute a crash or a hang.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from time import monotonic, sleep
from typing import Any

import torch
import triton
from triton.runtime.cache import triton_key
from triton.runtime.errors import OutOfResources

from tuner.errors import KernelFault, TunerError
from tuner.kernels.spec import Config, Launch, Step
from tuner.measure import roofline_limits
from tuner.measure.allocator import provide_memory
from tuner.measure.card import CardMonitor, NoMonitor, open_monitor
from tuner.measure.check import CHECK_SETTINGS, CheckSettings
from tuner.measure.clock import Clock
from tuner.measure.compile import describe_error, is_compile_error
from tuner.measure.correctness import CorrectnessCheck, WrongResult
from tuner.measure.examine import Examination
from tuner.measure.interleaved import ROUNDS_SETTINGS, RoundsSettings, interleave
from tuner.measure.latencies import ContenderFailed, Latencies
from tuner.measure.loaded_problem import LoadedProblem, run_of
from tuner.measure.messages import (
    Examine,
    Measure,
    MeasureRooflineLimits,
    Ran,
    Ready,
    Recheck,
    Rounds,
    Stage,
    Task,
    Unable,
)
from tuner.measure.processes import BUS_ID_VARIABLE, connect, die_with, parent
from tuner.measure.samples import SAMPLING_SETTINGS, SamplingSettings, samples_of
from tuner.measure.timed_vendors import VENDOR_SETTINGS, TimedVendors, VendorSettings
from tuner.records import Comparison, Evidence, Measurement, Outcome


@dataclass(frozen=True)
class MemoryRetrySettings:
    """Retries of loading a task while the worker before still frees its memory."""

    retries: int = 3
    """Number of further attempts. Source: chosen."""
    pause_s: float = 1.0
    """Pause before each, in s. Source: chosen."""


MEMORY_RETRY_SETTINGS = MemoryRetrySettings()


class Worker:
    """The handlers of the requests of one task.

    Args:
        tell: sends a message to the parent.
        monitor: of the card; None monitors nothing.
        device: torch's name of the device. The parent makes only one card visible, so it is the first.
        clock: None is the clock of the task's policy.
    """

    def __init__(
        self,
        task: Task,
        tell: Callable[[Any], None],
        *,
        monitor: CardMonitor | None = None,
        device: str = "cuda:0",
        clock: Clock | None = None,
        sampling: SamplingSettings = SAMPLING_SETTINGS,
        checks: CheckSettings = CHECK_SETTINGS,
        rounds: RoundsSettings = ROUNDS_SETTINGS,
        vendors: VendorSettings = VENDOR_SETTINGS,
    ) -> None:
        self._tell = tell
        self._monitor = monitor or NoMonitor()
        self._sampling, self._rounds = sampling, rounds
        self.loaded = LoadedProblem(task, device, clock)
        """Operands and launches of the task's problem."""
        self._compiled_here = False
        triton.knobs.compilation.listener = self._on_compile
        if task.examines:
            self._examination = Examination(self.loaded, tell)
            return
        self._correctness = CorrectnessCheck(self.loaded, lambda: self._enter("check"), checks)
        self.loaded.copy_sets()
        self._vendors = TimedVendors(task, self.loaded, self._correctness, tell, self._context_works, vendors)

    def measure(self, request: Measure) -> Measurement:
        """Launch, check, then time one config. Any exception becomes its outcome."""
        config, loaded = request.config, self.loaded
        facts: dict[str, Any] = {}
        stage = "launch"
        try:
            self._enter(stage)
            (launches,) = loaded.launches(config, loaded.tensors)
            facts |= self._first_launch(launches)
            stage = "check"
            self._enter(stage)
            loaded.draw(request.seed)
            worst, _ = self._correctness.check(run_of(launches), loaded.tensors)
            facts |= {"max_error": worst.error, "tolerance": worst.tolerance.allowed}
            stage = "time"
            self._enter(stage)
            per_sample = loaded.clock.launches_per_sample
            samples = samples_of(loaded.timer(config), per_sample, request.best_us, self._sampling)
            return Measurement(config, Outcome.OK, samples, **facts)
        except Exception as error:  # noqa: BLE001  a config may fail in any way; its failure is the result
            return self._failure(config, stage, error, facts)

    def examine(self, request: Examine) -> Ran | Measurement:
        """Examine one config, of a task that examines. Any exception becomes its outcome."""
        try:
            return self._examination.examine(request)
        except Exception as error:  # noqa: BLE001  as in `measure`
            return self._failure(request.config, self._examination.stage, error, {})

    def recheck(self, request: Recheck) -> Evidence | Measurement:
        """Check one config repeatedly on inputs of several kinds. Return the evidence, or its failed measurement."""
        try:
            self._enter("check")
            return self._correctness.recheck(request.config, request.seed)
        except Exception as error:  # noqa: BLE001  as in `measure`
            return self._failure(request.config, "check", error, {})

    def compare(self, request: Rounds) -> Comparison | Measurement:
        """Time the configs and the vendors in interleaved rounds. Return them, or a config's failed measurement.

        A latency of a vendor that is not finite and above 0 is NaN in the rounds.
        """
        started = monotonic()
        vendors = self._vendors.contenders()
        ahead_s = monotonic() - started
        end = monotonic() + request.seconds
        self.loaded.draw(request.seed)
        configs = {config.text: config for config in request.configs}
        while True:
            names = [*configs, *vendors]
            try:
                latency_us = Latencies(self.loaded, {**configs, **vendors}, self._tell)
                found = interleave(names, latency_us, request, end, self._monitor, self._rounds)
                left_out = dict(self._vendors.left_out)
                return replace(found, vendor=self._vendors.name, left_out=left_out, ahead_s=ahead_s)
            except ContenderFailed as failed:
                if failed.name in configs:
                    return self._failure(configs[failed.name], "comparison", failed.error, {})
                self._vendors.leave_out(failed.name, failed.error)

    def _enter(self, stage: str) -> None:
        self._tell(Stage(stage))

    def _on_compile(self, *, cache_hit: bool, **_: Any) -> None:
        self._compiled_here = self._compiled_here or not cache_hit

    def _first_launch(self, launches: tuple[Step, ...]) -> dict[str, Any]:
        """Launch once. Return what the compiler reports of the code; nothing of calls on the host, which have none."""
        self._compiled_here = False
        results: list[tuple[Step, Any]] = [(step, step()) for step in launches]
        compiled = [code for step, code in results if isinstance(step, Launch)]
        self.loaded.clock.wait()
        if not compiled:
            return {}
        return {
            "compiled_by": "worker" if self._compiled_here else "pool",
            "registers": max(code.n_regs for code in compiled),
            "spills": max(code.n_spills for code in compiled),
            "shared_bytes": max(code.metadata.shared for code in compiled),
        }

    def _failure(self, config: Config, stage: str, error: Exception, facts: dict[str, Any]) -> Measurement:
        """Return the measurement of a config that raised `error`."""
        if isinstance(error, WrongResult):
            facts |= {"max_error": error.error, "tolerance": error.tolerance}
            return Measurement(config, Outcome.WRONG_RESULT, (), stage, str(error), **facts)
        outcome = Outcome.ERROR
        if isinstance(error, OutOfResources):
            outcome = Outcome.OUT_OF_RESOURCES
        elif isinstance(error, torch.cuda.OutOfMemoryError):
            outcome = Outcome.OUT_OF_MEMORY
        elif is_compile_error(error):
            outcome, stage = Outcome.COMPILE_ERROR, "compile"
        elif not self._context_works():
            outcome = Outcome.CRASHED
        return Measurement(config, outcome, (), stage, describe_error(error), **facts)

    def _context_works(self) -> bool:
        """Return whether the CUDA context still works: a sticky error fails every later call."""
        try:
            torch.ones(1, device=self.loaded.device).sum().item()
        except RuntimeError:
            return False
        return True


MakeWorker = Callable[[Task, Callable[[Any], None]], Worker]
"""Makes the worker of a task, which sends its reports with the given function."""


def serve(pipe: Connection[Any, Any], make: MakeWorker, memory: MemoryRetrySettings = MEMORY_RETRY_SETTINGS) -> None:
    """Answer requests until the pipe closes or the context is lost. A new task replaces the one before."""
    worker: Worker | None = None
    while True:
        request: MeasureRooflineLimits | Task | Examine | Measure | Recheck | Rounds = pipe.recv()
        if isinstance(request, MeasureRooflineLimits | Task):
            worker = None
            _free_memory()
            try:
                worker = _begin(request, pipe, make, memory)
            except torch.cuda.OutOfMemoryError:
                what = f"the tensors of {request.problem.text}" if isinstance(request, Task) else "two tensors of 1 GB"
                pipe.send(Unable(f"{what} do not fit the memory of the card"))
                return
            except TunerError as error:
                pipe.send(_unable(error))
                return
        else:
            assert worker is not None
            try:
                result = _handle(worker, request)
            except TunerError as error:
                pipe.send(_unable(error))
                return
            pipe.send(result)
            if isinstance(result, Measurement) and result.outcome is Outcome.CRASHED:
                return


def _unable(error: TunerError) -> Unable:
    return Unable(str(error), isinstance(error, KernelFault))


def _free_memory() -> None:
    """Free the memory of the task before."""
    triton.knobs.compilation.listener = None  # it refers to the worker
    gc.collect()
    torch.cuda.empty_cache()


def _begin(
    request: MeasureRooflineLimits | Task, pipe: Connection[Any, Any], make: MakeWorker, memory: MemoryRetrySettings
) -> Worker | None:
    """Answer with the roofline limits, or return the worker of a task."""
    if isinstance(request, MeasureRooflineLimits):
        pipe.send(roofline_limits.measure("cuda:0"))
        return None
    worker = _make_with_retries(request, pipe.send, make, memory)
    pipe.send(Ready())
    return worker


def _handle(worker: Worker, request: Examine | Measure | Recheck | Rounds) -> Ran | Measurement | Evidence | Comparison:
    if isinstance(request, Measure):
        return worker.measure(request)
    if isinstance(request, Examine):
        return worker.examine(request)
    return worker.recheck(request) if isinstance(request, Recheck) else worker.compare(request)


def _make_with_retries(
    task: Task, tell: Callable[[Any], None], make: MakeWorker, memory: MemoryRetrySettings
) -> Worker:
    """Make a worker; retry while memory runs out, since the process before may still free the card's memory."""
    for _ in range(memory.retries):
        with suppress(torch.cuda.OutOfMemoryError):
            return make(task, tell)
        torch.cuda.empty_cache()
        sleep(memory.pause_s)
    return make(task, tell)


def main() -> None:
    """Serve the parent process until it ends. Imports and the CUDA context come before the first task."""
    die_with(parent())
    monitor = open_monitor(os.environ.get(BUS_ID_VARIABLE, ""))
    if torch.cuda.is_available():
        torch.ones(2, device="cuda:0").normal_().sum().item()
    triton_key()  # hashes Triton's own files, 0.5 s
    provide_memory()
    monitor.register_own_processes()  # before other processes appear
    with suppress(EOFError):
        serve(connect(), lambda task, tell: Worker(task, tell, monitor=monitor))


if __name__ == "__main__":
    main()
