"""Judgement of an examination: the result that most configs agree on is right."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.captured.call import AGREEMENT, CapturedCall, Examined, Role
from tuner.captured.problem import problem_of_call
from tuner.errors import NothingFound
from tuner.kernels.spec import Config, Kernel, Limits
from tuner.measure.examiner import Groups
from tuner.measure.messages import Ran
from tuner.records import Measurement
from tuner.report.text import failures_text


@dataclass(frozen=True)
class ExaminedSettings:
    """Extent of an examination."""

    configs: int = 64
    """Largest number of listed configs that are examined."""


SETTINGS = ExaminedSettings()


def listed(kernel: Kernel, call: CapturedCall, limits: Limits) -> list[Config]:
    """Return the feasible configs among those that a call lists, in their order, up to the number that is examined."""
    problem = problem_of_call(call)
    configs = dict.fromkeys(map(kernel.signature.config, call.configs))
    return [config for config in configs if kernel.valid(problem, config, limits)][: SETTINGS.configs]


def judged(found: Groups, kernel: Kernel, basis: str, triton: str) -> Examined:
    """Return the result of an examination: the largest group of configs that agree is right.

    Raises:
        NothingFound: no config ran, or another group is as large.
    """
    if not found.groups:
        raise NothingFound(f"no config of {kernel.op} ran when it was examined: {_failures(found.failed)}")
    group, *others = found.largest
    if others and basis == AGREEMENT:
        raise NothingFound(_tie(kernel.op, group[0], others[0][0]))
    return Examined(
        roles={name: _merged([ran.roles[name] for ran in group]) for name in group[0].roles},
        basis=basis,
        agreed=dict(group[0].config) if basis == AGREEMENT else None,
        agreeing=len(group),
        differing=sum(map(len, found.groups)) - len(group),
        source=kernel.source,
        triton=triton,
    )


def _merged(roles: Sequence[Role]) -> Role:
    """Return the role of a tensor from the roles that each config found: `inout` if they differ."""
    return roles[0] if len(set(roles)) == 1 else "inout"


def _tie(op: str, one: Ran, other: Ran) -> str:
    where = other.differs.get(one.config, "their outputs differ")
    return (
        f"the result that most configs of {op} agree on is right, and as many agree with {one.config.text} as with "
        f"{other.config.text}: {where}; state the right one with autotune(reference=...)"
    )


def _failures(failed: Sequence[Measurement]) -> str:
    first, counts = failed[0], Counter(str(each.outcome) for each in failed)
    lines = [line.strip() for line in first.error.splitlines() if line.strip()]
    error = " ".join(dict.fromkeys((*lines[:1], *lines[-1:])))  # a compiler states the place first, and why at the end
    return f"{failures_text(counts)}; {first.config.text}: {error}"
