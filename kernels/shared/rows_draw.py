"""Sizes of random problems of ops that normalise rows."""

from __future__ import annotations

from random import Random

from tuner.kernels.shared import draws
from tuner.kernels.spec import cdiv, itemsize

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
LEAST_BYTES = 2**12
"""Bytes of all matrices of a problem, at least."""


def drawn_rows(random: Random, matrices: int) -> dict[str, object]:
    """Return M, N and dtype of a problem that reads and writes this number of matrices in all.

    Of three problems one has rows of an odd length.
    """
    dtype, kind = draws.dtype(random), random.random()
    if kind < 1 / 3:
        N = draws.odd_size(random, 33, LONGEST)
    else:
        N = random.choice(WIDTHS) if kind < 0.8 else draws.log_uniform(random, 8, LONGEST, 8)
    a_row = N * itemsize(dtype) * matrices
    most = draws.at_most(MOST_ROWS, a_row)
    M = draws.log_uniform(random, min(most, cdiv(LEAST_BYTES, a_row)), most)
    if random.random() < 0.5 and M * a_row >= 2 * LEAST_BYTES:  # batches and sequences have round lengths
        M = 1 << (M.bit_length() - 1)
    return {"M": M, "N": N, "dtype": dtype}
