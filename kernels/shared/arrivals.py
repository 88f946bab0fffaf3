"""Programs that share a result: the last that arrives finishes it."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def is_last(arrived, PROGRAMS: tl.constexpr):
    """Return whether this is the last of PROGRAMS that have written their parts; it sets the counter to 0 again.

    Args:
        arrived: pointer to the number of programs that have.
    """
    tl.debug_barrier()  # all threads have written before one counts the program
    last = tl.atomic_add(arrived, 1, sem="acq_rel") == PROGRAMS - 1
    if last:
        tl.store(arrived, 0)
        tl.debug_barrier()
    return last
