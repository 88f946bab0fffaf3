"""The improvement probability of a search: what its model expects, corrected by what came of earlier expectations."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf, log


@dataclass(frozen=True)
class ConvergenceSettings:
    """Limits of the improvement probability. docs/studies/samplers.md has their measurements."""

    improvement: float = log(1.01)
    """Improvement of log latency that counts as faster: 1 %."""
    proposals: int = 8
    """Number of last proposals whose highest probability counts."""
    results: int = 30
    """Number of results before the improvement probability may be below 1."""
    prior: float = 1.0
    """Number of improvements that are added to the expected and to the observed ones, before they are compared."""


CONVERGENCE = ConvergenceSettings()


class Convergence:
    """The improvement probability, from a model's probabilities and the results of its proposals.

    A model that is too sure of its predictions finds more improvements than it expects, and one that is too doubtful
    finds fewer. Its probability is multiplied by that ratio. Nor is the improvement probability ever below 1 / (n + 1),
    n being the number of results since the last improvement (Laplace's rule of succession).
    """

    def __init__(self, settings: ConvergenceSettings = CONVERGENCE) -> None:
        self._settings = settings
        self._best = inf
        self._results = self._since = 0
        """Number of results, and of those after the last improvement."""
        self._expected = self._observed = settings.prior
        self._running: dict[int, tuple[float, float]] = {}
        """Probability and log latency to beat of running configs that a model proposed."""
        self._probabilities: deque[float] = deque(maxlen=settings.proposals)

    def propose(self, config: int, probability: float, highest: float) -> None:
        """Note a proposal: its own probability to be faster than the best, and the highest of all untried configs."""
        self._running[config] = (probability, self._best)
        self._probabilities.append(highest * self._observed / self._expected)

    def raise_last(self, highest: float) -> None:
        """Raise the highest probability of the last proposal, after a closer look."""
        corrected = highest * self._observed / self._expected
        self._probabilities[-1] = max(self._probabilities[-1], corrected)

    def tell(self, config: int, log_latency: float) -> None:
        """Learn the result of a config: infinite if it failed."""
        self._results += 1
        if config in self._running:
            probability, to_beat = self._running.pop(config)
            self._expected += probability
            self._observed += log_latency < to_beat - self._settings.improvement
        if log_latency < self._best - self._settings.improvement:
            self._since = 0
            self._probabilities.clear()
        else:
            self._since += 1
        self._best = min(self._best, log_latency)

    @property
    def probability(self) -> float:
        """Improvement probability; 1 while proposals or results are too few, or no config ran."""
        settings = self._settings
        if self._results < settings.results or len(self._probabilities) < settings.proposals or self._best == inf:
            return 1.0
        return min(1.0, max(*self._probabilities, 1 / (self._since + 1)))
