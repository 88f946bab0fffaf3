"""Reference of conv2d in higher precision, and the vendor's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.conv2d.layer import layer
from tuner.kernels.spec import Problem, Value


def precision(problem: Problem) -> Value:
    """Return how fp32 products are computed: `tf32`, torch's default, or `ieee`; `ieee` for other dtypes."""
    return dict(problem.attributes).get("precision", "ieee")


def convolved(problem: Problem, x: Any, weight: Any, bias: Any) -> Any:
    """Return what torch computes. fp32 products are in tf32 only if the problem says so."""
    import torch

    found = layer(problem)
    pairs = {
        name: (getattr(found.rows, name), getattr(found.columns, name)) for name in ("stride", "padding", "dilation")
    }
    if x.dtype != torch.float32:
        return torch.nn.functional.conv2d(x, weight, bias, **pairs)
    setting = torch.backends.cudnn.conv
    before, setting.fp32_precision = setting.fp32_precision, precision(problem)
    try:
        return torch.nn.functional.conv2d(x, weight, bias, **pairs)
    finally:
        setting.fp32_precision = before


def activated(problem: Problem, x: Any) -> Any:
    """Return torch's activation of x."""
    import torch

    functional = torch.nn.functional
    functions = {"relu": functional.relu, "silu": functional.silu, "gelu": functional.gelu}
    return x if problem["activation"] == "none" else functions[problem["activation"]](x)


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    """Return the convolution of some images in fp64."""
    x, weight = tensors["x"][rows].double(), tensors["weight"].double()
    bias = tensors["bias"].double() if problem["bias"] else None
    return {"out": activated(problem, convolved(problem, x, weight, bias))}


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run `torch.nn.functional.conv2d`, which calls cuDNN, and torch's activation."""
    out = convolved(problem, tensors["x"], tensors["weight"], tensors.get("bias"))
    return {"out": activated(problem, out)}


def rounding(problem: Problem) -> float:
    """Return the relative rounding error of fp32 products; 0 for other dtypes.

    A running sum of K products strays by about sqrt(K) half steps of fp32. tf32 keeps 10 bits of each factor.
    """
    if problem.dtype != "fp32":
        return 0.0
    return 2.0**-10 if precision(problem) == "tf32" else layer(problem).depth ** 0.5 * 2.0**-24
