"""The default client as a new process has it."""

from __future__ import annotations

from tuner.client import default_client


def forget() -> None:
    """Make the default client forget everything that it has read, answered and logged."""
    default_client().clear()
