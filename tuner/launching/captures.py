"""Configs that a CUDA graph can capture: of work of the host, a graph would repeat nothing."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import torch

from tuner.errors import UsageError
from tuner.kernels.calling import Pointers
from tuner.kernels.launch import any_on_host
from tuner.kernels.spec import Config, HostCall, Kernel, Launch, Limits, Operand, Problem, Step
from tuner.launching.waiting import Run
from tuner.measure.compile import stood_in

_log = logging.getLogger("tuner")


def is_captured(steps: Sequence[Step], work: Mapping[str, Operand]) -> bool:
    """Return whether a CUDA graph repeats all work of these launches and calls, and holds all of their workspace."""
    return all(step.captures for step in steps if isinstance(step, HostCall)) and not any_on_host(work)


def not_captured(problem: Problem) -> UsageError:
    """Return the error of a capture of a problem whose work no graph repeats."""
    return UsageError(
        f"a CUDA graph repeats the work of the card alone, and {problem.text} is work of the host too; "
        "call it outside of the graph"
    )


def substitute(kernel: Kernel, problem: Problem, config: Config, limits: Limits) -> Config | None:
    """Return the config that stands for one with work on the host in a CUDA graph, or None if there is none.

    It is feasible and differs in one knob. One without a kernel is preferred, since it need not be compiled.
    """
    found: list[tuple[bool, Config]] = []
    for knob in kernel.signature.knobs:
        for choice in knob.choices:
            other = kernel.signature.config({**config, knob.name: choice})
            if kernel.valid(problem, other, limits):
                steps = stood_in(kernel, problem, other, limits)
                if is_captured(steps, kernel.workspace(problem, other, limits)):
                    found.append((any(isinstance(step, Launch) for step in steps), other))
    return min(found, key=lambda each: each[0], default=(False, None))[1]


def or_captured(run: Run, captured: Run | None, problem: Problem, config: Config, other: Config | None) -> Run:
    """Return a run that is `captured` if the current stream is being captured.

    Args:
        captured: a run of the config `other`; None if there is none, and then a capture raises UsageError.
    """
    noted: list[bool] = []

    def on_stream(stream: int, pointers: Pointers) -> None:
        if not torch.cuda.is_current_stream_capturing():
            run(stream, pointers)
            return
        if captured is None or other is None:
            raise not_captured(problem)
        if not noted:
            noted.append(True)
            _log.warning(
                "%s: a CUDA graph captures %s, since %s works on the host", problem.text, other.text, config.text
            )
        captured(stream, pointers)

    return on_stream
