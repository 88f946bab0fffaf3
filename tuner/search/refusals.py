"""Why a space is empty or lacks the default: the constraints that refuse configs."""

from __future__ import annotations

from collections import Counter
from itertools import product

from tuner.kernels.spec import Config, Kernel, Limits, Problem

MOST_SHOWN = 5
"""Number of constraints that a message names."""


def none_feasible(kernel: Kernel, problem: Problem, card: str, limits: Limits) -> str:
    """Return the error of a space without feasible configs: the number of configs that each constraint refuses.

    Args:
        card: name of the card.
    """
    counts = refusals(kernel, problem, limits).most_common()
    named = [f"{count:,} refused by {constraint}" for constraint, count in counts[:MOST_SHOWN]]
    rest = sum(count for _, count in counts[MOST_SHOWN:])
    named += [f"{rest:,} by others"] if rest else []
    return f"no config of {kernel.op} is feasible for {problem.text} on {card}: {', '.join(named)}"


def refusals(kernel: Kernel, problem: Problem, limits: Limits) -> Counter[str]:
    """Return the number of configs that each constraint is the first to refuse."""
    counts: Counter[str] = Counter()
    for part in kernel.parts:
        choices = {knob.name: part.get(knob.name, knob.choices) for knob in kernel.signature.knobs}
        for choice in product(*choices.values()):
            constraint = kernel.valid.refusal(problem, dict(zip(choices, choice, strict=True)), limits)
            if constraint is not None:
                counts[constraint] += 1
    return counts


def refusal(kernel: Kernel, problem: Problem, config: Config, limits: Limits) -> str:
    """Return why a config is not in the space."""
    constraint = kernel.valid.refusal(problem, config, limits)
    return f"refused by {constraint}" if constraint else "in none of the kernel's parts"
