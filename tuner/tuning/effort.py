"""The effort of a search: how thoroughly a problem is searched."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

from tuner.errors import UsageError
from tuner.kernels.spec import Config
from tuner.lookup.table import LookupResult
from tuner.search import DEFAULT_SAMPLER, Budget
from tuner.search.samplers import checked
from tuner.tuning.covered import same_space

EFFORTS: Mapping[str, Budget] = {
    "quick": Budget(60, min_improvement_probability=0.05),
    "normal": Budget(200, min_improvement_probability=0.01),
    "exhaustive": Budget(),
}
"""Budget of each named effort; docs/studies/samplers.md has what each finds."""

SEEDS = range(2**32)
"""Seeds of a search; numpy takes no others."""


@dataclass(frozen=True)
class Effort:
    """Budget and sampler of a search, and what it takes over from earlier runs."""

    budget: Budget
    sampler: str = DEFAULT_SAMPLER
    seed: int = 0
    force: bool = False
    """Search again and measure every config again, even if results are stored."""
    warm_start: bool = True
    """Measure the winners of near problems first."""

    def __post_init__(self) -> None:
        trials, seconds = self.budget.trials, self.budget.seconds
        checked(self.sampler)
        if trials is not None and trials < 1:
            raise UsageError(f"a search measures at least one config, not {trials}")
        if seconds is not None and not seconds > 0:
            raise UsageError(f"a budget is a number of seconds above 0, not {seconds}")
        if self.seed not in SEEDS:
            raise UsageError(f"a seed is a whole number from {SEEDS[0]} to {SEEDS[-1]}, not {self.seed}")

    @staticmethod
    def named(effort: str = "normal", trials: int | None = None, budget: float | None = None, **others: Any) -> Effort:
        """Return the effort of that name.

        Args:
            trials: configs to measure at most, in place of the limits of the named effort.
            budget: seconds a problem may take in addition to these limits.

        Raises:
            UsageError: no effort has that name, or a limit, the sampler or the seed is not valid.
        """
        if effort not in EFFORTS:
            raise UsageError(f"an effort is {', '.join(EFFORTS)}, not {effort[:40]!r}")
        limits = EFFORTS[effort] if trials is None else Budget(trials)
        return Effort(replace(limits, seconds=budget), **others)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that a run of this effort states, as `accepts` reads them."""
        return {
            "sampler": self.sampler,
            "seed": self.seed,
            "trials": self.budget.trials,
            "budget_s": self.budget.seconds,
            "min_improvement_probability": self.budget.min_improvement_probability,
        }

    def exhausting(self) -> Effort:
        """Return the effort that measures all configs; the same if the user states a number of trials."""
        if self.budget.min_improvement_probability is None:
            return self
        return replace(self, budget=Budget(seconds=self.budget.seconds))

    def accepts(self, found: LookupResult, space: Collection[Config] | None) -> bool:
        """Return whether a stored answer is exact, and its run searched the same space at least as thoroughly.

        The effort behind an imported answer is unknown, so its problem is searched.

        Args:
            space: the feasible configs; None if they are not known, which takes the space to be the same.
        """
        if self.force or found.stored is None or found.differences or found.stored.imported_from is not None:
            return False
        settings, measured = found.stored.settings, found.stored.trials
        if not same_space(settings, space):
            return False
        if measured >= settings["space"]:
            return True
        own_trials = measured - settings.get("known_jointly", 0) - settings.get("known_elsewhere", 0)
        return (
            _at_least(settings["trials"], self.budget.trials)
            and _at_least(settings["budget_s"], self.budget.seconds)
            and (
                _at_most(settings.get("min_improvement_probability"), self.budget.min_improvement_probability)
                or (self.budget.trials is not None and own_trials >= self.budget.trials)
            )
        )


def _at_least(had: float | None, wanted: float | None) -> bool:
    """Compare limits of which None is none."""
    return had is None or (wanted is not None and had >= wanted)


def _at_most(had: float | None, wanted: float | None) -> bool:
    """Compare thresholds below which a search stops; None never stops it."""
    return had is None or (wanted is not None and had <= wanted)


def require_search() -> None:
    """Import what a search needs, before anything is measured.

    Raises:
        UsageError: a package is not installed.
    """
    try:
        import_module("tuner.search.proposer")
    except ModuleNotFoundError as error:
        raise UsageError(f"a search needs {error.name}; pip install 'triton-tuner[search]'") from error


def parse_duration(text: str) -> float:
    """Return the seconds of `30s`, `5m`, `1h` or `30`.

    Raises:
        UsageError: the text is no duration.
    """
    given = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?)(s|m|h)?", text)
    seconds = float(given[1]) * {"s": 1, "m": 60, "h": 3600}[given[2] or "s"] if given else 0.0
    if not seconds:
        raise UsageError(f"a duration is a number with s, m or h, such as 30s, not {text[:40]!r}")
    return seconds
