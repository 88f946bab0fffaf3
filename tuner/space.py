"""The feasible set: every config that a kernel's rules allow for a problem on a card."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from tuner.kernels.spec import Config, Kernel, Limits, Problem


def feasible(kernel: Kernel, problem: Problem, limits: Limits) -> Iterator[Config]:
    """Configs part by part, in the order of the choices, constraints checked one by one."""
    for part in kernel.parts:
        choices = {knob.name: part.get(knob.name, knob.choices) for knob in kernel.signature.knobs}
        for choice in product(*choices.values()):
            values = dict(zip(choices, choice, strict=True))
            if kernel.valid(problem, values, limits):
                yield kernel.signature.config(values)
