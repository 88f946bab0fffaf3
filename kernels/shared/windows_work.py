"""Loads, stores and instructions of a thread of pooling by `tiles`, as the compiler makes them of its device code."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from tuner.kernels.shared.windows import Windows
from tuner.kernels.shared.windows_launch import UNROLLED_ROWS, vectors


@dataclass(frozen=True)
class Instructions:
    """Instructions of a thread, by least squares over the machine code of 480 configs (ptxas of Triton 3.6.0)."""

    thread: float = 115.0
    """Instructions of a thread beside those below."""
    load: float = 9.0
    """Instructions of nhwc for a load: its 64-bit address, mask and value if masked."""
    store: float = 10.0
    """The same of a store."""
    again: float = 4.0
    """Instructions of nhwc for a load or store of further channels, at an offset that is known."""
    row: float = 10.0
    """Instructions of nchw for the address and mask of a row."""
    vector: float = 1.6
    """Instructions of nchw for a load, beside one for each four bytes."""
    part: float = 5.0
    """Instructions of nchw for a store."""
    value: float = 1.1
    """Instructions for each value that is converted or combined."""
    pair: float = 0.25
    """Share of `value` if one instruction compares pairs of 16-bit values, of three operands."""
    division: float = 5.0
    """Values that the division of an average counts for."""


INSTRUCTIONS = Instructions()
UNROLLED_LOADS = (8, 4)
"""Most loads for a row of a loop that the compiler unrolls, of nchw and nhwc."""
UNROLLED_VALUES = ((4, 10), (8, 32))
"""Most elements of these loads, of nchw and nhwc, if a thread has one row of outputs and if it has several."""


@dataclass(frozen=True)
class Work:
    """Loads, stores and values of a thread for a tile of outputs. Made by `work`."""

    read_rows: int
    """Rows of the image."""
    loads: int
    load_bytes: int
    """Bytes of a load."""
    stores: int
    store_bytes: int
    values: float
    """Values that are converted or combined."""
    unowned: int
    """Further ones in a loop, of rows that only some of the outputs need."""
    registers: float
    """Registers that hold what is read at once, and outputs."""
    steps: int
    """Steps of a loop over rows; 1 without a loop."""


@lru_cache(maxsize=256)
def work(found: Windows, high: int, wide: int, maximum: bool, most: int = 16) -> Work:
    """Return what a thread does for high x wide outputs of each of its channels.

    The compiler does not convert 16-bit values that only one maximum needs, and compares two in one instruction.

    Args:
        most: most channels of a load of nhwc: those of a program are spread over all its threads.
    """
    rows, columns = found.rows, found.columns
    vector, stored = vectors(found, wide)
    if found.is_nhwc:
        vector = stored = min(vector, most)
    is_looped = rows.reach > UNROLLED_ROWS
    read_rows = len({p * rows.stride + r * rows.dilation for p in range(high) for r in range(rows.window)})
    read = {q * columns.stride + s * columns.dilation for q in range(wide) for s in range(columns.window)}
    channels = vector if found.is_nhwc else 1
    in_row = len(read) if found.is_nhwc else len({(column - columns.padding) // vector for column in read})
    loads, outputs = read_rows * in_row, high * wide

    across, down = read_rows * wide * (columns.window - 1.0), outputs * (rows.window - 1.0)
    converted = read_rows * len(read) if found.element_bytes < 4 else 0
    if maximum and converted and len(read) == wide * columns.window:
        across, converted = across * INSTRUCTIONS.pair, read_rows * wide
        if read_rows == high * rows.window and not is_looped:
            down, converted = down * INSTRUCTIONS.pair, outputs
    ended = outputs * (1 if maximum else 1 + INSTRUCTIONS.division)

    held = (in_row if is_looped else loads) * max(1.0, vector * found.element_bytes / 4)
    return Work(
        read_rows=read_rows,
        loads=loads,
        load_bytes=vector * found.element_bytes,
        stores=outputs if found.is_nhwc else outputs // stored,
        store_bytes=stored * found.element_bytes,
        values=(converted + across + down + ended) * channels,
        unowned=outputs * (2 * (read_rows - 1) - rows.window + 1) * channels if is_looped and high > 1 else 0,
        registers=(
            0.9 * (held + outputs * channels) + 1.2 * wide * channels
            if is_looped
            else 0.5 * held + 0.35 * outputs * channels
        ),
        steps=read_rows if is_looped else 1,
    )


def unrolls(found: Windows, each: Work, high: int, repeats: float) -> bool:
    """Return whether the compiler unrolls a loop over rows, or there is none.

    Args:
        high: rows of outputs of the thread.
        repeats: tiles of the thread.
    """
    loads = each.loads // each.steps * repeats
    values = loads * each.load_bytes // found.element_bytes
    is_small = loads <= UNROLLED_LOADS[found.is_nhwc] and values <= UNROLLED_VALUES[found.is_nhwc][high > 1]
    return is_small or each.steps == 1


def instructions_of(found: Windows, each: Work, repeats: float, further: float, is_unrolled: bool) -> float:
    """Return the instructions of a thread.

    Args:
        repeats: tiles of the thread.
        further: those of nhwc that differ in channels only.
    """
    i = INSTRUCTIONS
    if found.is_nhwc:
        accesses = i.load * each.loads + i.store * each.stores + (further - 1) * i.again * (each.loads + each.stores)
    else:
        accesses = i.row * each.read_rows + (i.vector + each.load_bytes / 4) * each.loads + i.part * each.stores
    values = each.values + (0 if is_unrolled else each.unowned)
    return i.thread + repeats / further * accesses + repeats * i.value * values
