"""Grids and arguments of launches of ops that normalise rows, and the alignment of the rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import gcd
from typing import Any

from tuner.kernels.shared.rows_space import ODD_GROUP, SHARED_REGISTERS, odd_columns
from tuner.kernels.spec import Config, Launch, Operand, Problem, cdiv, itemsize


def alignment(problem: Problem, matrices: Iterable[Any]) -> int:
    """Return the number of elements, up to 16 bytes, that divides the row length and the row strides of matrices."""
    M, N = problem["M"], problem["N"]
    strides = (matrix.stride(0) for matrix in matrices if matrix is not None) if M > 1 else ()
    return gcd(16 // itemsize(problem.dtype), N, *strides)


def row_stride(matrix: Any) -> int:
    """Return the elements between rows; 0 for None."""
    return 0 if matrix is None else int(matrix.stride(0))


def launched(
    problem: Problem,
    config: Config,
    tensors: Mapping[str, Any],
    pointers: tuple[Any, ...],
    matrices: Sequence[Any],
    variants: Mapping[str, Any],
) -> tuple[Launch, ...]:
    """Return the launch of a config's variant: `fn(*pointers, M, N, *strides of rows, eps, **compiled)`.

    Shared rows also take the workspace, after the pointers. Odd rows that begin at different places in 16 bytes are
    launched as whole ones.

    Args:
        matrices: matrices (M, N) among the tensors, or None, in the order of their strides.
        variants: the kernel of each variant.
    """
    M, N = problem["M"], problem["N"]
    if M == 0 or N == 0:
        return ()
    variant, known = config["VARIANT"], compiled(problem, config, matrices)
    numbers = (M, N, *map(row_stride, matrices), tensors["eps"])
    if variant == "odd":
        placed = odd(problem, config, matrices)
        if placed is None:
            variant, (grid, more) = "whole", whole(problem, config)
        else:
            grid, more = placed
            del known["ALIGN"]
    elif variant == "whole":
        grid, more = whole(problem, config)
    elif variant == "looped":
        grid, more = (M,), {"STAGES": config["num_stages"]}
    else:
        grid, more = shared(problem, config)
        pointers = (*pointers, tensors["started"], tensors["arrived"], tensors["found"])
    return (Launch(variants[variant], grid, (*pointers, *numbers), known | more),)


def compiled(problem: Problem, config: Config, matrices: Iterable[Any]) -> dict[str, Any]:
    """Return the arguments that every variant is compiled for."""
    return {
        "BLOCK_N": config["BLOCK_N"],
        "ALIGN": alignment(problem, matrices),
        "num_warps": config["num_warps"],
        "num_stages": config["num_stages"],
    }


def whole(problem: Problem, config: Config) -> tuple[tuple[int], dict[str, Any]]:
    """Return the grid of programs that hold whole rows, and the arguments that they are compiled for."""
    M, N = problem["M"], problem["N"]
    block_n, rows, steps = config["BLOCK_N"], config["ROWS"], config["STEPS"]
    arguments = {"CHUNKS": cdiv(N, block_n), "ROWS": rows, "STEPS": steps, "STAGES": config["num_stages"]}
    return (cdiv(M, rows * steps),), {**arguments, "EVEN": N % block_n == 0, "LATE": config["LATE"]}


def odd(problem: Problem, config: Config, matrices: Sequence[Any]) -> tuple[tuple[int], dict[str, Any]] | None:
    """Return the grid of programs that read odd rows 16 bytes at once, and the arguments that they are compiled for.

    None if the rows of the matrices do not begin at the same place in 16 bytes.
    """
    M, N = problem["M"], problem["N"]
    given = [matrix for matrix in matrices if matrix is not None]
    if any(matrix.data_ptr() % 16 for matrix in given):
        return None
    if M > 1 and len({matrix.stride(0) % ODD_GROUP for matrix in given}) > 1:
        return None
    steps = config["STEPS"]
    programs = M if steps == 1 else cdiv(M, steps * ODD_GROUP) * ODD_GROUP
    arguments = {"CHUNKS": cdiv(odd_columns(N), config["BLOCK_N"]), "STEPS": steps, "STAGES": config["num_stages"]}
    return (programs,), {**arguments, "VEC": ODD_GROUP}


def shared(problem: Problem, config: Config) -> tuple[tuple[int], dict[str, Any]]:
    """Return the grid of programs that share rows, and the arguments that they are compiled for."""
    parts = cdiv(problem["N"], config["BLOCK_N"])
    return (problem["M"] * parts,), {"PARTS": parts, "maxnreg": SHARED_REGISTERS}


def shared_workspace(problem: Problem, config: Config, found: int) -> Mapping[str, Operand]:
    """Return the started programs, those arrived at each row, and `found` numbers of each; {} for other variants."""
    M, N = problem["M"], problem["N"]
    if config["VARIANT"] != "shared":
        return {}
    return {
        "started": Operand((1,), "int32"),
        "arrived": Operand((M,), "int32"),
        "found": Operand((M, cdiv(N, config["BLOCK_N"]), found), "fp32"),
    }
