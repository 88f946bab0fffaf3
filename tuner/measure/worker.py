"""The process that owns the GPU: launches, checks and times one config after another.

`python -m tuner.measure.worker` serves one problem. It may be killed at any time, and ends itself when a config has
ruined its CUDA context. It tells its parent which stage it has reached, so that a death or a hang can be placed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import isfinite
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

import torch
import triton
from triton.runtime.errors import OutOfResources

from tuner import catalog
from tuner.errors import MeasureError, TunerError
from tuner.kernels.spec import Config, Kernel, Launch
from tuner.measure import check, tensors
from tuner.measure.clock import Clock
from tuner.measure.compile import describe_error, is_compile_error
from tuner.measure.messages import Measure, Ready, Recheck, Rounds, Stage, Task, Unable
from tuner.measure.processes import connect, die_with, parent
from tuner.records import FEWEST_SAMPLES, VENDOR, Duel, Measurement, Outcome, median

_LOOK = 3
"""Launches of the first look."""
_BEATEN = 2.0
"""A config this many times slower than the best gets no more than the look."""
_FULL_MS = 8.0
"""Device time, flushes excluded, that a config's samples may take beyond `FEWEST_SAMPLES` launches."""
_MOST = 40
"""Launches of a config that passed the look, with `FEWEST_SAMPLES`: 10 tell a 180 us GEMM within 1 %, a 6 us kernel
needs 40 for 3 %."""
_DUEL_LAUNCHES = 3
"""Launches whose median is one contender's latency in one round."""


class _WrongResult(Exception):
    def __init__(self, error: float, allowed: float) -> None:
        super().__init__(f"deviates from the reference by {error:.3g} of its largest value; {allowed:.3g} is allowed")
        self.error, self.allowed = error, allowed


class Worker:
    """One problem's tensors, reference and clock on the card: `cuda:0`, the only one that the parent shows it."""

    def __init__(
        self, task: Task, tell: Callable[[Any], None], *, device: str = "cuda:0", clock: Clock | None = None
    ) -> None:
        self._kernel: Kernel = catalog.resolve(task.kernel)
        self._problem = task.problem
        self._tell = tell
        self._operands = self._kernel.operands(task.problem)
        self._device = device
        self._tensors = tensors.allocate(self._operands, device)
        self._clock = clock or Clock(device)
        self._compiled_here = False
        triton.knobs.compilation.listener = self._on_compile
        self._draw(seed=0)
        vendors_own = self._error_after(self._run_vendor)
        if not isfinite(vendors_own):
            written = ", ".join(tensors.written(self._operands, self._tensors))
            raise MeasureError(
                f"the vendor's own result of {self._kernel.op} is wrong, or it is not written to {written}"
            )
        self._allowed = check.tolerance(self._kernel, self._problem, vendors_own)

    def measure(self, request: Measure) -> Measurement:
        """Launches, checks, then times one config. Whatever it raises becomes its outcome."""
        config = request.config
        facts: dict[str, Any] = {}
        stage = "launch"
        try:
            self._enter(stage)
            launches = self._launches(config)
            facts |= self._first_launch(launches)
            stage = "check"
            self._enter(stage)
            self._draw(request.seed)
            facts |= {"max_error": self._checked(launches), "tolerance": self._allowed}
            stage = "time"
            self._enter(stage)
            return Measurement(config, Outcome.OK, self._samples(launches, request.best_us), **facts)
        except Exception as error:  # noqa: BLE001  a config may fail in any way; its failure is the result
            return self._failure(config, stage, error, facts)

    def recheck(self, request: Recheck) -> float | Measurement:
        """Checks a config on fresh inputs again and again; the largest error, or the failure."""
        try:
            self._enter("check")
            launches = self._launches(request.config)
            errors = []
            for seed in request.seeds:
                self._draw(seed)
                errors.append(self._checked(launches))
            return max(errors)
        except Exception as error:  # noqa: BLE001  as in `measure`
            return self._failure(request.config, "check", error, {})

    def duel(self, request: Rounds) -> Duel | Measurement:
        """Times the contenders in turn, in a new order every round."""
        end = monotonic() + request.seconds
        self._draw(request.seed)
        restore = tensors.restorer(self._operands, self._tensors)
        contenders: dict[str, Config | None] = {config.text: config for config in request.configs} | {VENDOR: None}
        order = random.Random(request.seed)
        rounds: list[tuple[float, ...]] = []
        while len(rounds) < request.rounds and (not rounds or monotonic() < end):
            latencies: dict[str, float] = {}
            for name in order.sample(list(contenders), len(contenders)):
                config = contenders[name]
                self._tell(Stage("duel", config))
                try:
                    run = self._run_vendor if config is None else _run(self._launches(config))
                    latencies[name] = median(self._clock.samples(run, _DUEL_LAUNCHES, restore))
                except Exception as error:
                    if config is None:
                        raise
                    return self._failure(config, "duel", error, {})
            rounds.append(tuple(latencies[name] for name in contenders))
        return Duel(tuple(contenders), tuple(rounds))

    def _enter(self, stage: str) -> None:
        self._tell(Stage(stage))

    def _on_compile(self, *, cache_hit: bool, **_: Any) -> None:
        self._compiled_here = self._compiled_here or not cache_hit

    def _draw(self, seed: int) -> None:
        tensors.draw(self._operands, self._tensors, seed)

    def _launches(self, config: Config) -> tuple[Launch, ...]:
        return self._kernel.launch(self._problem, config, self._tensors)

    def _first_launch(self, launches: tuple[Launch, ...]) -> dict[str, Any]:
        """Launches once, whatever comes out; what the compiler says of the code that ran."""
        self._compiled_here = False
        compiled = [launch() for launch in launches]
        self._clock.wait()
        return {
            "compiled_by": "worker" if self._compiled_here else "pool",
            "registers": max((code.n_regs for code in compiled), default=0),
            "spills": max((code.n_spills for code in compiled), default=0),
            "shared_bytes": max((code.metadata.shared for code in compiled), default=0),
        }

    def _checked(self, launches: tuple[Launch, ...]) -> float:
        error = self._error_after(_run(launches))
        if not error <= self._allowed:
            raise _WrongResult(error, self._allowed)
        return error

    def _error_after(self, run: Callable[[], object]) -> float:
        restore = tensors.restorer(self._operands, self._tensors)
        tensors.poison(self._operands, self._tensors)
        run()
        outputs: Mapping[str, torch.Tensor] = tensors.written(self._operands, self._tensors)
        if restore is not None:  # the reference reads what the kernel read
            outputs = {name: tensor.clone() for name, tensor in outputs.items()}
            restore()
        return check.error(self._kernel, self._problem, self._tensors, outputs)

    def _samples(self, launches: tuple[Launch, ...], best_us: float | None) -> tuple[float, ...]:
        run = _run(launches)
        restore = tensors.restorer(self._operands, self._tensors)
        look = self._clock.samples(run, _LOOK, restore)
        if best_us is not None and min(look) > _BEATEN * best_us:
            return tuple(look)
        count = max(FEWEST_SAMPLES, min(_MOST, int(_FULL_MS * 1000 / median(look))))
        return tuple(self._clock.samples(run, count, restore))

    def _run_vendor(self) -> object:
        return self._kernel.vendor(self._problem, self._tensors)

    def _failure(self, config: Config, stage: str, error: Exception, facts: dict[str, Any]) -> Measurement:
        if isinstance(error, _WrongResult):
            facts |= {"max_error": error.error, "tolerance": error.allowed}
            return Measurement(config, Outcome.WRONG_RESULT, (), stage, str(error), **facts)
        outcome = Outcome.ERROR
        if isinstance(error, OutOfResources):
            outcome = Outcome.OUT_OF_RESOURCES
        elif isinstance(error, torch.cuda.OutOfMemoryError):
            outcome = Outcome.OUT_OF_MEMORY
        elif is_compile_error(error):
            outcome, stage = Outcome.COMPILE_ERROR, "compile"
        elif not self._context_lives():
            outcome = Outcome.CRASHED
        return Measurement(config, outcome, (), stage, describe_error(error), **facts)

    def _context_lives(self) -> bool:
        """A sticky error fails every later call too."""
        try:
            torch.ones(1, device=self._device).sum().item()
        except RuntimeError:
            return False
        return True


def _run(launches: tuple[Launch, ...]) -> Callable[[], object]:
    def run() -> None:
        for launch in launches:
            launch()

    return run if len(launches) != 1 else launches[0]


def serve(pipe: Connection[Any, Any], make: Callable[[Task, Callable[[Any], None]], Worker] = Worker) -> None:
    """Answers requests until the pipe closes or the context is lost."""
    task: Task = pipe.recv()
    try:
        worker = make(task, pipe.send)
    except torch.cuda.OutOfMemoryError:
        pipe.send(Unable(f"the tensors of {task.problem.text} do not fit the memory of the card"))
        return
    except TunerError as error:
        pipe.send(Unable(str(error)))
        return
    answer: dict[type, Callable[[Any], Any]] = {Measure: worker.measure, Recheck: worker.recheck, Rounds: worker.duel}
    pipe.send(Ready())
    while True:
        request = pipe.recv()
        result: Any = answer[type(request)](request)
        pipe.send(result)
        if isinstance(result, Measurement) and result.outcome is Outcome.CRASHED:
            return


def main() -> None:
    """Serves the parent process until it goes."""
    die_with(parent())
    with suppress(EOFError):
        serve(connect())


if __name__ == "__main__":
    main()
