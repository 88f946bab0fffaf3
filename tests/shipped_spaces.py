"""The shipped recorded spaces. A test process reads each once, since the largest take half a second."""

from __future__ import annotations

from functools import cache

from tuner import recorded
from tuner.recorded import RecordedSpace


@cache
def shipped(name: str) -> RecordedSpace:
    """Return the shipped space of a name."""
    assert name in recorded.names()
    return recorded.load(name)
