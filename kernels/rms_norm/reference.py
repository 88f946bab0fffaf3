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
