"""Reference of rms_norm in double precision, and the vendor's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.spec import Problem


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    x, found = tensors["x"][rows], {}
    if problem["residual"]:
        # The sum is rounded before it is normalised, since it is a result too.
        x = (x.float() + tensors["residual"][rows].float()).to(x.dtype)
        found["residual_out"] = x
    x = x.double()
    normalised = x * (x.square().mean(dim=1, keepdim=True) + tensors["eps"]).rsqrt()
    return {"out": normalised * tensors["weight"].double() if problem["weight"] else normalised, **found}


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """Run `torch.nn.functional.rms_norm`, after an addition if there is a residual."""
    import torch

    x, found = tensors["x"], {}
    if problem["residual"]:
        x = found["residual_out"] = x + tensors["residual"]
    return {"out": torch.nn.functional.rms_norm(x, x.shape[1:], tensors.get("weight"), tensors["eps"]), **found}


def liger(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """Run the RMS norm of liger-kernel, by its function that adds a residual if there is one."""
    from liger_kernel.ops import LigerFusedAddRMSNormFunction, LigerRMSNormFunction

    x, weight, numbers = tensors["x"], tensors.get("weight"), (tensors["eps"], 0.0, "llama", False)
    if not problem["residual"]:
        return {"out": LigerRMSNormFunction.apply(x, weight, *numbers)}
    if weight is None:
        raise NotImplementedError("liger adds a residual only with a weight")
    out, residual_out = LigerFusedAddRMSNormFunction.apply(x, tensors["residual"], weight, *numbers)
    return {"out": out, "residual_out": residual_out}


def flashinfer(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """Run the RMS norm of FlashInfer. Its function that adds a residual overwrites what it reads, so it is left out."""
    from flashinfer.norm import rmsnorm

    if problem["residual"] or not problem["weight"]:
        raise NotImplementedError("flashinfer has no rmsnorm without a weight, and adds a residual in place only")
    return rmsnorm(tensors["x"], tensors["weight"], tensors["eps"], out=tensors["out"])
