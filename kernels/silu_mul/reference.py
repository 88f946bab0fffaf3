"""Reference of silu_mul in double precision, and the vendor's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.spec import Problem


def halves(problem: Problem, tensors: Mapping[str, Any]) -> tuple[Any, Any]:
    """Return gate and up, each (M, N)."""
    if problem["packed"]:
        gate, up = tensors["gate"].chunk(2, dim=1)
        return gate, up
    return tensors["gate"], tensors["up"]


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    import torch

    gate, up = halves(problem, tensors)
    return {"out": torch.nn.functional.silu(gate[rows].double()) * up[rows].double()}


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """Run `torch.nn.functional.silu`, and multiply."""
    import torch

    gate, up = halves(problem, tensors)
    return {"out": torch.nn.functional.silu(gate) * up}


def liger(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """Run the gated SiLU of liger-kernel, by its function that reads halves if they are packed."""
    if problem["packed"]:
        from liger_kernel.ops.swiglu import LigerFusedGateUpSiLUMulFunction

        return {"out": LigerFusedGateUpSiLUMulFunction.apply(tensors["gate"])}
    from liger_kernel.ops import LigerSiLUMulFunction

    return {"out": LigerSiLUMulFunction.apply(tensors["gate"], tensors["up"])}


def flashinfer(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """Run the gated SiLU of FlashInfer, which reads the halves of one tensor."""
    from flashinfer.activation import silu_and_mul

    if not problem["packed"]:
        raise NotImplementedError("flashinfer reads gate and up as the halves of one tensor only")
    return silu_and_mul(tensors["gate"], out=tensors["out"])
