"""Tensors of ops that normalise rows as the matrices that their kernels take, whatever their rank."""

from __future__ import annotations

from tuner.errors import UsageError
from tuner.kernels.calling import Tensors, shape
from tuner.kernels.shared.elementwise_call import merged

OF_COLUMNS = ("weight", "bias")
"""Operands with an element for each column."""
OF_ROWS = ("mean", "rstd")
"""Operands with an element for each row."""


def row_shapes(op: str, tensors: Tensors) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all tensors but x, whose last dim is normalised. Raises UsageError if x has no dims."""
    x = shape(tensors["x"])
    if not x:
        raise UsageError(f"{op} normalises the last dim of x, and x has none; give it one with x.reshape(1)")
    special = dict.fromkeys(OF_COLUMNS, x[-1:]) | dict.fromkeys(OF_ROWS, x[:-1])
    return {name: special.get(name, x) for name in tensors if name != "x"}


def row_views(tensors: Tensors) -> Tensors | None:
    """Return views (M, N) of the matrices and (M,) of statistics; None if rows have gaps or several strides.

    Rows may be in any order in memory that is the same in all tensors.
    """
    matrices = {name: x for name, x in tensors.items() if name not in OF_COLUMNS + OF_ROWS}
    of_rows = {name: tensors[name] for name in OF_ROWS if name in tensors}
    vectors = {name: tensors[name] for name in OF_COLUMNS if name in tensors}
    N = tensors["x"].shape[-1]
    if N > 1 and any(x.stride(-1) != 1 for x in (*matrices.values(), *vectors.values())):
        return None
    runs = merged(*(x[..., 0] for x in matrices.values()), *of_rows.values())
    if len(runs) > 1:
        return None
    M, steps = runs[0] if runs else (1, (N,) * len(matrices) + (1,) * len(of_rows))
    if any(step != 1 for step in steps[len(matrices) :]):
        return None
    rows = {name: x.as_strided((M, N), (step, 1)) for (name, x), step in zip(matrices.items(), steps, strict=False)}
    rows |= {name: x.as_strided((M,), (1,)) for name, x in of_rows.items()}
    return {name: vectors.get(name, rows.get(name, x)) for name, x in tensors.items()}
