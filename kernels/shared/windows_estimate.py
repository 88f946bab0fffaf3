"""Estimated time of pooling by `tiles`, from the card's resources: no measurement, no table of shapes, no GPU.

What overlaps is added up by a norm: the start of programs, one after the other on the whole card; instructions; stores
of each multiprocessor; lines that its L1 looks up; bytes from L2 and from device memory; and the time in which a
program waits, over as many programs as a multiprocessor holds.

It is plain arithmetic: about 15 us of host time for a config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log2
from typing import Any

from tuner.kernels.shared.overlapped import overlapped
from tuner.kernels.shared.windows import Axis, Windows, power_of_2_in
from tuner.kernels.shared.windows_accesses import LANES, LINE, SECTOR, far_of_channels, loaded, stored
from tuner.kernels.shared.windows_launch import tiles
from tuner.kernels.shared.windows_work import Work, instructions_of, unrolls, work
from tuner.kernels.spec import Limits, cdiv


@dataclass(frozen=True)
class Coefficients:
    """Coefficients of the estimate; cycles are those of a multiprocessor.

    Those that say "fitted" are fitted to 3,571 configs of 171 problems of max_pool2d and avg_pool2d on an NVIDIA H200
    (2026-11-30, Triton 3.6.0); `line_cycles` and `one_wave` later, to 651 configs of 35 problems and two recorded
    spaces.
    """

    mhz: float = 1755.0
    """Clock of the multiprocessors."""
    gb_per_s: float = 4490.0
    """Rate of device memory, if the card's was not measured."""
    start_us: float = 1.87
    """Time of a launch beside its programs; fitted."""
    program_us: float = 0.00049
    """Time in which the card starts a program, whatever its size; fitted. Small programs are limited by it."""
    row_us: float = 0.26
    """Time of each further row of a window in a loop, which waits for its loads; fitted to loops."""
    unrolled_row_us: float = 0.016
    """The same if the compiler unrolls the loop, so that the loads of all rows are in flight; fitted."""
    instruction_cycles: float = 2.5
    """Cycles from one instruction of a thread to the next; fitted."""
    issue: float = 0.97
    """Cycles of one of the four schedulers for each instruction of a warp; fitted."""
    code: float = 0.0003
    """Further share of these cycles for each instruction of the code: long code without a loop is fetched slower. Read
    off one problem and tried on all."""
    whole_cycles: float = 0.163
    """Cycles of a warp for each sector of 32 bytes that a store writes as a whole; fitted."""
    part_cycles: float = 0.92
    """The same if a store writes parts of sectors, as threads with several columns do in rows of odd length; fitted."""
    line_cycles: float = 0.8
    """Cycles of a multiprocessor for each line that a load or store of a warp reaches; fitted. L1 moves a line of
    bytes in a cycle at most."""
    l2_bytes: float = 80.0
    """Bytes that a multiprocessor reads from L2 or writes to it in a cycle."""
    gaps: float = 0.125
    """Further share of the time of device memory for each halving of the share that a program reads of the bytes that
    it reaches; fitted."""
    one_wave: float = 0.4
    """Further share of the time of device memory if all programs run at once, which read first and then write; fitted.
    With several waves of programs some write while others read."""
    own: float = 0.515
    """Times that a program waits for its own stores and bytes, relative to their throughput; fitted."""
    last_wave: float = 0.8
    """Part of a wave of programs that the last one takes beyond its share; fitted."""
    sharpness: float = 2.95
    """Exponent of the norm that adds up what overlaps; fitted."""


COEFFICIENTS = Coefficients()
PROGRAMS_PER_SM = 32
"""Programs that a multiprocessor holds."""
WARPS_PER_SM = 64
"""Warps that a multiprocessor holds."""


def estimate(
    found: Windows, config: Mapping[str, Any], limits: Limits, *, maximum: bool, c: Coefficients = COEFFICIENTS
) -> float:
    """Return the estimated time of a config of `tiles` in us.

    Args:
        maximum: whether windows are compared, not summed.
    """
    warps, sm_count, programs = config["num_warps"], limits.sm_count, tiles(found, config)
    along, threads = config["BLOCK_Q"] // config["TILE_Q"], warps * limits.warp_size
    each = work(found, config["TILE_P"], config["TILE_Q"], maximum, max(1, along * config["BLOCK_N"] // threads))
    at_once = each.load_bytes // found.element_bytes if found.is_nhwc else 1
    repeats = max(1.0, along * config["BLOCK_N"] / at_once / threads)
    is_unrolled = unrolls(found, each, config["TILE_P"], repeats)
    reads, writes = program_bytes(found, config)
    memory = limits.gb_per_s or c.gb_per_s

    # Of one program, in us: instructions, stores, and bytes from L2 and device memory.
    further = max(1.0, config["BLOCK_N"] / at_once / threads) if found.is_nhwc else 1.0
    instructions = instructions_of(found, each, repeats, further, is_unrolled)
    length = instructions if is_unrolled else instructions / each.steps
    run = instructions / c.mhz
    store_cycles = c.whole_cycles if found.is_nhwc or _stores_whole(found, each, config) else c.part_cycles
    moved = warps * repeats * each.stores * stored(found, each, config, SECTOR) * store_cycles / c.mhz
    lines_per_byte = LANES / LINE  # of each thread
    looked_up = each.loads * max(c.line_cycles * loaded(found, each, config, LINE), lines_per_byte * each.load_bytes)
    looked_up += each.stores * max(c.line_cycles * stored(found, each, config, LINE), lines_per_byte * each.store_bytes)
    accessed = warps * repeats * looked_up / c.mhz
    cached = (reads + writes) / c.l2_bytes / c.mhz
    transferred = (reads + writes) * sm_count / memory / 1e3

    held = _programs_held(each.registers * repeats, warps, limits)
    waves = programs / (sm_count * held)
    wait = (c.unrolled_row_us if is_unrolled else c.row_us) * (each.steps - 1)
    wait += c.instruction_cycles * run + c.own * (moved + transferred)
    further_share = c.gaps * log2(_far(found, config, along)) + c.one_wave / max(1.0, waves)
    return c.start_us + overlapped(
        c.sharpness,
        (1.0 if waves <= 1 else waves + c.last_wave) * wait,
        c.issue * (1 + c.code * length) * programs * warps * run / 4 / sm_count,
        programs * moved / sm_count,
        programs * accessed / sm_count,
        programs * cached / sm_count,
        _image_bytes(found) / memory / 1e3 * (1 + further_share),
        programs * c.program_us,
    )


def program_bytes(found: Windows, config: Mapping[str, Any]) -> tuple[float, float]:
    """Return the bytes that a program reads and writes, each once, with those of sectors that it shares."""
    rows, columns, size = found.rows, found.columns, found.element_bytes
    high, block_q, block_n = config["TILE_P"], config["BLOCK_Q"], config["BLOCK_N"]
    more_rows, more_columns = max(0, rows.reach - rows.stride), max(0, columns.reach - columns.stride)
    wide, out_wide = min(block_q * columns.stride + more_columns, columns.size), min(block_q, columns.count)
    if found.is_nhwc:
        channels = min(block_n, found.channels) * size
        if block_n < found.channels:
            channels += SECTOR - min(SECTOR, power_of_2_in(found.channels * size))
        read_rows = min(high * rows.stride + more_rows, rows.size)
        return read_rows * wide * channels, min(high, rows.count) * out_wide * channels
    planes = max(1.0, block_n / cdiv(rows.count, high))
    read_rows = min(block_n * high * rows.stride + planes * more_rows, planes * rows.size)
    out_rows = min(block_n * high, planes * rows.count)
    read_runs, out_runs = (1 if wide >= columns.size else read_rows), (1 if block_q >= columns.count else out_rows)
    return read_rows * wide * size + SECTOR * read_runs, out_rows * out_wide * size + SECTOR * out_runs


def _stores_whole(found: Windows, each: Work, config: Mapping[str, Any]) -> bool:
    """Return whether a thread of nchw stores its columns of a row at once."""
    return bool(each.store_bytes == config["TILE_Q"] * found.element_bytes)


def _programs_held(registers: float, warps: int, limits: Limits) -> int:
    """Return the number of programs that a multiprocessor holds, of which threads have some registers of their own."""
    all_registers = min(limits.registers_per_thread, 24 + registers)
    by_registers = limits.registers_per_sm // (warps * limits.warp_size * cdiv(int(all_registers), 8) * 8)
    return max(1, min(PROGRAMS_PER_SM, WARPS_PER_SM // warps, by_registers))


def _image_bytes(found: Windows) -> float:
    """Return the bytes of images, without rows that no window has, and of outputs."""
    rows = found.rows
    read_rows = min(rows.size, rows.count * rows.stride + rows.reach) * share_of_rows(rows)
    return (found.images * found.channels * read_rows * found.columns.size + found.outputs) * found.element_bytes


def share_of_rows(rows: Axis) -> float:
    """Return the share of an image's rows that windows read."""
    return len({r * rows.dilation % rows.stride for r in range(min(rows.window, rows.stride))}) / rows.stride


def _far(found: Windows, config: Mapping[str, Any], along: int) -> float:
    """Return the bytes that a program reaches relative to those that it reads.

    Of nchw, parts of lines are reached in short runs, and between rows of a load.
    """
    size, columns = found.element_bytes, found.columns
    if found.is_nhwc:
        return far_of_channels(found, config["BLOCK_N"])
    far = 1.0
    if config["BLOCK_Q"] < columns.count:
        far *= max(1.0, LINE / (config["BLOCK_Q"] * size))
    if along < LANES:  # a load of a warp is of several rows, with others between them
        row, apart = columns.size * size, config["TILE_P"] * found.rows.stride
        far *= min(LINE, apart * row) / min(LINE, row)
    return far
