"""Device code of elementwise ops: the tiles of a program, and accesses of 16 bytes a thread.

Triton makes one access of neighbouring elements if it can prove that they are aligned and masked alike. Odd sizes
break both proofs. So programs whose tiles are all inside do not mask, and the host states the alignment of rows.

An op is its function COMPUTE, from a tuple of fp32 values, one of each input, and the dtype of the results.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def computed_tiles(
    COMPUTE: tl.constexpr, inputs, strides, out, stride_out, M, N,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr,
    ALIGNED: tl.constexpr, N_ALIGNED: tl.constexpr, EVICT_FIRST: tl.constexpr,
):  # fmt: skip
    """Compute the tiles of a program, without masks if all are inside.

    Args:
        inputs, strides: pointers to the inputs, and the elements between their rows.
    """
    N = N // N_ALIGNED * N_ALIGNED
    row, first, is_whole = corner(M, N, ROWS, COLUMNS, STEPS)
    starts = ()
    for i in tl.static_range(len(inputs)):
        starts += (at_rows(inputs[i], row, strides[i], ALIGNED),)  # type: ignore[assignment]
    out = at_rows(out, row, stride_out, ALIGNED)
    if is_whole:
        computed_chunk(COMPUTE, starts, out, row < M, first, N, COLUMNS, STEPS, STAGES, True, EVICT_FIRST)
    else:
        computed_chunk(COMPUTE, starts, out, row < M, first, N, COLUMNS, STEPS, STAGES, False, EVICT_FIRST)


@triton.jit
def computed_chunk(
    COMPUTE: tl.constexpr, inputs, out, in_rows, first, N,
    COLUMNS: tl.constexpr, STEPS: tl.constexpr, STAGES: tl.constexpr, WHOLE: tl.constexpr, EVICT_FIRST: tl.constexpr,
):  # fmt: skip
    """Compute tiles of the same rows, one after the other."""
    for step in tl.range(0, STEPS, num_stages=STAGES):
        n = first + step * COLUMNS + tl.arange(0, COLUMNS)[None, :]
        inside = in_rows & (n < N)
        values = ()
        for i in tl.static_range(len(inputs)):
            values += (read(inputs[i] + n, inside, WHOLE, EVICT_FIRST),)  # type: ignore[assignment]
        write(out + n, COMPUTE(values, out.dtype.element_ty), inside, WHOLE)


@triton.jit
def corner(M, N, ROWS: tl.constexpr, COLUMNS: tl.constexpr, STEPS: tl.constexpr):
    """Return the rows of this program, its first column, and whether all its tiles are inside the matrix."""
    chunks = tl.cdiv(N, COLUMNS * STEPS)
    first_row = tl.program_id(0) // chunks * ROWS
    first = tl.program_id(0) % chunks * (COLUMNS * STEPS)
    is_whole = (first + COLUMNS * STEPS <= N) & (first_row + ROWS <= M)
    return first_row + tl.arange(0, ROWS)[:, None], first, is_whole


@triton.jit
def at_rows(x, row, stride, ALIGNED: tl.constexpr):
    """Return pointers to the starts of rows; strides are multiples of ALIGNED elements."""
    return x + row.to(tl.int64) * (stride // ALIGNED * ALIGNED)


@triton.jit
def read(places, inside, WHOLE: tl.constexpr, ONCE: tl.constexpr):
    """Load elements as fp32. Elements that are read ONCE leave the caches first, so that results stay."""
    LEAVES: tl.constexpr = "evict_first" if ONCE else ""
    if WHOLE:
        values = tl.load(places, eviction_policy=LEAVES)
    else:
        values = tl.load(places, mask=inside, other=0.0, eviction_policy=LEAVES)
    return values.to(tl.float32)


@triton.jit
def write(places, values, inside, WHOLE: tl.constexpr):
    """Store values, rounded to the dtype of the elements."""
    values = values.to(places.dtype.element_ty)
    if WHOLE:
        tl.store(places, values)
    else:
        tl.store(places, values, mask=inside)
