"""Problems of copy_column as models have them."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tuner.kernels.shared.draws import log_uniform

_ROWS = (2**10, 2**24)
_ROW_LENGTHS = (1, 2**13)
_MOST_ELEMENTS = 2**26
"""Elements from the first of a column to its last: 512 MiB of 8 bytes."""
_DTYPES = ("bf16", "bf16", "bf16", "bf16", "fp16", "fp32", "fp32", "int64", "int32", "int8")


def draw(dice: Random) -> Mapping[str, object]:
    """Draw the values of a problem. Of three, one has sizes that 8 does not divide, and one is on the host."""

    def size(least: int, most: int) -> int:
        found = log_uniform(dice, least, most)
        if is_odd:
            return found
        return found // 64 * 64 if found >= 64 else 1 << found.bit_length() - 1

    is_odd = dice.random() < 1 / 3
    M = size(*_ROWS) | int(is_odd)
    N = size(_ROW_LENGTHS[0], max(1, min(_ROW_LENGTHS[1], _MOST_ELEMENTS // M)))
    memory = dice.choice(("device", "pinned", "pageable")) if dice.random() < 1 / 2 else "device"
    return {"M": M, "N": N, "dtype": dice.choice(_DTYPES), "memory": memory}
