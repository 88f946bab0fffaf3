"""Time of what overlaps, in estimates."""

from __future__ import annotations


def overlapped(sharpness: float, *parts: float) -> float:
    """Return the time of parts that overlap: that of the longest, and more the closer others come to it.

    Args:
        sharpness: exponent of the norm that adds them up; if infinite, only the longest counts.
        parts: times, none of them negative.
    """
    most = max(parts)
    return most * sum((part / most) ** sharpness for part in parts) ** (1 / sharpness) if most else 0.0
