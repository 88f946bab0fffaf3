"""Problems of elementwise ops as models have them: tokens times a width, or any number of elements."""

from __future__ import annotations

from math import exp, log
from random import Random

from tuner.kernels.spec import itemsize

HIDDEN = (768, 1024, 1536, 2048, 2304, 2560, 3072, 3584, 4096, 5120, 6144, 7168, 8192, 12288, 16384)
"""Hidden sizes of published models."""
MLP = (2048, 3072, 4096, 4864, 5632, 6912, 8192, 8960, 9216, 9728, 11008, 12288, 13824, 14336, 18432, 22016, 28672)
"""Widths of MLPs of published models."""
MOST_BYTES = 2**30
"""Most bytes of all tensors of a drawn problem."""
FEWEST = 2**12
"""Fewest elements of a tensor."""


def log_uniform(dice: Random, least: int, most: int) -> int:
    """Return a number between two, with each order of magnitude as likely as another."""
    return min(most, max(least, round(exp(dice.uniform(log(least), log(most))))))


def dtype(dice: Random) -> str:
    """Return bf16 mostly."""
    return dice.choices(("bf16", "fp16", "fp32"), (6, 2, 2))[0]


def tokens_and_width(dice: Random, widths: tuple[int, ...], most: int) -> tuple[int, int]:
    """Return numbers of tokens and of elements of each, `most` elements together; one problem in three is odd."""
    if dice.randrange(3) == 0:
        width = log_uniform(dice, 100, max(widths)) | 1
        return max(log_uniform(dice, 1, max(1, most // width)), FEWEST // width + 1), width
    width = dice.choice(widths)
    tokens = 2 ** dice.randrange(0, 20) if dice.randrange(2) else log_uniform(dice, 1, 2**19)
    return max(1, FEWEST // width, min(tokens, most // width)), width


def row_problem(dice: Random, tensors: int) -> dict[str, object]:
    """Return a problem of an op with this number of tensors of one shape: mostly a row, else rows with gaps."""
    kind = dtype(dice)
    most = MOST_BYTES // (tensors * itemsize(kind))
    if dice.randrange(4) == 0:  # gaps are as long as rows
        M, N = tokens_and_width(dice, HIDDEN + MLP, most // 2)
        return {"N": N, "M": M, "dtype": kind}
    tokens, width = tokens_and_width(dice, HIDDEN + MLP, most)
    return {"N": tokens * width, "dtype": kind}
