"""`tuner.ops.add`: its tensors, and the problem that they are."""

from __future__ import annotations

from torch import Tensor

from tuner.kernels.add.definition import KERNEL
from tuner.kernels.calling import OpCall, empty_like, in_torch
from tuner.kernels.shared.elementwise_call import as_rows, row_values, same_shapes


def add(x: Tensor, y: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return x + y, of tensors of one shape; `out` may be one of them.

    A copy is made of tensors whose elements are in another order in memory, or have gaps in more than one dim.

    Raises:
        UsageError: as `gemm`.
    """
    if out is None:
        out = empty_like("add", x)
    launch(x, y, out)
    return out


CALL = OpCall(
    kernel=KERNEL,
    function=add,
    takes_tensors="x y out!",
    shapes=same_shapes,
    values=lambda tensors: row_values(tensors["x"]),
    viewed=as_rows,
    in_place=(("out", "x"), ("out", "y")),
)
launch = in_torch(CALL)
