"""Sizes of random problems of ops that normalise rows."""

from __future__ import annotations

from math import exp, log
from random import Random

from tuner.kernels.spec import itemsize

WIDTHS = (
    64, 80, 96, 128, 192, 256, 320, 384, 512, 576, 640, 768, 896, 960, 1024, 1152, 1280, 1536, 1600, 1792, 2048, 2304,
    2560, 2880, 3072, 3200, 3584, 3840, 4096, 4544, 4608, 5120, 5376, 6144, 6656, 7168, 8192, 9216, 12288, 14336, 16384,
    18432, 25600, 28672, 32768, 65536, 131072, 262144,
)  # fmt: skip
"""Hidden sizes, head dims and MLP widths of published models, and long rows."""
LONGEST = 262_144
"""Longest row of a free size."""
MOST_ROWS = 524_288
"""Largest number of rows: the heads of all tokens of a batch."""
MOST_BYTES = 2**30
"""Bytes of all matrices of a problem, at most."""
LEAST_BYTES = 2**12
"""Bytes of all matrices of a problem, at least."""


def drawn_rows(dice: Random, matrices: int) -> dict[str, object]:
    """Return M, N and dtype of a problem that reads and writes this number of matrices in all.

    Of three problems about one has a row length that 8 does not divide.
    """
    dtype = dice.choices(("bf16", "fp16", "fp32"), (6, 2, 2))[0]
    if dice.random() < 1 / 3:
        N = log_uniform(dice, 33, LONGEST)
        N += N % 8 == 0
    elif dice.random() < 0.2:
        N = log_uniform(dice, 1, LONGEST // 8) * 8
    else:
        N = dice.choice(WIDTHS)
    a_row = N * itemsize(dtype) * matrices
    most = max(1, min(MOST_ROWS, MOST_BYTES // a_row))
    least = min(most, -(-LEAST_BYTES // a_row))
    M = log_uniform(dice, least, most)
    if dice.random() < 0.5:  # batches and sequences have round lengths
        M = max(least, 1 << (M.bit_length() - 1))
    return {"M": M, "N": N, "dtype": dtype}


def log_uniform(dice: Random, least: int, most: int) -> int:
    """Return a whole number between two others, each factor of which is as likely as any other."""
    return min(most, max(least, round(exp(dice.uniform(log(least), log(most))))))
