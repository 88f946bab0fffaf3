"""A ladder: steps that give the same result, each in less time than the one before."""

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
    """The difference from the step before, for the table."""
    runs: Callable[[Problem, Tensors], Sequence[Run]]
    """Functions to call in order: `Launch` values or torch operations."""
    workspace: Callable[[Problem, Limits], Mapping[str, Operand]] = lambda problem, limits: {}
    """Tensors that the step needs besides the operands, as `Kernel.workspace`."""
    since: tuple[int, int] = (0, 0)
    """Lowest compute capability that the step runs on."""


@dataclass(frozen=True)
class Ladder:
    """Steps up to an op's tuned kernel, which defines the operands and the reference."""

    kernel: Kernel
    problems: tuple[Problem, ...]
    steps: tuple[Step, ...]
    unit: Literal["GB/s", "TFLOP/s"]
    """Unit of the op's rate: bytes if memory bandwidth limits it, operations if the tensor cores do."""

    def rate(self, problem: Problem, latency_us: float) -> float:
        """Return the rate at this latency, in `unit`."""
        if self.unit == "GB/s":
            return self.kernel.bytes(problem) / latency_us / 1e3
        return self.kernel.flops(problem) / latency_us / 1e6


def configured(
    name: str, change: str, kernel: Kernel, knobs: Mapping[str, Value], since: tuple[int, int] = (0, 0)
) -> Step:
    """Return a step that is a config of the op's kernel."""
    config = kernel.signature.config(knobs)
    return Step(
        name,
        change,
        runs=lambda problem, tensors: kernel.launch(problem, config, tensors),
        workspace=lambda problem, limits: kernel.workspace(problem, config, limits),
        since=since,
    )
