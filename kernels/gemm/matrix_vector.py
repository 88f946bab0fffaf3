"""Default configs of a matrix times up to four vectors, which threads compute without tensor cores."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tuner.kernels.gemm.space import PLAIN, on_tensor_cores, precision
from tuner.kernels.shared.product_rows import elements_per_access, transposed, unaligned
from tuner.kernels.shared.tiling import ALIGNED_BYTES
from tuner.kernels.spec import Limits, Problem, Value, cdiv, itemsize, next_power_of_2


@dataclass(frozen=True)
class MatrixVectorSettings:
    """Settings of the rules, from an H200."""

    least_k: int = 1024
    """K from which a program reads it in several steps."""
    short_k: tuple[int, int] = (33, 65)
    """Smallest K that counts as short: for one vector, and for two to four. Below, tensor cores are as fast, and a step
    of 64, the shortest, is mostly empty."""
    programs: int = 3
    """Programs of 16 rows for each multiprocessor, beyond which tensor cores are faster for three or four vectors."""
    small_matrix: int = 2**20
    """Elements of a matrix up to which each vector reads it anew, so that there are more programs."""
    short_elements: int = 2048
    """Elements of rows that lie along K in a program, if K is short."""
    short_programs: tuple[int, int] = (4, 10)
    """Programs for each multiprocessor, below which they have fewer rows, and beyond which they have more."""
    thread_elements: tuple[int, int] = (8, 128)
    """Fewest and most 16-bit elements of the matrix for each thread: one access of 16 bytes, and 16."""
    most_rows: int = 64
    """Most rows of a program."""
    held_elements: int = 2048
    """Most elements of several vectors of which registers hold the products with four rows."""


SETTINGS = MatrixVectorSettings()


def is_matrix_vector(problem: Problem) -> bool:
    """Return whether there is one vector, or up to four and the matrix lies along K, and tf32 is not asked for."""
    most = 4 if lies_along_k(problem) else 1
    return min(problem["M"], problem["N"]) <= most and precision(problem) == "ieee"


def long_vectors(problem: Problem, limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield the config of vectors with a long K, unless tensor cores are faster.

    For three or four vectors those take 0.78 to 1.0 times as long if there are more programs of 16 rows than run at
    once.

    A matrix that lies along K is read by one row for each program, in steps of 4,096 or 2,048 elements if they divide
    it, else by one row or two in steps of 1,024; for more vectors, programs take as many rows and a shorter step of
    each. A matrix that lies across K is read 128 bytes of a row at once, by programs of 16 warps. With more than two
    such programs for each multiprocessor, smaller programs share it. While there is less than one for every second
    multiprocessor, programs read half as much of a row.
    """
    M, N, K = problem.sizes
    if not is_matrix_vector(problem) or SETTINGS.least_k > K:
        return
    vectors, size, long = next_power_of_2(min(M, N)), itemsize(problem.dtype), max(M, N)
    many_rows = M <= N and cdiv(N, 16) > SETTINGS.programs * limits.sm_count
    if vectors == 4 and many_rows and on_tensor_cores(problem) and not unaligned(problem):
        return
    if lies_along_k(problem):
        step = next(step for step in (4096, 2048, 1024, 512) if K % step == 0 or step == 512)
        alone = (1, step, step // 512) if step >= 2048 else (1 if long < 16 * limits.sm_count else 2, 1024, 2)
        rows, depth, warps = {1: alone, 2: (2, min(step, 2048), 2), 4: (4, 512, 2)}[vectors]
        yield config_of(problem, vectors, rows, depth, warps)
        return
    columns = 128 // size
    are_many = cdiv(long, columns) > 2 * limits.sm_count
    while 2 * cdiv(long, columns) < limits.sm_count and columns * size > 32:
        columns //= 2
    yield config_of(problem, vectors, columns, 128 if are_many else 512, 4 if are_many else 16)


def short_vectors(problem: Problem, limits: Limits) -> Iterator[Mapping[str, Value]]:
    """Yield the config of 16-bit vectors with a short K, which a program reads at once if the matrix lies along it.

    A small matrix is read once for each vector, so that there are more programs. A larger one must be read in accesses
    of 16 bytes if it lies along K. Odd rows of the matrix have rules of their own.
    """
    M, N, K = problem.sizes
    rows, vectors, depth = max(M, N), min(M, N), max(64, next_power_of_2(K))
    along_k, is_small = lies_along_k(problem), rows * K <= SETTINGS.small_matrix
    at_once = elements_per_access(problem, "b" if M <= N else "a")
    is_short = SETTINGS.short_k[vectors > 1] <= K < SETTINGS.least_k and itemsize(problem.dtype) == 2
    if not is_matrix_vector(problem) or not is_short or at_once == 1:
        return
    if not along_k:
        columns = 32 if 2 * cdiv(rows, 32) >= limits.sm_count else 16
        depth = depth if depth <= 512 or columns == 16 else 256
        yield config_of(problem, vectors, columns, depth, 2 if depth <= 128 else 4)
    elif not is_small and at_once * 2 < ALIGNED_BYTES:
        return
    elif vectors == 1:
        count = _rows_at_once(rows, depth, limits)
        yield config_of(problem, vectors, count, depth, 2 if count * depth <= 1024 else 4)
    elif is_small:
        yield config_of(problem, 1, 4, depth, 2 if depth <= 256 else 4)
    elif next_power_of_2(vectors) * depth <= SETTINGS.held_elements:
        yield config_of(problem, vectors, 4, depth, 2)


def _rows_at_once(rows: int, depth: int, limits: Limits) -> int:
    """Return the number of rows along K of a program, which give each multiprocessor 4 to 10 programs if they can."""
    fewest, most = (count * limits.sm_count for count in SETTINGS.short_programs)
    count, least = max(2, SETTINGS.short_elements // depth), max(2, _fewest(depth, 2, limits))
    while count > least and cdiv(rows, count) < fewest:
        count //= 2
    held = SETTINGS.thread_elements[1] * 4 * limits.warp_size
    while cdiv(rows, count) > most and count < SETTINGS.most_rows and 2 * count * depth <= held:
        count *= 2
    return count


def _fewest(depth: int, warps: int, limits: Limits) -> int:
    """Return the fewest rows of a program of which each thread loads 16 bytes at once."""
    return cdiv(SETTINGS.thread_elements[0] * warps * limits.warp_size, depth)


def lies_along_k(problem: Problem) -> bool:
    """Return whether rows of the matrix, the larger factor, lie along K."""
    a_is_t, b_is_t = transposed(problem)
    return b_is_t if problem["M"] <= problem["N"] else not a_is_t


def config_of(problem: Problem, vectors: int, rows: int, depth: int, warps: int) -> Mapping[str, Value]:
    """Return the config of programs with a number of vectors, and of rows (or columns) of the matrix."""
    few, many = ("BLOCK_M", "BLOCK_N") if problem["M"] <= problem["N"] else ("BLOCK_N", "BLOCK_M")
    tile = {few: next_power_of_2(vectors), many: rows, "BLOCK_K": depth}
    return {**PLAIN, "VARIANT": "vectors", **tile, "num_warps": warps, "num_stages": 1}
