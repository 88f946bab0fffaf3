"""The interpreter process: it runs a kernel's configs on the CPU and compares them with the reference.

`python -m tuner.measure.interpret` runs with TRITON_INTERPRET=1, which Triton reads when it is imported. The
interpreter shows wrong masks, strides and shapes; it shows neither conflicts between threads nor the card's rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from math import prod
from typing import Any

import torch

from tuner import catalog
from tuner.errors import KernelFault, TunerError
from tuner.kernels.spec import Config, Kernel, Launch, Limits, Operand, Problem, cdiv
from tuner.measure import check, tensors
from tuner.measure.bounds import OutOfBounds, within
from tuner.measure.compile import describe_error, set_target
from tuner.measure.correctness import BelowRounding, calibrated, rounding_hint
from tuner.measure.messages import Interpret, Interpreted
from tuner.measure.place import place_of
from tuner.measure.processes import connect, die_with, parent
from tuner.measure.tolerance import Tolerance, tolerances

_NOT_ON_CPU = (AssertionError, ImportError, NotImplementedError, RuntimeError)
"""Exceptions by which libraries refuse the CPU."""


def interpret(kernel: Kernel, problem: Problem, config: Config, limits: Limits) -> Interpreted:
    """Run one config on the CPU and compare it with the reference."""
    functions: list[Any] = []
    try:
        text = _wrongness(kernel, problem, config, limits, functions)
        return Interpreted(config, "failed" if text else "ok", text)
    except _Skipped as skipped:
        return Interpreted(config, "skipped", str(skipped))
    except TunerError as error:
        return Interpreted(config, "failed", str(error))
    except Exception as error:  # noqa: BLE001  a kernel may raise anything
        place, outside = place_of(error, functions), error.__cause__
        text = str(outside) if isinstance(outside, OutOfBounds) else describe_error(error)
        return Interpreted(config, "failed", f"{place}: {text}" if place else text)


class _Skipped(Exception):
    """The config cannot be interpreted."""


def _wrongness(kernel: Kernel, problem: Problem, config: Config, limits: Limits, functions: list[Any]) -> str:
    """Return the difference from the reference that is too large; empty if there is none."""
    from triton.runtime.interpreter import InterpretedFunction

    operands = kernel.operands(problem)
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=1)
    settings = _in_parts(operands)
    allowed = _allowed(kernel, problem, operands, values, settings)
    work = tensors.workspace(kernel.workspace(problem, config, limits), "cpu")
    steps = kernel.launch(problem, config, {**values, **work})
    launches = [step for step in steps if isinstance(step, Launch)]
    functions += [launch.fn for launch in launches]
    if len(launches) < len(steps):
        raise _Skipped("a call on the host queues work on a stream of a card, and the interpreter has none")
    if any(not isinstance(function, InterpretedFunction) for function in functions):
        raise _Skipped("Triton's interpreter runs functions under @triton.jit, and this is another, such as Gluon's")
    before = tensors.checksums(operands, values)
    given = [value for launch in launches for value in (*launch.args, *launch.kwargs.values())]
    reached = [*values.values(), *work.values(), *(value for value in given if isinstance(value, torch.Tensor))]

    def run() -> None:
        with within(reached):
            for launch in launches:
                launch()

    found, outputs = check.differences_after(kernel, problem, operands, values, run, settings, allowed)
    code = functions[0].fn.__code__ if functions else None
    where = getattr(kernel.launch, "place", "") if code is None else f"{code.co_filename} line {code.co_firstlineno}"
    place = f"{where}: " if where else ""
    if changed := tensors.changed(values, before):
        return f"{place}writes to {', '.join(changed)}, which is only read"
    worst = check.worst(found)
    if not worst.passes:
        element = check.first_element(kernel, problem, values, outputs[worst.name], worst)
        shown = f"{element.place} is {element.shown}{rounding_hint(worst)}"
        return f"{place}outputs deviate from the reference {worst.text}: {shown}"
    beside = tensors.written_beside(operands, values)
    return f"{place}writes beside {', '.join(beside)}" if beside else ""


def _in_parts(operands: Mapping[str, Operand]) -> check.CheckSettings:
    """Return settings by which a reference is asked for parts of the rows, as it is for large problems."""
    elements = max((prod(operand.shape) for operand in operands.values() if operand.role != "in"), default=0)
    return check.CheckSettings(block_elements=max(1, cdiv(elements, 2)))


def _allowed(
    kernel: Kernel,
    problem: Problem,
    operands: Mapping[str, Operand],
    values: Mapping[str, torch.Tensor],
    settings: check.CheckSettings,
) -> Mapping[str, Tolerance]:
    """Return the tolerances, from the error of the vendor's kernel on the CPU, or all rounding if it does not run."""
    try:
        return calibrated(kernel, problem, operands, values, settings)
    except BelowRounding as fault:
        raise _Skipped(str(fault)) from fault
    except KernelFault as fault:
        if ": vendor" not in str(fault) or not isinstance(fault.__cause__, _NOT_ON_CPU):
            raise
        return {name: limit.at_ceiling() for name, limit in tolerances(kernel, problem).items()}


def main() -> None:
    """Serve the parent process until it ends."""
    die_with(parent())
    pipe = connect()
    with suppress(EOFError):
        while True:
            request: Interpret = pipe.recv()
            set_target(request.limits)  # for modules that ask for the card when they are imported
            kernel = catalog.resolve(request.kernel)
            for config in request.configs:
                pipe.send(interpret(kernel, request.problem, config, request.limits))


if __name__ == "__main__":
    main()
