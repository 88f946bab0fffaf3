"""Whose winners a search tries first: those of near problems, other dtypes and cards, older compilers and sources."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tuner.kernels.spec import Config, Problem, Signature
from tuner.lookup.neighbours import distance, today
from tuner.records import Provenance, StoredAnswer

MOST_WINNERS = 4
_OTHER_DTYPE, _OTHER_DEVICE, _OTHER_ATTRIBUTE, _OTHER_SOURCE, _OTHER_COMPILER = 1.0, 1.0, 0.5, 0.25, 0.125
"""Octaves that a winner is farther off for being another's: what it says of this problem is worth that much less."""
_FARTHEST = 4.0
"""Winners farther off than this are no better than what a sampler takes."""


@dataclass(frozen=True)
class Winner:
    """A config that won a search, and where. `answer` is the id it is stored under, if it is."""

    problem: Problem
    provenance: Provenance
    config: Config
    answer: int | None = None

    @staticmethod
    def of(stored: StoredAnswer) -> Winner:
        """That of a stored answer."""
        return Winner(stored.answer.problem, stored.provenance, stored.answer.config, stored.id)


def promising(
    winners: Iterable[Winner],
    signature: Signature,
    problem: Problem,
    provenance: Provenance,
    space: Collection[Config],
    most: int = MOST_WINNERS,
) -> dict[Config, Winner]:
    """Different configs of `space` that won near problems, the most promising first, and where each of them won.

    The same problem with an older compiler or source is as near as can be; another dtype or card is an octave off.
    """
    ranked = sorted(
        (
            (_remoteness(winner, problem, provenance), -(winner.answer or 0), number, winner)
            for number, winner in enumerate(winners)
        ),
    )
    found: dict[Config, Winner] = {}
    for remoteness, _, _, winner in ranked:
        if remoteness > _FARTHEST or len(found) == most:
            break
        config = today(signature, winner.config)
        if config is not None and config in space:
            found.setdefault(config, winner)
    return found


def _remoteness(winner: Winner, problem: Problem, provenance: Provenance) -> float:
    there, here = winner.provenance, provenance
    asked, had = dict(problem.attributes), dict(winner.problem.attributes)
    others = sum(asked.get(name) != had.get(name) for name in {**asked, **had})
    compilers = (there.environment.triton, there.environment.ptxas), (here.environment.triton, here.environment.ptxas)
    return (
        distance(winner.problem, problem)
        + _OTHER_DTYPE * (winner.problem.dtype != problem.dtype)
        + _OTHER_ATTRIBUTE * others
        + _OTHER_DEVICE * (there.device.id != here.device.id)
        + _OTHER_SOURCE * (there.source != here.source)
        + _OTHER_COMPILER * (compilers[0] != compilers[1])
    )
