"""Intervals and limits of the HTTP service."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.api.attempts import SETTINGS as ATTEMPTS
from tuner.api.attempts import AttemptSettings


@dataclass(frozen=True)
class ServiceSettings:
    """Intervals and limits of the HTTP service."""

    poll_s: float = 0.5
    """Interval at which each worker process reads new answers, in seconds; a new answer serves within 2 s."""
    flush_s: float = 5.0
    """Interval at which counts of missed queries are written, in seconds."""
    max_age_s: float = 5.0
    """Age of the view in seconds above which /readyz reports that the service is not ready."""
    shutdown_s: int = 10
    """Time limit of open requests when the service stops, in seconds."""
    max_body_bytes: int = 1_000_000
    """Size limit of a request body, in bytes."""
    max_replies: int = 100_000
    """Number of replies that a view keeps, about 2 kB each."""
    max_kept_query_bytes: int = 500
    """Length limit of a query string whose reply is kept, in bytes."""
    max_problems: int = 1000
    """Largest number of problems in one body of /best-configs."""
    problems_per_turn: int = 20
    """Number of problems looked up before other requests get a turn."""
    max_misses: int = 10_000
    """Largest number of different missed queries counted between two writes."""
    attempts: AttemptSettings = ATTEMPTS
    """Limits of wrong tokens."""


SETTINGS = ServiceSettings()
