"""`tuner.ops.gelu`: its tensors, and the problem that they are."""

from __future__ import annotations

from torch import Tensor

from tuner.kernels.calling import OpCall, empty_like, in_torch
from tuner.kernels.gelu.definition import KERNEL
from tuner.kernels.shared.elementwise_call import as_rows, row_values, same_shapes


def gelu(x: Tensor, approximate: str = "none", *, out: Tensor | None = None) -> Tensor:
    """Return the GELU of x, of any shape; `out` may be x.

    A copy is made if out has another order of dims in memory, or if there are gaps in more than one dim.

    Args:
        approximate: `none` is the exact function, `tanh` its approximation, as in torch.

    Raises:
        UsageError: as `gemm`.
    """
    if out is None:
        out = empty_like("gelu", x)
    launch(x, out, approximate)
    return out


CALL = OpCall(
    kernel=KERNEL,
    function=gelu,
    takes_tensors="x out!",
    takes_attributes={"approximate": "none"},
    shapes=lambda tensors, approximate: same_shapes(tensors),
    values=lambda tensors, approximate: row_values(tensors["x"]),
    viewed=lambda tensors, approximate: as_rows(tensors),
    in_place=(("out", "x"),),
)
launch = in_torch(CALL)
