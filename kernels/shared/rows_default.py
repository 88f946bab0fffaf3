"""Default config of ops that normalise rows: a rule over sizes and the limits of the card."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tuner.kernels.shared import rows_space
from tuner.kernels.shared.rows_space import SHARED_REGISTERS, can_be_odd, chunks, odd_columns, valid, vectors
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize, next_power_of_2


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the rule. Source: measurements on an H200."""

    short_row: int = 1024
    """Most bytes of a row that shares a program with others."""
    tile_bytes: int = 4096
    """Bytes of the short rows of a program."""
    programs: int = 4
    """Fewest programs for each multiprocessor beside which a program has several rows."""
    unaligned_elements: int = 256
    """Elements of the short rows of a program if these do not begin at multiples of 16 bytes. A warp moves them one by
    one and holds whole rows, so that warps exchange nothing (2026-11-30: layer norm of 38,270 x 63 by one warp for 4
    rows 8.3 us, by two for 32 rows 11.4 us)."""
    unaligned_programs: int = 64
    """Fewest such programs for each multiprocessor, two waves, if a warp takes more rows, up to half of `tile_bytes`.
    Smaller programs take as long as the card needs to start them, 0.5 to 0.7 ns each."""
    chunk_bytes: int = 256
    """Fewest bytes of a chunk of a row that has several."""
    few_bytes: int = 8192
    """Most bytes of the power of two that holds one of few aligned rows as a single chunk. A longer row has several,
    as many rows do, and so fewer idle lanes and warps (H200, 2026-11-30: RMS norm of 8 x 10,816 2.86 us, as one chunk
    2.96; layer norm of 2 x 5,376 2.67 and 2.82, of 1 x 7,168 2.69 and 2.83; of 9 x 3,200, which is shorter, 2.52 and
    2.51)."""
    thread_bytes: int = 32
    """Bytes of a row that a thread holds; twice as many of rows that do not begin at multiples of 16 bytes, or if a
    program had more threads than `most_threads`."""
    most_threads: int = 512
    """Largest number of threads of a program of which a multiprocessor runs two at once, with `thread_bytes` each."""
    access_bytes: int = 8
    """Fewest bytes that a thread reads at once."""
    shortest_odd: int = 2048
    """Fewest columns of an odd row that is read 16 bytes at once by default."""
    odd_values: int = 48
    """Most values of such a row that a thread holds."""
    few_odd_values: int = 16
    """As `odd_values`, if rows are few or short, in up to `most_threads` threads. They wait for memory once, and more
    threads need less time for the rest."""
    few_odd_rows: tuple[int, int] = (4, 1)
    """Number of rows for each multiprocessor up to which odd rows are few: beside at most one vector, and beside two.
    Rows are then read 16 bytes at once unless they are too short; vectors are read element by element."""
    odd_steps: tuple[int, ...] = (4, 2, 1)
    """Number of such rows of a program if there are a weight and a bias, best first."""
    shortest_of_many_odd: int = 512
    """As `shortest_odd`, for many rows. A weight and a bias are loaded once, element by element, for
    `short_odd_steps[0]` rows (2026-11-30: layer norm of 8,192 x 723 15.5 us, whole rows 17.8 us at best; 2026-12-01:
    RMS norm of 20,000 x 771 22.1 and 31.4 us, without a weight of 38,527 x 1,255 53 and 58 us)."""
    short_odd_steps: tuple[int, int] = (2, 3)
    """Number of rows of a program, if shorter than `shortest_odd`, and of stages: one is loaded while another is
    computed."""
    looped: tuple[tuple[int, int, int], ...] = (
        (8192, 32, 1),
        (4096, 32, 1),
        (4096, 16, 3),
        (2048, 16, 2),
        (2048, 8, 1),
    )
    """Columns of a block, warps and stages of a loop over a row, best first."""
    looped_beside_two: tuple[int, int, int] = (8192, 16, 1)
    """As `looped`, if there are a weight and a bias; tried first."""
    looped_odd: tuple[int, int, int] = (2048, 4, 4)
    """As `looped`, for many odd rows; tried first. Elements are moved one by one, which takes longer than their bytes
    do, even if these are read twice from memory. So small programs, several on each multiprocessor, are under way while
    others join their sums (2026-11-30: 2,048 x 41,219 293 us, by 32 warps 378 us; 512 x 46,567 92 and 109 us)."""
    looped_odd_beside_two: tuple[int, int, int] = (2048, 8, 3)
    """As `looped_odd`, if there are a weight and a bias. Half as many rows then stay in L2 more often (2026-12-01:
    layer norm of 700 x 70,001 168 us, by four warps 218; of 2,048 x 41,219 242 and 284)."""
    alone: float = 3 / 8
    """Share of a multiprocessor's registers above which only one program that holds a row fits. If some
    multiprocessors have two such rows and none has more, loops run both at once (2026-11-30: 246 x 32,768 in a loop
    14.0 us, one row after the other 16.7 us)."""
    many_odd_rows: int = 3
    """Number of rows for each multiprocessor from which odd rows are many."""
    shared_columns: int = 32768
    """Number of columns from which few rows are shared by programs."""
    shared_odd_columns: int = 16384
    """As `shared_columns`, for odd rows beside two vectors: one program reads these element by element, and its
    registers do not hold them (2026-11-30: 5 x 31,497 by one program 14.9 us, shared 5.1 us)."""
    shortest_part: int = 2048
    """Fewest columns of a program that shares a row."""
    shared_warps: tuple[int, ...] = (4, 2, 1, 8)
    """Warps of such a program, best first. Two of 8 run at once, so that one reads while the other waits."""
    streamed_warps: int = 4
    """Most warps of such a program if not all of them run at once."""
    exchange_columns: int = 32
    """Number of columns that one multiprocessor reads while a further program takes its part and exchanges results.
    Programs do so one after the other (2 ns each)."""
    held_values: int = 96
    """Number of registers in which a thread of such a program holds values, weights and biases. Aligned elements of
    16 bits share one."""
    spilled_columns: float = 2.5
    """Number of columns that are read while a value beyond these is written to memory and read again."""
    l2_bytes: int = 45 * 2**20
    """Bytes of L2 for rows while results are stored too. If the rows that all multiprocessors loop over are more, they
    are read twice from memory (2026-11-30: 231 x 229,201 in a loop 197 us, shared 168 us; 261 x 185,123, of which 132
    rows are 47 MiB, 159 and 96 us; 1,675 x 131,072, 33 MiB, 321 and 438 us)."""


SETTINGS = DefaultSettings()


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return a config that holds whole rows; longer rows are shared if they are few, else looped over.

    Rows that the registers hold are looped over too if some multiprocessors have two and room for one.
    """
    M, N, sm_count = problem["M"], problem["N"], limits.sm_count
    candidates: list[Mapping[str, Value]] = [*_shared(problem, limits)]
    if can_be_odd(problem):
        candidates += _odd(problem, limits)
    has_two_waves = limits.registers_per_sm * SETTINGS.alone < N and sm_count < M <= 2 * sm_count
    is_held = rows_space.SETTINGS.most_columns >= N and not has_two_waves
    candidates += _whole(problem, limits) if is_held else _looped(problem, limits)
    return next((config for config in candidates if valid(problem, config, limits)), candidates[-1])


def _config(variant: str, block_n: int, warps: int, **others: Value) -> Mapping[str, Value]:
    """Return a config; knobs that are not given take their smallest value."""
    given: dict[str, Value] = {"VARIANT": variant, "BLOCK_N": block_n, "num_warps": warps}
    return {"ROWS": 1, "STEPS": 1, "LATE": False, "num_stages": 1, **given, **others}


def _whole(problem: Problem, limits: Limits) -> Iterable[Mapping[str, Value]]:
    """Yield configs with as many short rows as fill a program, while each multiprocessor still has programs."""
    M, N = problem["M"], problem["N"]
    width, is_many = itemsize(problem.dtype), limits.sm_count < M
    is_aligned, whole_bytes = N * width % 16 == 0, next_power_of_2(N) * width
    # The longest rows fill the registers of the most threads, so none may be idle.
    is_longest = whole_bytes > SETTINGS.thread_bytes * limits.threads_per_block
    has_chunks = is_many or is_longest or (is_aligned and whole_bytes > SETTINGS.few_bytes)
    block_n = _chunk(N, width) if has_chunks else next_power_of_2(N)
    row_bytes = block_n * chunks(N, block_n) * width
    rows = min(SETTINGS.tile_bytes // row_bytes, M // (SETTINGS.programs * limits.sm_count), rows_space.LARGEST_ROWS)
    if not is_aligned:
        beside = min(SETTINGS.tile_bytes // 2 // row_bytes, M // (SETTINGS.unaligned_programs * limits.sm_count))
        rows = min(rows, max(SETTINGS.unaligned_elements * width // row_bytes, beside))
    rows = _largest_power_of_2(rows if row_bytes <= SETTINGS.short_row else 1)
    is_wide = rows * row_bytes > SETTINGS.most_threads * SETTINGS.thread_bytes and (is_many or not is_longest)
    threads = rows * row_bytes // (SETTINGS.thread_bytes * (2 if is_wide or not is_aligned else 1))
    threads = min(threads, rows * block_n * width // SETTINGS.access_bytes)
    # Late weights leave registers to more programs, which layer norm needs for its two sums, one after the other. Few
    # are better under way early, unless a load of each element of the row would wait for a load of each of theirs
    # (H200, 2026-11-30: layer norm of 304 x 225 late 2.4 us, early 3.0 us).
    is_full = "bias" in problem.values and M * threads > SETTINGS.most_threads * limits.sm_count
    late = not is_aligned or (is_many and (rows > 1 or is_full or threads > SETTINGS.most_threads))
    late = late and vectors(problem) > 0
    fewest = _largest_power_of_2(min(threads, limits.threads_per_block) // limits.warp_size)
    for warps in (fewest, *(2**power for power in range(6))):
        yield _config("whole", block_n, warps, ROWS=rows, LATE=late)


def _odd(problem: Problem, limits: Limits) -> Iterable[Mapping[str, Value]]:
    """Yield configs that read odd rows 16 bytes at once, several a program if two vectors are read beside them.

    There are none for short rows, unless they are few, or many and not too short.
    """
    M, N, two = problem["M"], odd_columns(problem["N"]), vectors(problem) > 1
    is_few = SETTINGS.few_odd_rows[two] * limits.sm_count >= M
    is_short = SETTINGS.shortest_odd > problem["N"] and not is_few
    steps, stages = SETTINGS.short_odd_steps
    is_many = SETTINGS.programs * steps * limits.sm_count <= M
    if is_short and not (is_many and problem["N"] >= SETTINGS.shortest_of_many_odd):
        return
    block_n = _chunk(N, itemsize(problem.dtype))
    columns = block_n * chunks(N, block_n)
    threads = next_power_of_2(columns // SETTINGS.odd_values)
    if is_few or is_short:
        most = min(SETTINGS.most_threads, block_n * itemsize(problem.dtype) // SETTINGS.access_bytes)
        threads = max(threads, min(most, next_power_of_2(columns // SETTINGS.few_odd_values)))
    warps = max(1, min(threads, limits.threads_per_block) // limits.warp_size)
    if is_short:
        yield _config("odd", block_n, warps, STEPS=steps, num_stages=stages)
        return
    for count in SETTINGS.odd_steps if two else (1,):
        yield _config("odd", block_n, warps, STEPS=count)


def _chunk(N: int, width: int) -> int:
    """Return the columns of the longest chunks that leave fewest lanes idle."""
    shorter = block_n = next_power_of_2(N)
    while shorter := shorter // 2:
        count = chunks(N, shorter)
        if count > rows_space.SETTINGS.most_chunks or shorter * width < SETTINGS.chunk_bytes:
            break
        if shorter * count < block_n * chunks(N, block_n):
            block_n = shorter
    return block_n


def _largest_power_of_2(most: int) -> int:
    """Return the largest power of two up to `most`; 1 for less."""
    return 1 << max(0, most.bit_length() - 1)


def _shared(problem: Problem, limits: Limits) -> Iterable[Mapping[str, Value]]:
    """Return configs that share each row among programs, best first; none if one program for each row is better.

    All programs run at once. Else rows are looped over, unless these are too few to fill the card, or too long to stay
    in L2 meanwhile.
    """
    M, N, sm_count = problem["M"], problem["N"], limits.sm_count
    is_costly = can_be_odd(problem) and vectors(problem) > 1
    is_empty, can_loop = sm_count >= 2 * M, rows_space.SETTINGS.most_columns < N
    # With a residual, a loop reads x and residual, writes their sum and reads it again: three rows in L2.
    has_sums = can_be_odd(problem) and vectors(problem) == 0 and bool(problem.values.get("residual"))
    leaves_l2 = N * itemsize(problem.dtype) * sm_count * (3 if has_sums else 1) > SETTINGS.l2_bytes
    if (SETTINGS.shared_odd_columns if is_costly else SETTINGS.shared_columns) > N:
        return ()
    if not (is_empty or leaves_l2 or (can_loop and sm_count > M)):
        return ()
    lengths = [2**power for power in range(SETTINGS.shortest_part.bit_length() - 1, N.bit_length())][::-1]
    configs: list[Mapping[str, Any]]
    configs = [_config("shared", length, warps) for length in lengths for warps in SETTINGS.shared_warps]
    configs = [config for config in configs if valid(problem, config, limits)]
    if at_once := [config for config in configs if _runs_at_once(problem, config, limits)]:
        configs = at_once
    elif is_empty or leaves_l2:
        configs = [config for config in configs if config["num_warps"] <= SETTINGS.streamed_warps]
    else:
        return ()
    return sorted(configs, key=lambda config: _shared_columns(problem, config, limits))


def _runs_at_once(problem: Problem, config: Mapping[str, Any], limits: Limits) -> bool:
    """Return whether all programs of a config that shares rows run at once."""
    each = limits.registers_per_sm // (config["num_warps"] * limits.warp_size * SHARED_REGISTERS)
    programs: int = problem["M"] * chunks(problem["N"], config["BLOCK_N"])
    return programs <= each * limits.sm_count


def _shared_columns(problem: Problem, config: Mapping[str, Any], limits: Limits) -> float:
    """Return the time of a config that shares rows, in columns that one multiprocessor reads meanwhile."""
    width, block_n = itemsize(problem.dtype), config["BLOCK_N"]
    programs = problem["M"] * chunks(problem["N"], block_n)
    others = vectors(problem) + bool(problem.values.get("residual"))
    register = 1.0 if problem["N"] * width % 16 else width / 4
    spilled = 1 + others * register - SETTINGS.held_values * config["num_warps"] * limits.warp_size / block_n
    each = 1 + SETTINGS.spilled_columns * max(0.0, spilled)
    return float(SETTINGS.exchange_columns * programs + each * cdiv(programs, limits.sm_count) * block_n)


def _looped(problem: Problem, limits: Limits) -> Iterable[Mapping[str, Value]]:
    """Yield configs that loop over each row."""
    first = (SETTINGS.looped_beside_two,) if vectors(problem) > 1 else ()
    if can_be_odd(problem) and problem["M"] >= SETTINGS.many_odd_rows * limits.sm_count:
        first = (SETTINGS.looped_odd_beside_two if vectors(problem) > 1 else SETTINGS.looped_odd, *first)
    for block_n, warps, stages in (*first, *SETTINGS.looped):
        yield _config("looped", block_n, warps, num_stages=stages)
