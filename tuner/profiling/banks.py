"""Conflicts of the banks of shared memory.

Shared memory has 32 banks of 4 bytes. In one cycle each bank serves one word, to all lanes that ask for it. A warp of
4 bytes a lane is served at once, of 8 bytes in halves, of 16 bytes in quarters.

Source: CUDA C++ Programming Guide, "Shared Memory", for compute capability 5.x and later.
"""

from __future__ import annotations

import numpy as np

from tuner.profiling.integers import Lanes

BANKS, WORD = 32, 4


def cycles(rows: Lanes, width: int) -> tuple[int, int]:
    """Return the cycles that requests take, and the fewest that could move their distinct words.

    Args:
        rows: address by request and lane, -1 for an inactive lane.
        width: bytes of a lane.
    """
    together = max(1, rows.shape[1] * WORD // max(width, WORD))
    phases = rows.reshape(-1, min(together, rows.shape[1]))
    phases = phases[(phases >= 0).any(axis=1)]
    words = (phases[:, :, None] // WORD + np.arange(max(1, width // WORD))).reshape(len(phases), -1)
    words = np.where(np.repeat(phases < 0, max(1, width // WORD), axis=1), -1, words)
    ordered = np.sort(words, axis=1)
    new = (np.diff(ordered, axis=1, prepend=-1) != 0) & (ordered >= 0)
    row = np.repeat(np.arange(len(phases)), words.shape[1])[new.ravel()]
    load = np.bincount(row * BANKS + ordered[new] % BANKS, minlength=len(phases) * BANKS)
    by_bank = load.reshape(len(phases), BANKS)
    return int(by_bank.max(axis=1).sum()), int(-(-by_bank.sum(axis=1) // BANKS).sum())
