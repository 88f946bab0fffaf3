"""Default config of the reductions: a rule over sizes and the limits of the card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

from tuner.kernels.reduce.access import ALIGNED_BYTES, NARROW_BYTES, alignment, reach
from tuner.kernels.reduce.space import SETTINGS as SPACE
from tuner.kernels.reduce.space import WARP, shares, tile_of
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize, next_power_of_2


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the rule, from an H200."""

    depth: int = 4
    """Accesses that a thread makes at once; fewer only if the matrix has no more."""
    depth_of_rows: int = 8
    """Accesses that a thread makes at once if it reads whole rows of a matrix that fills the card."""
    depth_of_all: int = 2
    """Accesses that a thread makes at once if all are reduced by programs of several warps. Each multiprocessor then
    runs all the warps that it can (10 million bf16: 12.5 us, with twice the depth and half the warps 13.5 us)."""
    bytes_alone: int = 65536
    """Most bytes of a tile that one program reads alone if all are reduced. More programs wait for each other longer
    (2026-11-30: 20,000 bf16 by one program 4.3 us, by 16 programs 5.3 us; 32,768 by one 4.3 us, by 32 5.0 us)."""
    warps_alone: int = 32
    """Most warps of that program (2026-11-30: 5,377 bf16 by 32 warps 4.2 us, by 16 4.3 us, by 8 4.5 us)."""
    most_alone: float = 0.5
    """Rows for each multiprocessor up to which one program reads a row whose tile has `bytes_alone` (2026-12-01:
    64 x 28,672 5.5 us, each row by four programs 6.8 us; 40 x 20,000 4.6 and 6.0 us; 100 x 14,336 takes 5.3 us either
    way)."""
    wide_programs: int = 3
    """Programs for each multiprocessor from which a program that reduces along columns reads 128 bytes of a row instead
    of 64 (2026-12-01: 17,024 x 28,672 232 us, with 64 bytes 315; 4,096 x 50,304 106 and 132; 8,192 x 16,384, which has
    fewer, 78 either way)."""
    warps: int = 8
    """Most warps of a program."""
    most_warps: int = 16
    """Most warps of a program that has all elements of a row in flight, or of programs that reduce all."""
    warps_each: int = 16
    """Number of warps for each multiprocessor that read long rows, at least, if each row has one program."""
    warps_at_once: int = 40
    """Number of warps that a multiprocessor runs at once if each thread makes `depth_of_rows` accesses."""
    programs: int = 4
    """Number of programs for each multiprocessor."""
    most_programs: float = 4.5
    """Most programs for each multiprocessor that share results. All run at once."""
    programs_of_index: int = 2
    """Number of them that find indices over rows, whose states fill the registers; their loops are pipelined."""
    stages_of_index: int = 3
    """Stages of these loops."""
    least_steps: int = 4
    """Fewest steps of a program if all are reduced by more programs than run at once."""
    most_depth: int = 16
    """Most rows of a matrix of few rows, each of whose columns one thread reads; most accesses of a thread."""
    few_rows: int = 512
    """Most rows of a matrix with many columns whose rows a program reads at once. Warps exchange a state of each
    column, one bank of shared memory at a time, which takes as long as reading 10 rows for each warp. So a program has
    as few warps as hold its columns (2026-11-30: 32 x 262,144 by one warp 6.3 us, by eight 14.5 us)."""
    few_rows_of_few_columns: int = 64
    """As `few_rows`, if there are few columns."""
    warps_of_few_rows: int = 2
    """Warps of a program that reads few rows of few columns."""


SETTINGS = DefaultSettings()


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return a config whose programs fill the card, and whose threads have 64 bytes or more in flight."""
    finds_index = problem["axis"] == "rows" and problem["index"]
    config: dict[str, Value] = {**(_over_rows if problem["axis"] == "rows" else _within_rows)(problem, limits)}
    config |= {"SPLIT": 1, "num_stages": 1}
    steps, groups = shares(problem, config)
    if problem["axis"] != "columns" or tile_of(problem, config).rows == 1:
        config["SPLIT"] = split = _power_below(min(_programs(problem, steps, limits) // groups, steps))
        if finds_index and cdiv(steps, split) >= SETTINGS.stages_of_index:
            config["num_stages"] = SETTINGS.stages_of_index
    return config


def _programs(problem: Problem, steps: int, limits: Limits) -> int:
    """Return the most programs that share results, in this number of steps: as many as run at once.

    If all are reduced, there are more with `least_steps` each, so that none runs long after the others.
    """
    if problem["axis"] == "all":
        at_once, most = SETTINGS.programs * limits.sm_count, int(SPACE.most_programs * limits.sm_count)
        return min(most, max(at_once, steps // SETTINGS.least_steps))
    if problem["axis"] == "rows" and problem["index"]:
        return SETTINGS.programs_of_index * limits.sm_count
    # The states of logsumexp need registers for exponents.
    each = SETTINGS.programs if problem["kind"] == "logsumexp" else SETTINGS.most_programs
    return int(each * limits.sm_count)


def _power_below(number: int) -> int:
    """Return the largest power of two up to a number, at least 1."""
    return max(1, next_power_of_2(number + 1) // 2)


def _accesses(problem: Problem, warps: int) -> int:
    """Return the number of accesses of each of `warps` warps that read the matrix, a power of two."""
    M, N = problem.sizes
    return next_power_of_2(cdiv(cdiv(M * N * itemsize(problem.dtype), warps), ALIGNED_BYTES * WARP))


def _within_rows(problem: Problem, limits: Limits) -> dict[str, int]:
    """Return a tile that holds whole rows, or is a part of one."""
    M, N = problem.sizes
    size = itemsize(problem.dtype)
    each = ALIGNED_BYTES // size * WARP
    row, spread = next_power_of_2(reach(size, N)), _accesses(problem, SETTINGS.programs * limits.sm_count)
    if problem["axis"] == "all":
        depth, accesses = _of_all(cdiv(M * N, each), max(1, next_power_of_2(M) * row // each), limits)
    elif row > SETTINGS.depth_of_rows * each:
        depth, accesses = _of_long_rows(problem, row // each, spread, limits)
    elif row >= each:  # a warp for each row, without an exchange between warps, or several if rows are few
        depth = SETTINGS.depth_of_rows if spread >= 2 * SETTINGS.depth_of_rows else _least_depth(spread, row > each)
        accesses = max(depth, row // each)
    else:
        depth = _least_depth(spread, exchanges=False) if _is_wide(problem) else 1
        accesses = max(depth, min(SETTINGS.depth * SETTINGS.warps // 2, spread))
    accesses = max(1, min(accesses, next_power_of_2(M) * row // each))
    depth = min(depth, accesses)
    return {"BLOCK_N": min(row, accesses * each), "DEPTH": depth, "num_warps": accesses // depth}


def _of_all(accesses: int, tile: int, limits: Limits) -> tuple[int, int]:
    """Return the accesses of a thread, and of all warps of a program, of a matrix that takes `accesses` of a warp.

    Up to `bytes_alone`, one program reads the whole matrix in one step. A larger one is read by a power of two of
    programs with one step each, so none waits for one with two. Programs of one warp exchange nothing between warps.

    Args:
        tile: number of accesses of one warp that cover the smallest tile, a power of two, that holds the matrix.
    """
    if tile * ALIGNED_BYTES * WARP <= SETTINGS.bytes_alone:
        return max(1, tile // SETTINGS.warps_alone), tile
    each = _power_below(accesses // _power_below(SETTINGS.programs * limits.sm_count))
    if each <= SETTINGS.depth_of_rows:
        return max(SETTINGS.depth, each), max(SETTINGS.depth, each)
    return SETTINGS.depth_of_all, min(each, SETTINGS.depth_of_all * SETTINGS.most_warps)


def _has_large_states(problem: Problem) -> bool:
    """Return whether states have exponents or places beside them, which need the registers of as many elements."""
    return bool(problem["kind"] == "logsumexp" or problem["index"])


def _is_wide(problem: Problem) -> bool:
    """Return whether rows are read 8 bytes or more at once. What counts as an access is else several loads already."""
    size, N = itemsize(problem.dtype), problem["N"]
    return alignment(size, N, N) > 0 or gcd(ALIGNED_BYTES // size, N) * size > NARROW_BYTES


def _least_depth(spread: int, exchanges: bool) -> int:
    """Return the accesses of a thread: `depth`, or fewer if the card has more warps than a small matrix needs.

    Args:
        spread: accesses of each warp if each program has one.
        exchanges: several warps read a row, and exchange their states, which one access does not pay for.
    """
    return min(SETTINGS.depth, max(spread, 2 if exchanges else 1))


def _of_long_rows(problem: Problem, row: int, spread: int, limits: Limits) -> tuple[int, int]:
    """Return the accesses of a thread, and of all warps of a program, of rows that take `row` accesses of a warp."""
    M, _ = problem.sizes
    deepest = SETTINGS.depth_of_rows
    if _is_alone(problem, row, limits):
        return max(1, row // SETTINGS.warps_alone), row
    warps = next_power_of_2(cdiv(SETTINGS.warps_each * limits.sm_count, M))
    depth = _least_depth(spread, exchanges=True)
    run_at_once = M * row // deepest <= SETTINGS.warps_at_once * limits.sm_count
    if row <= deepest * SETTINGS.warps and run_at_once and not _has_large_states(problem):
        # All rows are in flight at once, and wait for memory once. A loop waits in each step.
        return max(depth, row // SETTINGS.most_warps, min(deepest, row // warps)), row
    least = 1 if problem["kind"] == "logsumexp" else 2  # which exchanges maxima and sums between warps
    warps = max(least, min(SETTINGS.warps, warps))
    if depth > 2 and warps > 2 and _has_large_states(problem) and _ends_early(problem, depth * warps, limits):
        depth //= 2
    return depth, min(row, depth * warps)


def _is_alone(problem: Problem, row: int, limits: Limits) -> bool:
    """Return whether rows are so few that one program of many warps reads a row at once."""
    row_bytes, is_few = row * ALIGNED_BYTES * WARP, problem["M"] <= SETTINGS.most_alone * limits.sm_count
    is_aligned = alignment(itemsize(problem.dtype), problem["N"], problem["N"]) == 0
    return bool(is_few and row_bytes == SETTINGS.bytes_alone and is_aligned and not _has_large_states(problem))


def _ends_early(problem: Problem, accesses: int, limits: Limits) -> bool:
    """Return whether half of the second and last step of a row that has one program is beyond the end of the row.

    It takes as long as the first if instructions take longer than bytes. Three steps of half the length take less
    (H200, 2026-11-30: indices of 896 x 5106 6.6 us in steps of 2,048 columns, 8.9 us of 4,096).

    Args:
        accesses: accesses of a warp in each step.
    """
    size = itemsize(problem.dtype)
    columns, is_alone = accesses * ALIGNED_BYTES // size * WARP, 2 * problem["M"] > _programs(problem, 1, limits)
    return is_alone and columns < reach(size, problem["N"]) <= 3 * columns // 2


def _over_rows(problem: Problem, limits: Limits) -> dict[str, int]:
    """Return a tile as narrow as memory serves well, and the depth to which threads read at once."""
    M, N = problem.sizes
    size = itemsize(problem.dtype)
    each = ALIGNED_BYTES // size * WARP
    rows, columns = next_power_of_2(M), next_power_of_2(N)
    programs, sector = SETTINGS.programs * limits.sm_count, SPACE.sector_bytes // size
    spread = _accesses(problem, programs)
    depth, warps = SETTINGS.depth, max(SPACE.least_warps, min(SETTINGS.warps, spread // SETTINGS.depth))
    if rows <= SETTINGS.most_depth or (rows <= SETTINGS.few_rows and cdiv(N, sector) >= programs):
        depth, warps = _of_few_rows(problem, rows * min(sector, columns) // each, spread, limits)
    elif rows <= SETTINGS.few_rows_of_few_columns:  # many small programs for a small matrix
        warps = SETTINGS.warps_of_few_rows
        depth = max(1, rows * sector // (warps * each))
    warps = max(1, min(warps, rows // depth * columns // each))
    if rows // depth * columns < each:  # the whole matrix is less than one access of each thread
        depth = max(1, min(depth, rows * columns // each))
    block_n = min(columns, max(sector, warps * each // (rows // depth)))
    has_lines = N % (2 * sector) == 0 and N // (2 * sector) >= SETTINGS.wide_programs * limits.sm_count
    if block_n == sector and has_lines and rows > SETTINGS.few_rows and not _has_large_states(problem):
        block_n *= 2
    return {"BLOCK_N": block_n, "DEPTH": depth, "num_warps": warps}


def _of_few_rows(problem: Problem, least: int, spread: int, limits: Limits) -> tuple[int, int]:
    """Return the accesses of a thread and the warps of a program that reads all rows, by as few warps as possible.

    Args:
        least: accesses of a warp to the narrowest tile.
    """
    rows = next_power_of_2(problem["M"])
    depth = max(1, least, _accesses(problem, SETTINGS.warps_each * limits.sm_count))
    if rows <= min(depth, SETTINGS.most_depth):  # each thread reads whole columns, so warps exchange nothing
        return rows, max(1, min(SETTINGS.warps, spread // rows))
    depth = min(depth, rows, SETTINGS.most_depth // 2 if _has_large_states(problem) else SETTINGS.most_depth)
    return depth, max(1, least // depth)
