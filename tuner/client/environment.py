"""Environment variables whose values may be misspelt. A misspelt one is named in a warning and stops nothing."""

from __future__ import annotations

import os
import re

from tuner.client.warn import WarnOnce

LONGEST_INTERVAL_S = 1e6
"""Longest refresh interval, in seconds."""
_TRUE = ("1", "true", "yes", "on", "t", "y")
_FALSE = ("", "0", "false", "no", "off", "f", "n")
_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?|\.[0-9]+")


def is_disabled(warn: WarnOnce) -> bool:
    """Return whether `TUNER_DISABLE` turns lookups off. An unknown spelling does, with a warning."""
    given = os.environ.get("TUNER_DISABLE", "")
    spelt = given.strip().lower()
    if spelt not in _TRUE + _FALSE:
        warn(f"TUNER_DISABLE is 1 or 0, true or false, yes or no, on or off, not {given[:40]!r}; it is taken for 1")
    return spelt not in _FALSE


def refresh_s(warn: WarnOnce) -> float | None:
    """Return the interval that `TUNER_REFRESH_S` states, in seconds; None without one or if it is no number."""
    given = os.environ.get("TUNER_REFRESH_S")
    if not given:
        return None
    if not _NUMBER.fullmatch(given) or not 0 < float(given) <= LONGEST_INTERVAL_S:
        warn(f"TUNER_REFRESH_S is a number of seconds, not {given[:40]!r}; nothing is refreshed")
        return None
    return float(given)
