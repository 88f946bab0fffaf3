"""Default config of ops that normalise rows: a rule over sizes and the limits of the card."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tuner.kernels.shared import rows_space
from tuner.kernels.shared.rows_space import can_be_odd, chunks, odd_columns, valid, vectors
from tuner.kernels.spec import Limits, Problem, Value, itemsize, next_power_of_2


@dataclass(frozen=True)
class DefaultSettings:
    """Settings of the rule. Source: measurements on an H200."""

    short_row: int = 1024
    """Most bytes of a row that shares a program with others."""
    tile_bytes: int = 4096
    """Bytes of the short rows of a program."""
    chunk_bytes: int = 256
    """Fewest bytes of a chunk of a row that has several."""
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
    odd_steps: tuple[int, ...] = (4, 2, 1)
    """Number of such rows of a program if there are a weight and a bias, best first."""
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
    shared_columns: int = 32768
    """Number of columns from which few rows are shared by programs."""
    shortest_part: int = 2048
    """Fewest columns of a program that shares a row."""
    shared_waves: int = 2
    """Number of such programs for each multiprocessor, unless their parts would be shorter than that."""
    shared_warps: tuple[int, ...] = (4, 2, 8, 16)
    """Warps of such a program, best first."""


SETTINGS = DefaultSettings()


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return a config that holds whole rows; longer rows are shared if they are few, else looped over."""
    M, N = problem["M"], problem["N"]
    candidates: list[Mapping[str, Value]] = []
    if SETTINGS.shared_columns <= N and limits.sm_count > M:
        candidates += _shared(problem, limits)
    if SETTINGS.shortest_odd <= N and can_be_odd(problem):
        candidates += _odd(problem, limits)
    candidates += _whole(problem, limits) if rows_space.SETTINGS.most_columns >= N else _looped(problem)
    return next((config for config in candidates if valid(problem, config, limits)), candidates[-1])


def _config(variant: str, block_n: int, warps: int, **others: Value) -> Mapping[str, Value]:
    """Return a config; knobs that are not given take their smallest value."""
    given: dict[str, Value] = {"VARIANT": variant, "BLOCK_N": block_n, "num_warps": warps}
    return {"ROWS": 1, "STEPS": 1, "LATE": False, "num_stages": 1, **given, **others}


def _whole(problem: Problem, limits: Limits) -> Iterable[Mapping[str, Value]]:
    """Yield configs with as many short rows as fill a program, while each multiprocessor still has programs."""
    M, N = problem["M"], problem["N"]
    width, is_many = itemsize(problem.dtype), limits.sm_count < M
    block_n = _chunk(N, width) if is_many else next_power_of_2(N)
    row_bytes = block_n * chunks(N, block_n) * width
    rows = min(SETTINGS.tile_bytes // row_bytes, M // limits.sm_count, rows_space.LARGEST_ROWS)
    rows = _largest_power_of_2(rows if row_bytes <= SETTINGS.short_row else 1)
    is_aligned = N * width % 16 == 0
    is_wide = rows * row_bytes > SETTINGS.most_threads * SETTINGS.thread_bytes
    threads = rows * row_bytes // (SETTINGS.thread_bytes * (2 if is_wide or not is_aligned else 1))
    threads = min(threads, rows * block_n * width // SETTINGS.access_bytes)
    # Late weights leave registers to more programs. Few or misaligned ones are better under way early.
    late = is_many and is_aligned and vectors(problem) > 0
    late = late and (rows > 1 or vectors(problem) > 1 or threads > SETTINGS.most_threads)
    fewest = _largest_power_of_2(min(threads, limits.threads_per_block) // limits.warp_size)
    for warps in (fewest, *(2**power for power in range(6))):
        yield _config("whole", block_n, warps, ROWS=rows, LATE=late)


def _odd(problem: Problem, limits: Limits) -> Iterable[Mapping[str, Value]]:
    """Yield configs that read odd rows 16 bytes at once, several a program if two vectors are read beside them."""
    N = odd_columns(problem["N"])
    block_n = _chunk(N, itemsize(problem.dtype))
    threads = next_power_of_2(block_n * chunks(N, block_n) // SETTINGS.odd_values)
    warps = max(1, min(threads, limits.threads_per_block) // limits.warp_size)
    for steps in SETTINGS.odd_steps if vectors(problem) > 1 else (1,):
        yield _config("odd", block_n, warps, STEPS=steps)


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
    """Yield configs that share each row among programs, whose parts are as short as fills the card a few times."""
    part = max(SETTINGS.shortest_part, problem["M"] * problem["N"] // (SETTINGS.shared_waves * limits.sm_count))
    block_n = next_power_of_2(part)
    while block_n < problem["N"]:
        yield from (_config("shared", block_n, warps) for warps in SETTINGS.shared_warps)
        block_n *= 2


def _looped(problem: Problem) -> Iterable[Mapping[str, Value]]:
    """Yield configs that loop over each row."""
    first = (SETTINGS.looped_beside_two,) if vectors(problem) > 1 else ()
    for block_n, warps, stages in (*first, *SETTINGS.looped):
        yield _config("looped", block_n, warps, num_stages=stages)
