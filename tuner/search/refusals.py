"""Why a space is empty or lacks the default: the constraints that refuse configs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from random import Random

from tuner.kernels.rules import Refusal
from tuner.kernels.spec import Config, Kernel, Limits, Problem, Value

MOST_SHOWN = 5
"""Number of conditions that a message names."""
MOST_EXPLAINED = 1000
"""Number of configs of an empty space whose refusals are explained, at about half a millisecond each."""


def none_feasible(kernel: Kernel, problem: Problem, card: str, limits: Limits, most: int = MOST_EXPLAINED) -> str:
    """Return the error of a space without feasible configs: the configs that each condition is the first to refuse.

    Args:
        card: name of the card.
        most: size of the random sample that stands for a larger space.
    """
    total = _size(kernel)
    counts, share = Counter[tuple[str, str]](), max(1.0, total / most)
    details = dict[tuple[str, str], Counter[str]]()
    for refusal, count in refusals(kernel, problem, limits, min(total, most)).items():
        kind = refusal.constraint, refusal.condition
        counts[kind] += round(count * share)
        details.setdefault(kind, Counter())[refusal.detail] += count
    about = "about " if share > 1 else ""
    named = [
        f"{about}{count:,} refused by {_example(*kind, details[kind])}"
        for kind, count in counts.most_common(MOST_SHOWN)
    ]
    rest = sum(counts.values()) - sum(count for _, count in counts.most_common(MOST_SHOWN))
    named += [f"{about}{rest:,} by other conditions"] if rest else []
    refused = ", ".join(named)
    return (
        f"no config of {kernel.op} is feasible for {problem.text} on {card}: {refused}; "
        "change the problem, the card or the constraints"
    )


def refusals(kernel: Kernel, problem: Problem, limits: Limits, most: int | None = None) -> Counter[Refusal]:
    """Return the number of configs that each constraint is the first to refuse.

    Args:
        most: size of a random sample of the combinations of choices; None: all of them.
    """
    combinations: Iterator[Mapping[str, Value]] = _combinations(kernel)
    if most is not None:
        sampled = set(Random(0).sample(range(_size(kernel)), most))
        combinations = (values for nth, values in enumerate(combinations) if nth in sampled)
    counts: Counter[Refusal] = Counter()
    for values in combinations:
        refused = kernel.valid.refusal(problem, values, limits)
        if refused is not None:
            counts[refused] += 1
    return counts


def refusal(kernel: Kernel, problem: Problem, config: Config, limits: Limits) -> str:
    """Return why a config is not in the space."""
    knobs = {knob.name: knob.choices for knob in kernel.signature.knobs}
    if lacking := knobs.keys() ^ config.keys():
        name = min(lacking)
        return f"the kernel has no knob {name}" if name in config else f"the config lacks the knob {name}"
    if not any(all(config[name] in part.get(name, knobs[name]) for name in knobs) for part in kernel.parts):
        return "in none of the kernel's parts"
    refused = kernel.valid.refusal(problem, config, limits)
    return f"refused by {refused}" if refused else "feasible"


def _combinations(kernel: Kernel) -> Iterator[Mapping[str, Value]]:
    """Yield all combinations of choices, part by part."""
    for part in kernel.parts:
        choices = {knob.name: part.get(knob.name, knob.choices) for knob in kernel.signature.knobs}
        for choice in product(*choices.values()):
            yield dict(zip(choices, choice, strict=True))


def _size(kernel: Kernel) -> int:
    """Return the number of combinations of choices."""
    knobs = kernel.signature.knobs
    return sum(prod(len(part.get(knob.name, knob.choices)) for knob in knobs) for part in kernel.parts)


def _example(constraint: str, condition: str, details: Counter[str]) -> str:
    """Return a refusal with its most frequent detail, as an example if there are others."""
    (detail, _), *others = details.most_common()
    return str(Refusal(constraint, condition, f"for example {detail}" if others else detail))
