"""Copies of operands whose rows are not aligned to 16 bytes, for descriptors and for wide loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.shared.aligned_rows import aligned_operand, copied
from tuner.kernels.shared.product_rows import aligned_first, dtype_of, lying, transposed
from tuner.kernels.shared.tiling import describable
from tuner.kernels.spec import Launch, Operand, Problem


def aligned_workspace(problem: Problem, config: Mapping[str, Any]) -> Mapping[str, Operand]:
    """Return the copies of operands that are not aligned, with padding at the end of each row."""
    is_t = _transposed(problem)
    sizes = {name: (problem[rows], problem[along]) for name, (rows, along) in lying(problem).items()}
    return {
        f"aligned_{name}": aligned_operand(*sizes[name], dtype_of(problem, name), is_t[name])
        for name in aligned_first(problem, config)
    }


def with_aligned_rows(
    problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]
) -> tuple[tuple[Launch, ...], Mapping[str, Any], tuple[Launch, ...]]:
    """Return launches before the product, its tensors, and launches after it.

    Operands with a copy in the workspace are replaced by it. A variant with descriptors uses an operand that it can
    describe as it lies. `tiles` does not: at once it loads at most a divisor of the row's elements.
    """
    is_t = _transposed(problem)
    replaced = [name for name in is_t if f"aligned_{name}" in tensors]
    if config["VARIANT"] != "tiles":
        replaced = [name for name in replaced if not describable(tensors[name], is_t[name])]
    pairs = {name: (tensors[name], tensors[f"aligned_{name}"], is_t[name]) for name in replaced}
    read, written = [pair for name, pair in pairs.items() if name != "out"], pairs.get("out")
    return (
        (copied(read),) if read else (),
        {**tensors, **{name: tensors[f"aligned_{name}"] for name in replaced}},
        (copied([written], back=True),) if written else (),
    )


def _transposed(problem: Problem) -> Mapping[str, bool]:
    """Return for each operand whether its columns are contiguous, not its rows."""
    return dict(zip(("a", "b", "out"), (*transposed(problem), False), strict=True))
