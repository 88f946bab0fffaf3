"""Reference of layer_norm in double precision, and the vendors' kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.spec import Problem


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    x = tensors["x"][rows].double()
    mean = x.mean(dim=1, keepdim=True)
    rstd = ((x - mean).square().mean(dim=1, keepdim=True) + tensors["eps"]).rsqrt()
    out = (x - mean) * rstd
    if problem["weight"]:
        out = out * tensors["weight"].double()
    if problem["bias"]:
        out = out + tensors["bias"].double()
    return {"out": out, "mean": mean[:, 0], "rstd": rstd[:, 0]} if problem["stats"] else {"out": out}


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """Run `torch.nn.functional.layer_norm`, or the function under it that also returns mean and rstd."""
    import torch

    x, weight, bias = (tensors.get(name) for name in ("x", "weight", "bias"))
    assert x is not None
    if not problem["stats"]:
        return {"out": torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias, tensors["eps"])}
    out, mean, rstd = torch.native_layer_norm(x, x.shape[1:], weight, bias, tensors["eps"])
    return {"out": out, "mean": mean.view(-1).float(), "rstd": rstd.view(-1).float()}


def liger(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """Run the layer norm of liger-kernel, which has a weight and a bias."""
    from liger_kernel.ops import LigerLayerNormFunction
    from liger_kernel.ops.layer_norm import layer_norm_forward

    if not (problem["weight"] and problem["bias"]):
        raise NotImplementedError("liger has no layer norm without a weight and a bias")
    given = (tensors["x"], tensors["weight"], tensors["bias"], tensors["eps"])
    if not problem["stats"]:
        return {"out": LigerLayerNormFunction.apply(*given)}
    out, _, mean, rstd, *_ = layer_norm_forward(*given)
    return {"out": out, "mean": mean, "rstd": rstd}
