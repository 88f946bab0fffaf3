"""The compile pool's process: it compiles launches into Triton's cache, without a GPU.

`python -m tuner.measure.compile` imports the kernel once and forks for each config. A fork costs milliseconds, has
everything imported, and is killed at its deadline with the processes it started; a compiler that crashes ends its fork
alone. No process of the pool has a CUDA context: Triton gets a driver that only names the target. `fn.warmup` with
stand-ins for the tensors computes the cache key that the later launch looks up.
"""

from __future__ import annotations

import os
import pickle
import resource
import selectors
import signal
import sys
import traceback
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from select import select
from tempfile import TemporaryFile
from time import monotonic
from typing import Any

from tuner import catalog
from tuner.errors import KernelFault, TunerError
from tuner.kernels.spec import Config, Kernel, Launch, Limits, Problem, Step
from tuner.measure.binaries import checked_cache
from tuner.measure.deadline import Deadline
from tuner.measure.messages import Compile, Compiled, Drop, Pool
from tuner.measure.place import place_of
from tuner.measure.processes import connect, die_with
from tuner.measure.stand_ins import DEVICE, stand_in
from tuner.records import Outcome


def compile_config(kernel: Kernel, problem: Problem, config: Config, limits: Limits) -> Compiled:
    """Compile one config in this process, for a card that need not be in this machine.

    An exception becomes the outcome: `compile_error` for those of the compiler, recognised by name, and `error` for
    any other. A config that needs more shared memory than the card has is `infeasible`.
    """
    import triton

    set_target(limits)
    hits: list[bool] = []
    triton.knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
    started = monotonic()
    try:
        with checked_cache():
            shared = [code.metadata.shared for code in compile_launches(kernel, problem, config, limits)]
    except Exception as error:  # noqa: BLE001  a compiler may raise anything
        outcome = Outcome.COMPILE_ERROR if is_compile_error(error) else Outcome.ERROR
        launches = () if isinstance(error, TunerError) else stood_in(kernel, problem, config, limits)
        place = place_of(error, [launch.fn for launch in launches])
        return Compiled(config, outcome, describe_error(error), monotonic() - started, place=place)
    seconds = monotonic() - started
    most = max(shared, default=0)
    if most > limits.shared_bytes:
        text = f"needs {most} bytes of shared memory, a block has {limits.shared_bytes}"
        return Compiled(config, Outcome.INFEASIBLE, text, seconds, most)
    return Compiled(config, Outcome.OK, "", None if all(hits) else seconds, most)


def compile_launches(kernel: Kernel, problem: Problem, config: Config, limits: Limits) -> list[Any]:
    """Return Triton's compiled code of each launch of a config, from its cache if it is there.

    Calls on the host have none.
    """
    return [step.warmup() for step in stood_in(kernel, problem, config, limits) if isinstance(step, Launch)]


def stood_in(kernel: Kernel, problem: Problem, config: Config, limits: Limits) -> tuple[Step, ...]:
    """Return the launches of a config, and its calls on the host, on stand-ins for tensors."""
    stand_ins = {name: stand_in(operand) for name, operand in kernel.tensors(problem, config, limits).items()}
    return kernel.launch(problem, config, stand_ins)


def set_target(limits: Limits) -> None:
    """Make Triton compile for such a card in this process. The process cannot launch afterwards.

    The driver also answers what modules ask it when they are imported, such as how much shared memory a block has.
    """
    import triton
    from triton.backends.compiler import GPUTarget

    major, minor = limits.capability
    target = GPUTarget("cuda", 10 * major + minor, limits.warp_size)

    class CardUtils:
        def get_device_properties(self, device: int) -> dict[str, int]:
            return {
                "max_shared_mem": limits.shared_bytes,
                "max_num_regs": limits.registers_per_sm,
                "multiprocessor_count": limits.sm_count,
                "warpSize": limits.warp_size,
            }

    class TargetDriver:
        utils = CardUtils()

        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

        def get_current_target(self) -> Any:
            return target

        def get_active_torch_device(self) -> Any:
            import torch

            return torch.device(DEVICE)

    triton.runtime.driver.set_active(TargetDriver())


def _do_once() -> None:
    """Do in the parent of all forks the initialisation that Triton would repeat in each fork.

    Triton hashes its own files (0.5 s). Before 3.8 it also imports torch with the first argument of a kernel (2.5 s),
    for tensors that this process never has.
    """
    import triton
    from triton.runtime.cache import triton_key

    triton_key()
    if "torch" not in sys.modules and triton.__version__.startswith(("3.6.", "3.7.")):
        from triton.runtime.jit import mangle_type

        sys.modules["torch"] = None  # type: ignore[assignment]
        mangle_type(1)
        del sys.modules["torch"]


def is_compile_error(error: BaseException) -> bool:
    """Return whether the compiler rejected the code, as opposed to a failure of our code or a kernel's `launch`."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"CompilationError", "PTXASError", "TritonError"}) or "PassManager::run failed" in str(error)


def describe_error(error: BaseException) -> str:
    """Return the exception's name and text, shortened to about 2,000 characters; of our errors the text alone.

    A fault of a kernel's function begins with the name of what it raised.
    """
    if isinstance(error, KernelFault):
        cause = error.__cause__
        name = "KernelFault" if cause is None else type(cause).__name__
        return f"{name}: {error}"
    if isinstance(error, TunerError):
        return str(error)
    lines = "".join(traceback.format_exception_only(error)).strip().encode(errors="replace").decode()
    return lines if len(lines) <= 2000 else f"{lines[:1000]}\n...\n{lines[-900:]}"


@dataclass
class _Job:
    """A running fork."""

    request: Compile
    pid: int
    pipe: int
    log: Any
    started: float
    received: bytearray = field(default_factory=bytearray)

    @property
    def config(self) -> Config:
        return self.request.config


class _Server:
    """Runs at most `jobs` forks at a time, and kills each at its deadline."""

    def __init__(self, pool: Pool, parent: Connection[Any, Any]) -> None:
        self._pool, self._parent = pool, parent
        self._kernel = _resolved(pool)
        self._deadline = Deadline(pool.settings.deadline_s, pool.settings.adaptive)
        _do_once()
        self._waiting: deque[Compile] = deque()
        self._running: dict[int, _Job] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(parent.fileno(), selectors.EVENT_READ)

    def serve(self) -> None:
        """Compile until the pipe closes, then kill the running forks."""
        try:
            with suppress(EOFError, ConnectionError):
                self._loop()
        finally:
            for job in self._running.values():
                _kill(job)

    def _loop(self) -> None:
        while True:
            while self._waiting and len(self._running) < self._pool.jobs:
                self._start(self._waiting.popleft())
            for key, _ in self._selector.select(self._until_next_deadline()):
                if key.fd == self._parent.fileno():
                    self._take(self._parent.recv())
                elif (job := self._running.get(key.fd)) is not None:  # None if it was dropped in this pass
                    self._read(job)
            for job in [job for job in self._running.values() if self._left(job) <= 0 and not _answered(job)]:
                text = f"the compile took longer than its deadline of {self._deadline.seconds:.3g} s"
                self._end(job, Compiled(job.config, Outcome.TIMEOUT, text, monotonic() - job.started))

    def _take(self, message: Config | Compile | Drop) -> None:
        """Queue a config, or drop all."""
        if not isinstance(message, Drop):
            self._waiting.append(Compile(self._pool.problem, message) if isinstance(message, Config) else message)
            return
        self._waiting.clear()
        for job in list(self._running.values()):
            self._forget(job)
        self._parent.send(message)

    def _start(self, request: Compile) -> None:
        """Fork, compile in the child, and write its result to a pipe."""
        if isinstance(self._kernel, TunerError):
            text, place = describe_error(self._kernel), getattr(self._kernel, "place", "")
            self._parent.send(Compiled(request.config, Outcome.ERROR, text, 0.0, problem=request.problem, place=place))
            return
        ours, theirs = os.pipe()
        log = TemporaryFile()
        parent = os.getpid()
        job = _Job(request, 0, ours, log, monotonic())
        job.pid = pid = os.fork()
        if pid == 0:
            try:
                os.setpgrp()  # no new session: under Linux's autogroup, niceness counts within one session only
                os.nice(self._pool.settings.niceness)
                die_with(parent)
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                result = compile_config(self._kernel, request.problem, request.config, self._pool.limits)
                os.write(theirs, pickle.dumps(result))
            except BaseException:  # noqa: BLE001  it ends this fork, and the server quotes its log
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(0)
        os.close(theirs)
        self._running[ours] = job
        self._selector.register(ours, selectors.EVENT_READ)

    def _read(self, job: _Job) -> None:
        """Read from a job's pipe. An empty read is its end."""
        chunk = os.read(job.pipe, 1 << 16)
        job.received += chunk
        if chunk:
            return
        if job.received:
            self._end(job, pickle.loads(job.received))
        else:
            self._end(job, None)

    def _end(self, job: _Job, result: Compiled | None) -> None:
        """Report a job's result; without one, it crashed."""
        exit_text = self._forget(job)
        if result is not None and result.outcome is Outcome.OK and result.compile_s is not None:
            self._deadline.learn(result.compile_s)
        result = result or Compiled(job.config, Outcome.CRASHED, exit_text, monotonic() - job.started)
        self._parent.send(replace(result, problem=job.request.problem))

    def _forget(self, job: _Job) -> str:
        """Kill a job's fork and forget it. Return how it ended and the end of its output."""
        self._selector.unregister(job.pipe)
        os.close(job.pipe)
        del self._running[job.pipe]
        text = _exit_text(job, _kill(job))
        job.log.close()
        return text

    def _left(self, job: _Job) -> float:
        """Return the seconds until a job's deadline."""
        return job.started + self._deadline.seconds - monotonic()

    def _until_next_deadline(self) -> float | None:
        return max(0.0, min(map(self._left, self._running.values()))) if self._running else None


def _resolved(pool: Pool) -> Kernel | TunerError:
    """Return the kernel, or the reason why it cannot be loaded, with which each config fails."""
    set_target(pool.limits)
    try:
        return catalog.resolve(pool.kernel)
    except TunerError as error:
        return error


def _answered(job: _Job) -> bool:
    """Return whether a job's result has arrived or can be read: this process may have been blocked meanwhile."""
    return bool(job.received) or bool(select([job.pipe], [], [], 0)[0])


def _kill(job: _Job) -> int:
    """Kill a fork and the compilers it started, which share its group. Return its wait status."""
    with suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(job.pid, signal.SIGKILL)  # it may not lead its group yet
    return os.waitpid(job.pid, 0)[1]


def _exit_text(job: _Job, status: int) -> str:
    """Return how a fork ended, and the end of its output."""
    how = f"by {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else "without a result"
    job.log.seek(0)
    return f"the compiler ended {how}\n{job.log.read()[-1500:].decode(errors='replace')}".strip()


def main() -> None:
    """Serve the parent process until it ends."""
    parent = connect()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a compiler that aborts leaves no core file behind
    try:
        server = _Server(parent.recv(), parent)
    except EOFError:
        sys.exit(0)
    server.serve()


if __name__ == "__main__":
    main()
