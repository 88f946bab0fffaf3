"""The answer that a client gives to model code."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.kernels.spec import Config
from tuner.lookup.neighbours import Neighbour
from tuner.records import Answer


@dataclass(frozen=True)
class Best:
    """The config to launch with, and its origin."""

    config: Config | None
    """None only without a stored answer and without a default: the kernel's code cannot be loaded here, or the device
    is named by its id."""
    match: str
    """`exact`, `stale`, `neighbour` (tuned for another problem), `none` (the default) or `disabled` (the default,
    because `TUNER_DISABLE` is `1`, `true`, `yes` or `on`)."""
    stale: tuple[str, ...] = ()
    """Differences between the answer and the query, which make it stale."""
    answer: Answer | None = None
    """Evidence of the config; None if the config is the default for lack of an answer."""
    neighbour: Neighbour | None = None
    """The problem that the config was tuned for, if it is another one, with the expected loss."""
