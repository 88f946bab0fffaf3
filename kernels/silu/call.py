"""`tuner.ops.silu`: its tensors, and the problem that they are."""

from __future__ import annotations

from torch import Tensor

from tuner.kernels.calling import OpCall, empty_like, in_torch
from tuner.kernels.shared.elementwise_call import as_rows, row_values, same_shapes
from tuner.kernels.silu.definition import KERNEL


def silu(x: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Return x * sigmoid(x), of any shape; `out` may be x.

    A copy is made if out has another order of dims in memory, or if there are gaps in more than one dim.

    Raises:
        UsageError: as `gemm`.
    """
    if out is None:
        out = empty_like("silu", x)
    launch(x, out)
    return out


CALL = OpCall(
    kernel=KERNEL,
    function=silu,
    takes_tensors="x out!",
    shapes=same_shapes,
    values=lambda tensors: row_values(tensors["x"]),
    viewed=as_rows,
    in_place=(("out", "x"),),
)
launch = in_torch(CALL)
