"""The process that compiles and runs the profiled config: `python -m tuner.profiling.worker`.

A config or a profiler may end this process; the parent then reports what is missing.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tuner import catalog
from tuner.errors import TunerError
from tuner.kernels.launch import Launch
from tuner.measure.binaries import checked_cache
from tuner.measure.compile import describe_error, set_target, stood_in
from tuner.measure.processes import connect, die_with, parent
from tuner.profiling import proton, trace
from tuner.profiling.compiled import compiled_launch
from tuner.profiling.messages import Failed, ProfileTask, Ran, RunProton, Stalls, Times, Trace

SAMPLES = 20
"""Number of samples, and of launches under Proton. Source: chosen."""


def compile_only(task: ProfileTask) -> Ran:
    """Compile the launches of a config for a card that need not be here. The process cannot launch afterwards."""
    set_target(task.limits)
    kernel = catalog.resolve(task.kernel)
    with checked_cache():
        steps = stood_in(kernel, task.problem, task.config, task.limits)
        launches = [step for step in steps if isinstance(step, Launch)]
        compiled = tuple(compiled_launch(launch, launch.warmup(), loaded=False) for launch in launches)
        return Ran(compiled, calls=len(steps) - len(launches))


class Session:
    """A config with its tensors on the card.

    Args:
        device: torch's name of the device. The parent makes only one card visible, so it is the first.
    """

    def __init__(self, task: ProfileTask, device: str = "cuda:0") -> None:
        from tuner.measure.allocator import provide_memory
        from tuner.measure.loaded_problem import LoadedProblem
        from tuner.measure.messages import Task

        provide_memory()
        self._loaded = LoadedProblem(Task(task.kernel, task.problem, task.limits, task.policy), device, None)
        self._loaded.draw(0)
        self._config = task.config
        (self._steps,) = self._loaded.launches(task.config, self._loaded.tensors)
        self._names: list[str] = []

    def run(self) -> Ran:
        """Launch, and time the config by the clock of its policy."""
        launches = [step for step in self._steps if isinstance(step, Launch)]
        with checked_cache():
            compiled = [step() for step in self._steps]
        self._loaded.clock.wait()
        codes = [code for code, step in zip(compiled, self._steps, strict=True) if isinstance(step, Launch)]
        described = tuple(
            compiled_launch(launch, code, loaded=True) for launch, code in zip(launches, codes, strict=True)
        )
        self._names = [launch.name for launch in described]
        self._loaded.copy_sets()
        samples = tuple(self._loaded.timer(self._config)(SAMPLES))
        return Ran(described, samples, len(self._steps) - len(described))

    def proton(self, request: RunProton) -> Times | Trace | Stalls | Failed:
        """Run the config under Proton."""
        if request.kind == "trace":
            text = proton.profiled(self._run, "trace")
            if isinstance(text, str) and trace.has_kernels(text, self._names):
                return Trace(text, "proton")
            return Trace(trace.of_spans(self._spans()), "events")
        document = proton.profiled(self._run, "tree", "pcsampling" if request.kind == "stalls" else None)
        if isinstance(document, Failed):
            return document
        read = proton.stalls if request.kind == "stalls" else proton.times
        return read(document, self._names)

    def _run(self) -> None:
        """Launch on a cold L2, several times."""
        for _ in range(SAMPLES):
            self._flush()
            for step in self._steps:
                step()
        self._loaded.clock.wait()

    def _flush(self) -> None:
        import torch

        torch.empty(2**28, dtype=torch.int8, device=self._loaded.device).zero_()

    def _spans(self) -> list[tuple[str, float, float]]:
        """Return name, start and duration of each launch by CUDA events, in us."""
        import torch

        def event() -> Any:
            made = torch.cuda.Event(enable_timing=True)
            made.record()
            return made

        marks = []
        begin = event()
        for _ in range(SAMPLES):
            self._flush()
            for step in self._steps:
                start = event()
                step()
                marks.append((getattr(getattr(step, "fn", None), "__name__", "call"), start, event()))
        self._loaded.clock.wait()
        return [(name, 1e3 * begin.elapsed_time(start), 1e3 * start.elapsed_time(end)) for name, start, end in marks]


class Server:
    """Answers the requests of one profile."""

    def __init__(self) -> None:
        self._session: Session | None = None

    def answer(self, request: ProfileTask | RunProton) -> Ran | Times | Trace | Stalls | Failed:
        """Return the answer to a request. Any exception becomes `Failed`."""
        try:
            if isinstance(request, RunProton):
                assert self._session is not None
                return self._session.proton(request)
            if not request.launches:
                return compile_only(request)
            self._session = Session(request)
            return self._session.run()
        except TunerError as error:
            return Failed(str(error))
        except Exception as error:  # noqa: BLE001  a config may fail in any way; its failure is the answer
            return Failed(describe_error(error))


def main() -> None:
    """Serve the parent process until it ends."""
    die_with(parent())
    pipe, server = connect(), Server()
    with suppress(EOFError):
        while True:
            pipe.send(server.answer(pipe.recv()))


if __name__ == "__main__":
    main()
