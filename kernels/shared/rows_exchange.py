"""Programs that share a row: each computes on one part, and they exchange their results through memory.

No program waits for one that cannot start: it takes its part when it starts, so the programs of all parts before are
running or have ended.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def take_part(started, PROGRAMS):
    """Return the number of programs that started before this one. The last to start resets the count to 0."""
    ticket = tl.atomic_add(started, 1, sem="relaxed")
    if ticket == PROGRAMS - 1:
        tl.store(started, 0)
    return ticket


@triton.jit
def wait_for_parts(arrived, PARTS: tl.constexpr):
    """Publish what this program has written, and wait until all programs of the row have."""
    tl.debug_barrier()  # all threads have written before one of them counts the program
    tl.atomic_add(arrived, 1, sem="release")
    while tl.atomic_add(arrived, 0, sem="acquire") < PARTS:
        pass
    tl.debug_barrier()


@triton.jit
def leave_row(arrived, PARTS: tl.constexpr):
    """Count this program as one that has read the results of the others. The last to leave resets the count to 0."""
    if tl.atomic_add(arrived, 1, sem="acq_rel") == 2 * PARTS - 1:
        tl.store(arrived, 0)
