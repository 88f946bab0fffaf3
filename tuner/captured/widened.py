"""The choices of a knob beyond those that the configs of a function name."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.kernels.spec import Value
from tuner.kernels.values import ordering

_MOST_WARPS, _MOST_STAGES = 16, 8


def choices(name: str, given: Iterable[Value]) -> tuple[Value, ...]:
    """Return the values that configs name, with their neighbours: a half and the double of powers of two.

    `num_stages` has one less and one more; it and `num_warps` have at least 1. Other numbers and texts have no
    neighbours.
    """
    values = set(given)
    for value in list(values):
        if type(value) is not int:
            continue
        if name == "num_stages":
            values |= {each for each in (value - 1, value + 1) if 1 <= each <= _MOST_STAGES}
        elif name == "num_warps":
            values |= {each for each in (value // 2, value * 2) if 1 <= each <= _MOST_WARPS}
        elif name not in ("num_ctas", "maxnreg") and value >= 2 and value & (value - 1) == 0:
            values |= {value // 2, value * 2}
    return tuple(sorted(values, key=ordering))
