"""The knobs of a kernel in its check: each choice is compiled once, and a knob that changes no launch is found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from time import monotonic
from typing import Any

from tuner.errors import TunerError
from tuner.kernels.spec import Config, HostCall, Kernel, Knob, Launch, Limits, Problem, Value
from tuner.measure.compile import stood_in
from tuner.measure.compile_pool import CompilePool
from tuner.measure.messages import Compile, Compiled
from tuner.records import Device, Outcome
from tuner.search.space import Space
from tuner.tuning.check_report import Step


@dataclass(frozen=True)
class CheckKnobsSettings:
    """Extent of the check of knobs."""

    configs: int = 3
    """Number of configs that are compiled besides the default."""
    choices_s: float = 20.0
    """Time limit of compiling the other choices of all knobs, in s."""
    near: int = 200
    """Number of configs among which that nearest to the default is compiled, if only it is changed in other knobs."""
    bases: int = 20
    """Number of configs in which a knob is changed to see whether launches change."""
    launches_s: float = 5.0
    """Time limit of those launches on stand-ins, in s."""


SETTINGS = CheckKnobsSettings()


def compile_steps(
    reference: str,
    kernel: Kernel,
    problem: Problem,
    card: Device,
    space: Space,
    default: Config,
    settings: CheckKnobsSettings = SETTINGS,
) -> Iterator[Step]:
    """Compile for a card: the default, a few other configs, then each choice of each knob that they lack.

    A config other than the default may be infeasible.
    """
    at = space.index(default)
    others = Random(0).sample(range(len(space) - 1), min(settings.configs, len(space) - 1))
    first = [default, *(space[place + (place >= at)] for place in others)]
    pool = CompilePool()
    child = pool.take(reference, problem, card.limits)

    def compiled(configs: Sequence[Config], seconds: float | None) -> dict[Config, Compiled]:
        """Return the results that arrive in time."""
        for config in configs:
            child.send(Compile(problem, config))
        found: dict[Config, Compiled] = {}
        until = None if seconds is None else monotonic() + seconds
        while len(found) < len(configs):
            if until is not None and not child.pipe.poll(max(0.0, until - monotonic())):
                break
            result = child.receive()
            found[result.config] = result
        return found

    try:
        found = compiled(first, None)
        for config in first:
            yield _step(found[config], is_default=config == default)
        chosen = dict(_choices(kernel, space, default, first, settings))
        found = compiled(list(dict.fromkeys(config for config in chosen.values() if config)), settings.choices_s)
        for result in found.values():
            if (step := _step(result, is_default=False)).outcome == "failed":
                yield step
        for knob in kernel.signature.knobs:
            mine = {value: config for (name, value), config in chosen.items() if name == knob.name}
            yield _choices_step(knob, mine, found, settings)
    except EOFError:
        yield Step("compile", problem.text, "failed", f"the compile pool died: {child.exit_text()}")
    finally:
        pool.give_back(idle=False)
        pool.close()


def _step(result: Compiled, *, is_default: bool) -> Step:
    if result.outcome is Outcome.OK:
        return Step("compile", result.config.text, "ok", f"{result.shared_bytes or 0:,} bytes of shared memory")
    text = f"{result.place}: {result.error}" if result.place else result.error
    tolerated = result.outcome in (Outcome.INFEASIBLE, Outcome.TIMEOUT) and not is_default
    return Step("compile", result.config.text, "skipped" if tolerated else "failed", text)


def _choices(
    kernel: Kernel, space: Space, default: Config, first: Sequence[Config], settings: CheckKnobsSettings
) -> Iterator[tuple[tuple[str, Value], Config | None]]:
    """Yield each choice that no config of `first` has, with a feasible config: the default with it, or one near that.

    None stands for a choice that no feasible config has.
    """
    for knob in kernel.signature.knobs:
        lacking = [value for value in knob.choices if all(config[knob.name] != value for config in first)]
        if not lacking:
            continue
        column: Sequence[Value] | None = None
        for value in lacking:
            config = kernel.signature.config({**default, knob.name: value})
            if config in space:
                yield (knob.name, value), config
                continue
            column = space.column(knob.name) if column is None else column
            places = [place for place, other in enumerate(column) if other == value]
            some = [space[place] for place in Random(0).sample(places, min(settings.near, len(places)))]
            yield (knob.name, value), max(some, key=lambda other: _alike(other, default), default=None)


def _alike(config: Config, other: Config) -> int:
    return sum(config[name] == other[name] for name in config)


def _choices_step(
    knob: Knob, chosen: dict[Value, Config | None], found: dict[Config, Compiled], settings: CheckKnobsSettings
) -> Step:
    """Return a line on all choices of a knob."""
    late = [value for value, config in chosen.items() if config is not None and config not in found]
    unfit = [
        value
        for value, config in chosen.items()
        if config is None or (config in found and found[config].outcome is not Outcome.OK)
    ]
    count = len(knob.choices) - len(late) - len(unfit)
    text = f"{count} of {len(knob.choices)} choices compile"
    if unfit:
        text += f"; not feasible for this problem: {', '.join(map(str, unfit))}"
    if late:
        text += f"; not compiled within {settings.choices_s:g} s: {', '.join(map(str, late))}"
    return Step("compile", knob.name, "skipped" if late else "ok", text)


def unused_steps(
    kernel: Kernel,
    problem: Problem,
    limits: Limits,
    space: Space,
    default: Config,
    settings: CheckKnobsSettings = SETTINGS,
) -> Iterator[Step]:
    """Yield a warning for each knob of which no choice changes a launch, in the default and in random configs."""
    places = Random(0).sample(range(len(space)), min(settings.bases, len(space)))
    bases = [default, *(space[place] for place in places)]
    until = monotonic() + settings.launches_s
    for knob in kernel.signature.knobs:
        compared = 0
        for base in bases:
            changed = [kernel.signature.config({**base, knob.name: value}) for value in knob.choices]
            configs = [config for config in changed if config in space]
            try:
                launches = [_launched(kernel, problem, config, limits) for config in configs]
            except TunerError:  # of a config that was not compiled; a search measures it as failed
                continue
            if any(launch != launches[0] for launch in launches) or monotonic() > until:
                break
            compared += len(configs) > 1
        else:
            if compared:
                place = getattr(kernel.launch, "place", kernel.op)
                text = (
                    f"{place}: no choice of {knob.name} changes a launch; pass it on in launch, or leave the knob out"
                )
                yield Step("knob", knob.name, "warned", text)


def _launched(kernel: Kernel, problem: Problem, config: Config, limits: Limits) -> list[Any]:
    """Return what a config's launches consist of: functions, grids and arguments."""
    return [_consists_of(step, config) for step in stood_in(kernel, problem, config, limits)]


def _consists_of(step: Launch | HostCall, config: Config) -> Any:
    args = [_described(value) for value in step.args]
    if not isinstance(step, Launch):
        return id(step.fn), args, step.captures
    kwargs = {name: _described(value) for name, value in step.kwargs.items()}
    return id(step.fn), step.grid, args, kwargs, step.pre_hook is not None and config.text  # it may depend on any knob


def _described(value: Any) -> Any:
    """Return an argument as a value that can be compared: a tensor by its layout."""
    if hasattr(value, "data_ptr"):
        return tuple(value.shape), tuple(value.stride()), str(value.dtype), value.data_ptr()
    return repr(value)
