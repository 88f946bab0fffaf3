"""The gain from which a config replaces an answer. Pure statistics."""

from __future__ import annotations

from math import sqrt


def is_gain(least: float, before: float | None, threshold: float) -> bool:
    """Return whether a config that was compared with an answer's replaces it.

    Args:
        least: latency of the answer's config over its own, at the lower end of the interval.
        before: the same in the answer's stored rounds, if nothing changed since: they count as much as tonight's, and
            the geometric mean of both must be above half of the threshold. None: only tonight's count.
        threshold: gain that `least` must show, as a share.
    """
    return least > 1 + threshold and (before is None or sqrt(before * least) > 1 + threshold / 2)
