"""The compile pool: compiles launches into Triton's cache without touching a GPU.

`python -m tuner.measure.compile` runs a process that imports the kernel once and forks for every config. A fork costs
milliseconds, starts with everything imported, dies with whatever the compiler did to it, and takes the processes that
it started along when its deadline passes. No process of the pool has a CUDA context: Triton is given a driver that only
names the target. `fn.warmup` with stand-ins for the tensors then computes the very key that the launch will look up.
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
from tuner.kernels.spec import Config, Kernel, Limits, Operand, Problem, itemsize, torch_dtype
from tuner.measure.deadline import Deadline
from tuner.measure.messages import Compile, Compiled, Drop, Pool
from tuner.measure.processes import connect, die_with
from tuner.records import Outcome

_NICE = 5
"""CompilePool come after the search and the GPU worker, which share the cores with them and need them for moments only:
beside two compilers a core 200 proposals take 1.0 s, and 0.5 s so (2 cores, 2026-11-28). No more than that, for a
compiler's deadline is of wall time, and others may use the machine too. Forks stay in the pool's session, since where
Linux groups processes by session (autogroup) niceness counts within one alone."""


class _Dtype(str):
    """torch's name of a dtype, and how long an element is."""

    itemsize: int


class StandIn:
    """Stands for a tensor where only its description matters."""

    def __init__(self, operand: Operand) -> None:
        self.shape = operand.shape
        self.dtype = _Dtype(f"torch.{torch_dtype(operand.dtype)}")
        self.dtype.itemsize = itemsize(operand.dtype)
        self._strides = operand.element_strides

    def stride(self, dim: int) -> int:
        """Elements between neighbours along `dim`."""
        return self._strides[dim]

    def data_ptr(self) -> int:
        """As aligned as a fresh tensor."""
        return 0


def compile_config(kernel: Kernel, problem: Problem, config: Config, limits: Limits) -> Compiled:
    """Compiles one config in this process, for a target that need not be here.

    Triton's exceptions are told apart by name; any other is reported as `error`, never raised: a config that breaks
    the compiler in a new way is a fact about the config.
    """
    import triton

    set_target(limits)
    hits: list[bool] = []
    triton.knobs.compilation.listener = lambda *, cache_hit, **_: hits.append(cache_hit)
    started = monotonic()
    try:
        shared = [code.metadata.shared for code in compile_launches(kernel, problem, config, limits)]
    except Exception as error:  # noqa: BLE001  a compiler may raise anything
        outcome = Outcome.COMPILE_ERROR if is_compile_error(error) else Outcome.ERROR
        return Compiled(config, outcome, describe_error(error), monotonic() - started)
    seconds = monotonic() - started
    most = max(shared, default=0)
    if most > limits.shared_bytes:
        text = f"needs {most} bytes of shared memory, a block has {limits.shared_bytes}"
        return Compiled(config, Outcome.INFEASIBLE, text, seconds, most)
    return Compiled(config, Outcome.OK, "", None if all(hits) else seconds, most)


def compile_launches(kernel: Kernel, problem: Problem, config: Config, limits: Limits) -> list[Any]:
    """What Triton makes, or has in its cache, of each launch of a config on tensors as the problem describes them."""
    stand_ins = {name: StandIn(operand) for name, operand in kernel.tensors(problem, config, limits).items()}
    return [
        launch.fn.warmup(*launch.args, grid=launch.grid, **launch.kwargs)
        for launch in kernel.launch(problem, config, stand_ins)
    ]


def set_target(limits: Limits) -> None:
    """Makes Triton compile for such a card in this process, which then cannot launch."""
    import triton
    from triton.backends.compiler import GPUTarget

    major, minor = limits.capability
    named = GPUTarget("cuda", 10 * major + minor, limits.warp_size)

    class NamesTheTarget:
        def get_current_device(self) -> int:
            return 0

        def get_current_stream(self, device: int) -> int:
            return 0

        def get_current_target(self) -> Any:
            return named

    triton.runtime.driver.set_active(NamesTheTarget())


def _do_once() -> None:
    """Does in the parent of all forks what Triton would do again in each.

    It hashes its own files (0.5 s). Before 3.8 it also imports torch when it first meets an argument, if there is one:
    that would take each fork 2.5 s, for tensors that never come here (2 cores, Triton 3.6.0 and 3.7.1, 2026-11-27).
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
    """Whether the compiler refused the code, as opposed to our code or a kernel's `launch` failing."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"CompilationError", "PTXASError", "TritonError"}) or "PassManager::run failed" in str(error)


def describe_error(error: BaseException) -> str:
    """The exception's name and text, bounded, for the record."""
    lines = "".join(traceback.format_exception_only(error)).strip().encode(errors="replace").decode()
    return lines if len(lines) <= 2000 else f"{lines[:1000]}\n...\n{lines[-900:]}"


@dataclass
class _Job:
    """One fork at work."""

    asked: Compile
    pid: int
    pipe: int
    log: Any
    started: float
    received: bytearray = field(default_factory=bytearray)

    @property
    def config(self) -> Config:
        return self.asked.config


class _Server:
    """Keeps at most `jobs` forks at work, and every one of them to its deadline."""

    def __init__(self, pool: Pool, parent: Connection[Any, Any]) -> None:
        self._pool, self._parent = pool, parent
        self._kernel = catalog.resolve(pool.kernel)
        self._deadline = Deadline(pool.deadline_s, pool.adaptive)
        _do_once()
        self._waiting: deque[Compile] = deque()
        self._running: dict[int, _Job] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(parent.fileno(), selectors.EVENT_READ)

    def serve(self) -> None:
        """Compiles until the pipe closes, and leaves no compiler behind."""
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
                elif (job := self._running.get(key.fd)) is not None:  # or it was dropped a moment ago
                    self._read(job)
            for job in [job for job in self._running.values() if self._left(job) <= 0 and not _answered(job)]:
                text = f"the compiler was still at work after {self._deadline.seconds:.3g} s"
                self._end(job, Compiled(job.config, Outcome.TIMEOUT, text, monotonic() - job.started))

    def _take(self, message: Config | Compile | Drop) -> None:
        if not isinstance(message, Drop):
            self._waiting.append(Compile(self._pool.problem, message) if isinstance(message, Config) else message)
            return
        self._waiting.clear()
        for job in list(self._running.values()):
            self._forget(job)
        self._parent.send(message)

    def _start(self, asked: Compile) -> None:
        ours, theirs = os.pipe()
        log = TemporaryFile()
        parent = os.getpid()
        job = _Job(asked, 0, ours, log, monotonic())
        job.pid = pid = os.fork()
        if pid == 0:
            try:
                os.setpgrp()
                os.nice(_NICE)
                die_with(parent)
                os.dup2(log.fileno(), 1)
                os.dup2(log.fileno(), 2)
                result = compile_config(self._kernel, asked.problem, asked.config, self._pool.limits)
                os.write(theirs, pickle.dumps(result))
            except BaseException:  # noqa: BLE001  whatever it is, it ends this fork and is quoted by the server
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(0)
        os.close(theirs)
        self._running[ours] = job
        self._selector.register(ours, selectors.EVENT_READ)

    def _read(self, job: _Job) -> None:
        chunk = os.read(job.pipe, 1 << 16)
        job.received += chunk
        if chunk:
            return
        if job.received:
            self._end(job, pickle.loads(job.received))
        else:
            self._end(job, None)

    def _end(self, job: _Job, result: Compiled | None) -> None:
        words = self._forget(job)
        if result is not None and result.outcome is Outcome.OK and result.compile_s is not None:
            self._deadline.learn(result.compile_s)
        result = result or Compiled(job.config, Outcome.CRASHED, words, monotonic() - job.started)
        self._parent.send(replace(result, problem=job.asked.problem))

    def _forget(self, job: _Job) -> str:
        """Ends a job; what it had to say for itself."""
        self._selector.unregister(job.pipe)
        os.close(job.pipe)
        del self._running[job.pipe]
        words = _last_words(job, _kill(job))
        job.log.close()
        return words

    def _left(self, job: _Job) -> float:
        return job.started + self._deadline.seconds - monotonic()

    def _until_next_deadline(self) -> float | None:
        return max(0.0, min(map(self._left, self._running.values()))) if self._running else None


def _answered(job: _Job) -> bool:
    """Whether its result is there, or on the way: this process may have waited long for its own to be read."""
    return bool(job.received) or bool(select([job.pipe], [], [], 0)[0])


def _kill(job: _Job) -> int:
    """Ends a fork and the compilers it started, which share its group; how it had ended by itself, if it had."""
    with suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)
    with suppress(ProcessLookupError):
        os.kill(job.pid, signal.SIGKILL)  # it may not lead its group yet
    return os.waitpid(job.pid, 0)[1]


def _last_words(job: _Job, status: int) -> str:
    how = f"of {signal.Signals(os.WTERMSIG(status)).name}" if os.WIFSIGNALED(status) else "without a word"
    job.log.seek(0)
    return f"the compiler died {how}\n{job.log.read()[-1500:].decode(errors='replace')}".strip()


def main() -> None:
    """Serves compiles to the parent process until it goes."""
    parent = connect()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a compiler that aborts leaves no core file behind
    try:
        server = _Server(parent.recv(), parent)
    except EOFError:
        sys.exit(0)
    server.serve()


if __name__ == "__main__":
    main()
