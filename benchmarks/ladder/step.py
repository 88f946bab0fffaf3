"""The words a ladder is written in: steps that give the same result, each in less time than the one before."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tuner.kernels.spec import Kernel, Limits, Operand, Problem, Value

Run = Callable[[], object]
Tensors = Mapping[str, Any]


@dataclass(frozen=True)
class Step:
    """One way to compute the op."""

    name: str
    change: str
    """What it does that the step before does not, for a line of the table."""
    runs: Callable[[Problem, Tensors], Sequence[Run]]
    """What to call, in order: a `Launch` each, or torch's operations."""
    workspace: Callable[[Problem, Limits], Mapping[str, Operand]] = lambda problem, limits: {}
    """Tensors that it needs beside the operands, as `Kernel.workspace`."""
    since: tuple[int, int] = (0, 0)
    """The first compute capability that has what it uses."""


@dataclass(frozen=True)
class Ladder:
    """Steps up to an op's tuned kernel, which has the operands, the reference and the last word."""

    kernel: Kernel
    problems: tuple[Problem, ...]
    steps: tuple[Step, ...]
    unit: Literal["GB/s", "TFLOP/s"]
    """What bounds the op on a large card: the bytes that must be moved, or the operations."""

    def rate(self, problem: Problem, latency_us: float) -> float:
        """How much of what bounds it gets done, in `unit`."""
        if self.unit == "GB/s":
            return self.kernel.bytes(problem) / latency_us / 1e3
        return self.kernel.flops(problem) / latency_us / 1e6


def configured(
    name: str, change: str, kernel: Kernel, knobs: Mapping[str, Value], since: tuple[int, int] = (0, 0)
) -> Step:
    """A step that is only a config of the op's kernel."""
    config = kernel.signature.config(knobs)
    return Step(
        name,
        change,
        runs=lambda problem, tensors: kernel.launch(problem, config, tensors),
        workspace=lambda problem, limits: kernel.workspace(problem, config, limits),
        since=since,
    )
