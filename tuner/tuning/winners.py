"""The choice of winners that a search measures first, of near problems, other dtypes, cards, compilers and sources."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tuner.kernels.spec import Config, Problem, Signature
from tuner.lookup.neighbours import distance, with_current_knobs
from tuner.records import Provenance, StoredAnswer


@dataclass(frozen=True)
class WinnerSettings:
    """Limits and penalties of the choice; distances are octaves, summed over the dims of a problem."""

    most: int = 4
    """Winners that a search measures first."""
    farthest: float = 4.0
    """Distance beyond which a winner is no better than a config that the sampler proposes."""
    other_dtype: float = 1.0
    """Distance added for another dtype."""
    other_device: float = 1.0
    """Distance added for another device."""
    other_attribute: float = 0.5
    """Distance added for each attribute of another value."""
    other_source: float = 0.25
    """Distance added for another version of the kernel's source."""
    other_compiler: float = 0.125
    """Distance added for another Triton or ptxas."""


SETTINGS = WinnerSettings()


@dataclass(frozen=True)
class Winner:
    """A config that won a search, with the problem and provenance of that search."""

    problem: Problem
    provenance: Provenance
    config: Config
    answer: int | None = None
    """Id of the stored answer; None if it is not stored."""

    @staticmethod
    def of(stored: StoredAnswer) -> Winner:
        """Return the winner of a stored answer."""
        return Winner(stored.answer.problem, stored.provenance, stored.answer.config, stored.id)


def promising(
    winners: Iterable[Winner],
    signature: Signature,
    problem: Problem,
    provenance: Provenance,
    space: Collection[Config],
    settings: WinnerSettings = SETTINGS,
) -> dict[Config, Winner]:
    """Return different configs of `space` that won near problems, the most promising first, each with its winner.

    The same problem with an older compiler or source is the nearest; another dtype or card adds an octave.
    """
    ranked = sorted(
        (
            (_remoteness(winner, problem, provenance, settings), -(winner.answer or 0), number, winner)
            for number, winner in enumerate(winners)
        ),
    )
    found: dict[Config, Winner] = {}
    for remoteness, _, _, winner in ranked:
        if remoteness > settings.farthest or len(found) == settings.most:
            break
        config = with_current_knobs(signature, winner.config)
        if config is not None and config in space:
            found.setdefault(config, winner)
    return found


def _remoteness(winner: Winner, problem: Problem, provenance: Provenance, settings: WinnerSettings) -> float:
    there, here = winner.provenance, provenance
    wanted, had = dict(problem.attributes), dict(winner.problem.attributes)
    others = sum(wanted.get(name) != had.get(name) for name in {**wanted, **had})
    compilers = (there.environment.triton, there.environment.ptxas), (here.environment.triton, here.environment.ptxas)
    return (
        distance(winner.problem, problem)
        + settings.other_dtype * (winner.problem.dtype != problem.dtype)
        + settings.other_attribute * others
        + settings.other_device * (there.device.id != here.device.id)
        + settings.other_source * (there.source != here.source)
        + settings.other_compiler * (compilers[0] != compilers[1])
    )
