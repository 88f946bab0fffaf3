"""The check of a kernel without a GPU: its fields, its feasible configs, its code for a card, and small problems."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from random import Random
from time import monotonic

from tuner import catalog, recorded
from tuner.errors import NoDevice, TunerError, UnknownName, UsageError
from tuner.kernels.spec import Config, Kernel, Problem, Signature
from tuner.measure.messages import Interpret, Interpreted
from tuner.measure.processes import Child
from tuner.records import Device
from tuner.search.refusals import none_feasible, refusal
from tuner.search.space import FeasibleSpace
from tuner.tuning.check_knobs import SETTINGS as KNOBS_SETTINGS
from tuner.tuning.check_knobs import CheckKnobsSettings, compile_steps, unused_steps
from tuner.tuning.check_report import KernelReport, Step

DEVICE = "nvidia-h200"
"""Id of the card for which a kernel is checked if none is named."""


@dataclass(frozen=True)
class CheckKernelSettings:
    """Extent of the check."""

    size: int = 1024
    """Size of a dim that is not given and has no default."""
    knobs: CheckKnobsSettings = KNOBS_SETTINGS
    """Extent of the check of knobs."""
    small_sizes: tuple[int, ...] = (1, 3, 127, 129)
    """Sizes of the interpreted problems, which no tile divides."""
    largest_given: int = 256
    """Largest given size that the interpreted problems keep."""
    elements: int = 2**13
    """Most elements of all operands of an interpreted problem. The largest given size is halved, to an odd number if
    possible, until the operands fit or no size can be halved."""
    interpret_s: float = 60.0
    """Time limit of one interpreted problem, in s."""
    draws: int = 1000
    """Largest number of random draws for a feasible config."""


SETTINGS = CheckKernelSettings()
_INTERPRETED = ("fp16", "fp32")
"""Dtypes of interpreted problems."""
_WRONG_IN_INTERPRETER = ("bf16", "fp8e4m3", "fp8e5m2")
"""Dtypes of operands that Triton's interpreter rounds wrongly."""


def check_kernel(
    reference: str,
    values: Mapping[str, object],
    device_id: str = DEVICE,
    settings: CheckKernelSettings = SETTINGS,
) -> KernelReport:
    """Check a kernel without a GPU, up to its first error.

    Args:
        reference: name or file of the kernel.
        values: of the problem that is compiled for; a dim that is missing has its default or `settings.size`.
        device_id: id of a recorded card.

    Raises:
        UnknownName: there is no such kernel file, op or card.
        UsageError: the values describe no problem of the kernel.
    """
    cards = recorded.devices()
    if device_id not in cards:
        raise UnknownName(f"no recorded card is called {device_id[:80]!r}; known are {', '.join(sorted(cards))}")
    card, steps = cards[device_id], []
    for step in _steps(reference, values, card, settings):
        steps.append(step)
        if step.outcome == "failed":
            break
    return KernelReport(reference, device_id, tuple(steps))


def _steps(reference: str, values: Mapping[str, object], card: Device, settings: CheckKernelSettings) -> Iterator[Step]:
    try:
        kernel = catalog.resolve(reference)
    except UnknownName:
        raise
    except (UsageError, NoDevice) as error:
        yield Step("load", reference, "failed", str(error))
        return
    yield Step("load", kernel.op, "ok", kernel.signature.summary)
    problem = _problem(kernel.signature, values, settings)
    try:
        space = FeasibleSpace.of(kernel, problem, card.limits)
        operands = kernel.operands(problem)
        default = kernel.default_config(problem, card.limits)
        kernel.flops(problem), kernel.rounding(problem)
    except UsageError as error:
        yield Step("space", problem.text, "failed", str(error))
        return
    if not space:
        yield Step("space", problem.text, "failed", none_feasible(kernel, problem, card.name, card.limits))
        return
    yield Step("space", problem.text, "ok", f"{len(space):,} feasible configs, {len(operands)} operands")
    if default not in space:
        why = refusal(kernel, problem, default, card.limits)
        text = f"{getattr(kernel.default, 'place', kernel.op)}: the default {default.text} is {why}; change one of them"
        yield Step("default", default.text, "failed", text)
        return
    yield from compile_steps(reference, kernel, problem, card, space, default, settings.knobs)
    yield from unused_steps(kernel, problem, card.limits, space, default, settings.knobs)
    yield from _interpret(reference, kernel, values, card, settings)


def _problem(signature: Signature, values: Mapping[str, object], settings: CheckKernelSettings) -> Problem:
    sizes = {dim.name: settings.size for dim in signature.dims if dim.default is None}
    return signature.problem({**sizes, **values})


def _interpret(
    reference: str, kernel: Kernel, values: Mapping[str, object], card: Device, settings: CheckKernelSettings
) -> Iterator[Step]:
    """Run small problems in Triton's interpreter, in a process of its own."""
    dtypes = [dtype for dtype in _INTERPRETED if dtype in kernel.signature.dtypes]
    given = values.get("dtype")
    dtypes = [str(given)] if given in dtypes else dtypes
    if not dtypes:
        known = ", ".join(kernel.signature.dtypes)
        yield Step("interpret", kernel.op, "skipped", f"it is interpreted in fp16 and fp32, and knows {known}")
        return
    child: Child | None = None
    try:
        for problem in _small_problems(kernel, values, dtypes, settings):
            configs, why = _interpretable(kernel, problem, card, settings)
            if not configs:
                yield Step("interpret", problem.text, "skipped", why)
                continue
            if child is None or not child.runs:
                child = Child("tuner.measure.interpret", {"TRITON_INTERPRET": "1"})
            yield from _run(child, Interpret(reference, problem, card.limits, configs), settings)
    finally:
        if child is not None:
            child.kill()


def _small_problems(
    kernel: Kernel, values: Mapping[str, object], dtypes: Sequence[str], settings: CheckKernelSettings
) -> Iterator[Problem]:
    """Yield problems of small odd sizes. Dims with a number as default keep it, and small given sizes as far as the
    operands stay small."""
    signature = kernel.signature
    kept = {
        name: value
        for name, value in values.items()
        if not any(dim.name == name for dim in signature.dims) or int(str(value)) <= settings.largest_given
    }
    free = [dim.name for dim in signature.dims if dim.name not in kept and not isinstance(dim.default, int)]
    sizes = settings.small_sizes
    for dtype in dtypes:
        for first in range(len(sizes) if free else 1):
            drawn = {name: sizes[(first + index) % len(sizes)] for index, name in enumerate(free)}
            with suppress(UsageError):  # a given attribute may not apply to this dtype
                yield _with_few_elements(kernel, {**kept, "dtype": dtype}, drawn, settings)


def _with_few_elements(
    kernel: Kernel, kept: Mapping[str, object], drawn: Mapping[str, int], settings: CheckKernelSettings
) -> Problem:
    """Return the problem of these sizes, with kept ones of dims without a default number cut if they are large."""
    given = [dim.name for dim in kernel.signature.dims if dim.name in kept and not isinstance(dim.default, int)]
    sizes = {name: int(str(kept[name])) for name in given}
    problem = kernel.signature.problem({**kept, **drawn})
    while _elements(kernel, problem) > settings.elements and max(sizes.values(), default=1) > 1:
        largest = max(sizes, key=lambda name: sizes[name])
        half = sizes[largest] // 2
        for size in dict.fromkeys((half - 1 + half % 2 or 1, half)):
            with suppress(UsageError):  # a smaller problem may be none, as an image smaller than a window
                smaller = kernel.signature.problem({**kept, **sizes, largest: size, **drawn})
                kernel.operands(smaller)
                sizes[largest], problem = size, smaller
                break
        else:
            break
    return problem


def _elements(kernel: Kernel, problem: Problem) -> int:
    """Return the number of elements of all operands; 0 if the problem has none."""
    with suppress(UsageError):
        return sum(prod(operand.shape) for operand in kernel.operands(problem).values())
    return 0


def _interpretable(
    kernel: Kernel, problem: Problem, card: Device, settings: CheckKernelSettings
) -> tuple[tuple[Config, ...], str]:
    """Return the default, if it is feasible, and another config; or the reason why the problem is skipped."""
    try:
        operands = kernel.operands(problem)
        default = kernel.default_config(problem, card.limits)
    except TunerError as error:
        return (), str(error)
    if wrong := [f"{name} is {o.dtype}" for name, o in operands.items() if o.dtype in _WRONG_IN_INTERPRETER]:
        return (), f"the interpreter rounds bf16 and 8-bit floats wrongly, and {wrong[0]}"
    configs = [default] if kernel.valid(problem, default, card.limits) else []
    dice = Random(len(problem.text))
    for _ in range(settings.draws):
        part = dice.choice(kernel.parts)
        drawn = {knob.name: dice.choice(part.get(knob.name, knob.choices)) for knob in kernel.signature.knobs}
        if kernel.valid(problem, drawn, card.limits) and (config := kernel.signature.config(drawn)) not in configs:
            configs.append(config)
            break
    why = "" if configs else refusal(kernel, problem, default, card.limits)
    return tuple(configs), f"no config is feasible at these sizes: the default {default.text} is {why}"


def _run(child: Child, request: Interpret, settings: CheckKernelSettings) -> Iterator[Step]:
    """Interpret a problem. A process over its time is killed, and its config skipped: programs may wait for others."""
    child.send(request)
    until = monotonic() + settings.interpret_s
    for config in request.configs:
        subject = f"{request.problem.text}: {config.text}"
        try:
            if not child.pipe.poll(max(0.0, until - monotonic())):
                child.kill()
                yield Step("interpret", subject, "skipped", f"took more than {settings.interpret_s:g} s")
                return
            result: Interpreted = child.receive()
        except EOFError:
            yield Step("interpret", subject, "failed", f"the interpreter died: {child.exit_text()}")
            return
        yield Step("interpret", subject, result.outcome, result.text)
