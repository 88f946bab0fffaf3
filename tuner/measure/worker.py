"""The process that owns the GPU: launches, checks and times one config after another.

`python -m tuner.measure.worker` serves one problem at a time. It may be killed at any time, and ends itself when a
config has ruined its CUDA context. It tells its parent which stage it has reached, so that a death or a hang can be
placed.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import inf, isfinite
from multiprocessing.connection import Connection
from time import monotonic, sleep
from typing import Any

import torch
import triton
from triton.runtime.cache import triton_key
from triton.runtime.errors import OutOfResources

from tuner import catalog
from tuner.errors import MeasureError, TunerError
from tuner.kernels.spec import Config, Kernel, Launch
from tuner.measure import check, roofline_limits, tensors
from tuner.measure.card import CardMonitor, NoMonitor, open_monitor
from tuner.measure.clock import Clock, Run, Timer, clock_of
from tuner.measure.compile import describe_error, is_compile_error
from tuner.measure.messages import Measure, MeasureRooflineLimits, Ready, Recheck, Rounds, Stage, Task, Unable
from tuner.measure.processes import CARD, connect, die_with, parent
from tuner.records import FEWEST_SAMPLES, SLOW_US, VENDOR, CardState, Comparison, Evidence, Measurement, Outcome, median

_LOOK = 3
"""Launches of the first open_monitor."""
_BEATEN, _BEHIND = 2.0, 1.25
"""Over the time of the best: beyond the one a config gets no more than the open_monitor, beyond the other `FEWEST_SAMPLES`."""
_FULL_MS = 4.0
"""Device time, flushes excluded, that a config's samples may take beyond `FEWEST_SAMPLES` launches."""
_MOST = 40
"""Launches of a config that is close to the best: 10 tell a 180 us GEMM within 1 %, a 6 us kernel needs 40 for 3 %."""
_INPUTS = ("normal", "normal", "special")
"""Kinds of the inputs that a finalist must be right on. On the second its outputs are in another place, aligned to 16
bytes and no more."""
_REPEATS = 16
"""Launches on each of them, besides the one that is compared with the reference, whose result must come again. With 51
launches in all, a config that is wrong once in five gets through once in 90,000 times."""
_ALIGNMENT = 16
_TRIES, _TRY_AGAIN_S = 3, 1.0
"""How often memory is asked for again, and the pause before each."""
_LOOK_EVERY_S = 0.1
"""How often rounds ask for the card's state. That takes 1.5 ms, at times 6 (H200, 2026-11-28), a visit of a short
kernel 1 ms; and what NVML knows of who uses the card is not newer than that."""
_PATIENCE, _PAUSE_S = 10, 0.2
"""How often a request's rounds since the last open_monitor may be thrown away because something disturbed the card, and the
pause after that."""


class _WrongResult(Exception):
    def __init__(self, text: str, error: float, allowed: float) -> None:
        super().__init__(text)
        self.error, self.allowed = error, allowed


class Worker:
    """One problem's tensors, reference and clock on the card: `cuda:0`, the only one that the parent shows it."""

    def __init__(
        self,
        task: Task,
        tell: Callable[[Any], None],
        *,
        card: CardMonitor | None = None,
        device: str = "cuda:0",
        clock: Clock | None = None,
    ) -> None:
        self._kernel: Kernel = catalog.resolve(task.kernel)
        self._problem, self._limits = task.problem, task.limits
        self._tell = tell
        self._card = card or NoMonitor()
        self._operands = self._kernel.operands(task.problem)
        self._device = device
        self._clock = clock or clock_of(task.policy, device)
        self._tensors = tensors.allocate(self._operands, device)
        self._compiled_here = False
        triton.knobs.compilation.listener = self._on_compile
        self._draw(seed=0)
        vendors_own = self._error_after(partial(self._kernel.vendor, task.problem, self._tensors), self._tensors)[0]
        if not isfinite(vendors_own):
            written = ", ".join(tensors.written(self._operands, self._tensors))
            raise MeasureError(
                f"the vendor's own result of {self._kernel.op} is wrong, or it is not written to {written}"
            )
        self._allowed = check.tolerance(self._kernel, self._problem, vendors_own)
        copies = self._clock.copies(sum(operand.bytes for operand in self._operands.values()))
        self._sets = [self._tensors, *(tensors.copy(self._operands, self._tensors) for _ in range(copies - 1))]

    def measure(self, request: Measure) -> Measurement:
        """Launches, checks, then times one config. Whatever it raises becomes its outcome."""
        config = request.config
        facts: dict[str, Any] = {}
        stage = "launch"
        try:
            self._enter(stage)
            (launches,) = self._launches(config, self._tensors)
            facts |= self._first_launch(launches)
            stage = "check"
            self._enter(stage)
            self._draw(request.seed)
            error, _ = self._checked(_run(launches), self._tensors)
            facts |= {"max_error": error, "tolerance": self._allowed}
            stage = "time"
            self._enter(stage)
            return Measurement(config, Outcome.OK, self._samples(config, request.best_us), **facts)
        except Exception as error:  # noqa: BLE001  a config may fail in any way; its failure is the result
            return self._failure(config, stage, error, facts)

    def recheck(self, request: Recheck) -> Evidence | Measurement:
        """Checks a config again and again, on inputs of several kinds; the evidence, or the failure."""
        try:
            self._enter("check")
            errors = [
                self._right_on(request.config, request.seed + number, kind, elsewhere=number == 1)
                for number, kind in enumerate(_INPUTS)
            ]
            return Evidence(max(errors), self._allowed, _INPUTS, len(_INPUTS) * (1 + _REPEATS))
        except Exception as error:  # noqa: BLE001  as in `measure`
            return self._failure(request.config, "check", error, {})

    def compare(self, request: Rounds) -> Comparison | Measurement:
        """Times the contenders in turn, in a new order every round.

        Rounds in which others used the card, or its clocks were held down, are done again after a pause, a few times.
        """
        end = monotonic() + request.seconds
        self._draw(request.seed)
        contenders: dict[str, Config | None] = {config.text: config for config in request.configs} | {VENDOR: None}
        timers: dict[str, Timer] = {}
        order = random.Random(request.seed)
        rounds: list[tuple[float, ...]] = []
        fresh: list[tuple[float, ...]] = []
        states: list[CardState] = []
        patience, looked = _PATIENCE, monotonic()
        while len(rounds) < request.rounds and (not rounds or monotonic() < end):
            latencies: dict[str, float] = {}
            for name in order.sample(list(contenders), len(contenders)):
                config = contenders[name]
                self._tell(Stage("comparison", config))
                try:
                    if name not in timers:
                        timers[name] = self._timer(config)
                    latencies[name] = median(timers[name](self._clock.visit))
                except Exception as error:
                    if config is None:
                        raise
                    return self._failure(config, "comparison", error, {})
            fresh.append(tuple(latencies[name] for name in contenders))
            now = monotonic()
            if now < min(end, looked + _LOOK_EVERY_S) and len(rounds) + len(fresh) < request.rounds:
                continue
            state, looked = self._card.state(), now
            if state is not None and state.marks and patience:
                patience -= 1
                sleep(_PAUSE_S)
            else:
                rounds += fresh
                states += [state] * len(fresh) if state is not None else []
            fresh.clear()
        return Comparison(tuple(contenders), tuple(rounds), tuple(states))

    def _enter(self, stage: str) -> None:
        self._tell(Stage(stage))

    def _on_compile(self, *, cache_hit: bool, **_: Any) -> None:
        self._compiled_here = self._compiled_here or not cache_hit

    def _draw(self, seed: int, kind: str = "normal") -> None:
        special = kind == "special" and not self._kernel.finite_only
        tensors.draw(self._operands, self._tensors, seed, special=special)

    def _launches(self, config: Config, *sets: Mapping[str, torch.Tensor]) -> list[tuple[Launch, ...]]:
        """What to launch on each set of operands; they follow each other and share the config's workspace."""
        work = tensors.workspace(self._kernel.workspace(self._problem, config, self._limits), self._device)
        return [self._kernel.launch(self._problem, config, {**values, **work}) for values in sets]

    def _timer(self, config: Config | None) -> Timer:
        """What times a config, or the vendor's kernel, on all sets of operands."""
        runs: list[Run] = (
            [partial(self._kernel.vendor, self._problem, values) for values in self._sets]
            if config is None
            else list(map(_run, self._launches(config, *self._sets)))
        )
        restores = [tensors.restorer(self._operands, values) for values in self._sets]
        return self._clock.timer(runs, _all([restore for restore in restores if restore is not None]))

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

    def _right_on(self, config: Config, seed: int, kind: str, *, elsewhere: bool) -> float:
        """The error of a config on fresh inputs; its result must come again, and nothing else may be written."""
        self._draw(seed, kind)
        values: Mapping[str, torch.Tensor] = self._tensors
        if elsewhere:
            values = tensors.relocate(self._operands, self._tensors, _ALIGNMENT)
        before = tensors.checksums(self._operands, values)
        run = _run(*self._launches(config, values))
        error, outputs = self._checked(run, values)
        self._refuse_changed(values, before)
        restore = tensors.restorer(self._operands, values)
        first = outputs if restore is not None else {name: tensor.clone() for name, tensor in outputs.items()}
        for _ in range(_REPEATS):
            self._enter("check")
            tensors.poison(self._operands, values)
            run()
            apart = check.deviation(self._kernel, tensors.written(self._operands, values), first)
            if not apart <= 2 * self._allowed:
                raise _WrongResult(f"run again, its result is another by {apart:.3g}", apart, self._allowed)
            if restore is not None:
                restore()
        self._refuse_changed(values, before)
        return error

    def _refuse_changed(self, values: Mapping[str, torch.Tensor], before: Mapping[str, int]) -> None:
        """What is only read must be as it was."""
        changed = [name for name, total in tensors.checksums(self._operands, values).items() if total != before[name]]
        if changed:
            raise _WrongResult(f"it writes to {', '.join(changed)}, which it may only read", inf, self._allowed)

    def _checked(self, run: Run, values: Mapping[str, torch.Tensor]) -> tuple[float, Mapping[str, torch.Tensor]]:
        error, outputs = self._error_after(run, values)
        if not error <= self._allowed:
            text = f"deviates from the reference by {error:.3g} of its largest value; {self._allowed:.3g} is allowed"
            raise _WrongResult(text, error, self._allowed)
        if not tensors.guards_intact(self._operands, values):
            raise _WrongResult("it writes beside its outputs", inf, self._allowed)
        return error, outputs

    def _error_after(self, run: Run, values: Mapping[str, torch.Tensor]) -> tuple[float, Mapping[str, torch.Tensor]]:
        """The error of what `run` writes, and what it wrote."""
        restore = tensors.restorer(self._operands, values)
        tensors.poison(self._operands, values)
        run()
        outputs: Mapping[str, torch.Tensor] = tensors.written(self._operands, values)
        if restore is not None:  # the reference reads what the kernel read
            outputs = {name: tensor.clone() for name, tensor in outputs.items()}
            restore()
        return check.error(self._kernel, self._problem, values, outputs), outputs

    def _samples(self, config: Config, best_us: float | None) -> tuple[float, ...]:
        timer = self._timer(config)
        look = timer(_LOOK)
        behind = 1.0 if best_us is None else min(look) / best_us
        if median(look) >= SLOW_US or behind > _BEATEN:
            return tuple(look)
        full = max(FEWEST_SAMPLES, min(_MOST, int(_FULL_MS * 1000 / (median(look) * self._clock.launches))))
        return tuple(timer(FEWEST_SAMPLES if behind > _BEHIND else full))

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


def _run(launches: tuple[Launch, ...]) -> Run:
    def run() -> None:
        for launch in launches:
            launch()

    return run if len(launches) != 1 else launches[0]


def _all(runs: Sequence[Run]) -> Run | None:
    """One callable that does them all; None for none."""

    def run() -> None:
        for each in runs:
            each()

    return run if runs else None


def serve(pipe: Connection[Any, Any], make: Callable[[Task, Callable[[Any], None]], Worker]) -> None:
    """Answers requests until the pipe closes or the context is lost. A task takes the place of the one before."""
    worker: Worker | None = None
    while True:
        request: MeasureRooflineLimits | Task | Measure | Recheck | Rounds = pipe.recv()
        if isinstance(request, MeasureRooflineLimits | Task):
            worker = None
            _make_room()
            try:
                worker = _begun(request, pipe, make)
            except torch.cuda.OutOfMemoryError:
                what = (
                    "two tensors of 1 GB"
                    if isinstance(request, MeasureRooflineLimits)
                    else f"the tensors of {request.problem.text}"
                )
                pipe.send(Unable(f"{what} do not fit the memory of the card"))
                return
            except TunerError as error:
                pipe.send(Unable(str(error)))
                return
        else:
            assert worker is not None
            result = _answered(worker, request)
            pipe.send(result)
            if isinstance(result, Measurement) and result.outcome is Outcome.CRASHED:
                return


def _make_room() -> None:
    """Gives back the memory of what was measured before."""
    triton.knobs.compilation.listener = None  # it knows the worker
    gc.collect()
    torch.cuda.empty_cache()


def _begun(
    request: MeasureRooflineLimits | Task,
    pipe: Connection[Any, Any],
    make: Callable[[Task, Callable[[Any], None]], Worker],
) -> Worker | None:
    """Answers a measure_roofline_limits, or makes the worker of a task."""
    if isinstance(request, MeasureRooflineLimits):
        pipe.send(roofline_limits.measure("cuda:0"))
        return None
    worker = _made(request, pipe.send, make)
    pipe.send(Ready())
    return worker


def _answered(worker: Worker, request: Measure | Recheck | Rounds) -> Measurement | Evidence | Comparison:
    if isinstance(request, Measure):
        return worker.measure(request)
    return worker.recheck(request) if isinstance(request, Recheck) else worker.compare(request)


def _made(task: Task, tell: Callable[[Any], None], make: Callable[[Task, Callable[[Any], None]], Worker]) -> Worker:
    """A worker; the one before it may still be giving back the card's memory."""
    for _ in range(_TRIES):
        with suppress(torch.cuda.OutOfMemoryError):
            return make(task, tell)
        torch.cuda.empty_cache()
        sleep(_TRY_AGAIN_S)
    return make(task, tell)


def main() -> None:
    """Serves the parent process until it goes. All that takes long and needs no task is done before there is one."""
    die_with(parent())
    card = open_monitor(os.environ.get(CARD, ""))
    if torch.cuda.is_available():
        torch.ones(2, device="cuda:0").normal_().sum().item()
    triton_key()  # hashes Triton's own files, 0.5 s
    card.claim()  # before others come
    with suppress(EOFError):
        serve(connect(), lambda task, tell: Worker(task, tell, card=card))


if __name__ == "__main__":
    main()
