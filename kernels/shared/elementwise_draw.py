"""Problems of elementwise ops as models have them: tokens times a width, or any number of elements."""

from __future__ import annotations

from random import Random

from tuner.kernels.shared.draws import at_most, dtype, log_uniform, odd_size
from tuner.kernels.spec import cdiv, itemsize

HIDDEN = (768, 1024, 1536, 2048, 2304, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 12288, 16384)
"""Hidden sizes of published models."""
MLP = (2048, 3072, 4096, 4864, 5632, 6912, 8192, 8960, 9216, 9728, 11008, 12288, 13824, 14336, 18432, 22016, 28672)
"""Widths of MLPs of published models."""
MOST_TOKENS = 2**19
"""Largest number of tokens of a batch."""
FEWEST = 2**12
"""Smallest number of elements of a tensor."""


def tokens_and_width(random: Random, widths: tuple[int, ...], bytes_each: int) -> tuple[int, int]:
    """Return numbers of tokens and of elements of each; one width in three is odd.

    Args:
        bytes_each: bytes of all tensors for each element of one.
    """
    width = odd_size(random, 100, max(widths)) if random.randrange(3) == 0 else random.choice(widths)
    tokens = log_uniform(random, 1, MOST_TOKENS) if random.randrange(2) else 2 ** random.randrange(20)
    return at_most(max(tokens, cdiv(FEWEST, width)), width * bytes_each), width


def row_problem(random: Random, inputs: int) -> dict[str, object]:
    """Return a problem of an op with this number of inputs: mostly one row, else rows with gaps."""
    kind = dtype(random)
    has_gaps = random.randrange(4) == 0
    bytes_each = itemsize(kind) * ((2 * inputs if has_gaps else inputs) + 1)
    tokens, width = tokens_and_width(random, HIDDEN + MLP, bytes_each)
    if has_gaps:
        return {"N": width, "M": tokens, "dtype": kind}
    odd = random.randrange(3) == 0  # tokens times a width are seldom odd
    return {"N": tokens * width - odd, "dtype": kind}
