"""The refusal to describe a call as plain data."""

from __future__ import annotations

from tuner.errors import UsageError


class CannotCapture(UsageError):
    """A call cannot be captured. The message is one line: the rule, then the value, then the way out."""
