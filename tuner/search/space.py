"""The feasible configs of a problem on a card."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from tuner.kernels.spec import Config, Kernel, Limits, Problem


def feasible(kernel: Kernel, problem: Problem, limits: Limits) -> Iterator[Config]:
    """Yield the configs that the kernel's rules allow, part by part and in the order of the choices."""
    for part in kernel.parts:
        choices = {knob.name: part.get(knob.name, knob.choices) for knob in kernel.signature.knobs}
        for choice in product(*choices.values()):
            values = dict(zip(choices, choice, strict=True))
            if kernel.valid(problem, values, limits):
                yield kernel.signature.config(values)


def common(spaces: Sequence[Sequence[Config]]) -> list[Config]:
    """Return the configs that are in all of these spaces, in the order of the first."""
    others = [set(space) for space in spaces[1:]]
    return [config for config in spaces[0] if all(config in other for other in others)]
