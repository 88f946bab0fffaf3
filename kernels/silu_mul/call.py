"""`tuner.ops.silu_mul`: its tensors, and the problem that they are."""

from __future__ import annotations

from math import prod

from torch import Tensor

from tuner.errors import UsageError
from tuner.kernels.calling import OpCall, Tensors, empty, empty_like, in_torch, shape
from tuner.kernels.shared.elementwise_call import as_rows, merged, same_shapes
from tuner.kernels.silu_mul.definition import KERNEL


def silu_mul(gate: Tensor, up: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """Return silu(gate) * up, of any shape; `out` may be gate or up.

    Without up, gate (..., 2 N) holds both, gate in the first half of its last dim and up in the second, and out is
    (..., N); it may be the first half. A copy is made of tensors whose elements are in another order in memory, or have
    gaps in several dims.

    Raises:
        UsageError: as `gemm`.
    """
    if out is None and up is None:
        out = empty("silu_mul", lambda gate: (*gate.shape[:-1], gate.shape[-1:].numel() // 2), gate=gate)
    elif out is None:
        out = empty_like("silu_mul", gate, "gate")
    launch(gate, up, out)
    return out


def shapes(tensors: Tensors) -> dict[str, tuple[int, ...]]:
    """Return the shapes of up and out. Raises UsageError if gate has no halves and needs them."""
    if "up" in tensors:
        return same_shapes(tensors)
    both = shape(tensors["gate"])
    if not both or both[-1] % 2:
        raise UsageError(
            f"silu_mul without up takes a gate whose last dim holds gate and up, and gate has shape {both}; "
            "give it an even last dim, or give up"
        )
    return {"out": (*both[:-1], both[-1] // 2)}


def viewed(tensors: Tensors) -> Tensors | None:
    """Return matrices in the same memory, or None if there is more than one distance between rows in a tensor."""
    gate, out = tensors["gate"], tensors["out"]
    if "up" in tensors:
        if out.ndim > 1 and all(tensor.is_contiguous() for tensor in tensors.values()):
            return {name: tensor.view(-1, out.shape[-1]) for name, tensor in tensors.items()}
        rows = as_rows(tensors)
        return rows and {name: row.view(-1, row.shape[-1]) for name, row in rows.items()}
    runs = merged(gate[..., 0], out[..., 0])
    if len(runs) > 1 or gate.stride(-1) != 1 or (out.shape[-1] > 1 and out.stride(-1) != 1):
        return None
    (M, steps), *_ = runs or [(1, (gate.shape[-1], out.shape[-1]))]
    return {
        name: tensor.as_strided((M, tensor.shape[-1]), (step, 1))
        for (name, tensor), step in zip(tensors.items(), steps, strict=True)
    }


CALL = OpCall(
    kernel=KERNEL,
    function=silu_mul,
    takes_tensors="gate up? out!",
    shapes=shapes,
    values=lambda tensors: {
        "M": prod(tensors["out"].shape[:-1]),
        "N": tensors["out"].shape[-1],
        "dtype": tensors["out"].dtype,
        "packed": "up" not in tensors,
    },
    viewed=viewed,
    in_place=(("out", "gate"), ("out", "up")),
)
launch = in_torch(CALL)
