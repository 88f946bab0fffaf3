"""Reference of conv2d in higher precision, and the vendor's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.conv2d.layer import layer
from tuner.kernels.spec import Problem, Value


def precision(problem: Problem) -> Value:
    """Return how fp32 products are computed: `tf32`, torch's default, or `ieee`; `ieee` for other dtypes."""
    return dict(problem.attributes).get("precision", "ieee")


def activated(problem: Problem, x: Any) -> Any:
    """Return torch's activation of x."""
    import torch

    functional = torch.nn.functional
    functions = {"relu": functional.relu, "silu": functional.silu, "gelu": functional.gelu}
    return x if problem["activation"] == "none" else functions[problem["activation"]](x)


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    """Return the convolution of some images in fp64.

    The zeros around an image are multiplied too, so infinite filters give NaN there. cuDNN leaves them out at some
    sizes.
    """
    import torch

    found = layer(problem)
    around = [each.padding for each in (found.columns, found.rows) for _ in range(2)]
    x = torch.nn.functional.pad(tensors["x"][rows].double(), around)
    bias = tensors["bias"].double() if problem["bias"] else None
    out = torch.nn.functional.conv2d(x, tensors["weight"].double(), bias, **_by_axis(problem, "stride", "dilation"))
    return {"out": activated(problem, out)}


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run `torch.nn.functional.conv2d`, which calls cuDNN, and torch's activation.

    fp32 products are in tf32 only if the problem says so.
    """
    import torch

    def convolved() -> Any:
        arguments = _by_axis(problem, "stride", "padding", "dilation")
        return torch.nn.functional.conv2d(tensors["x"], tensors["weight"], tensors.get("bias"), **arguments)

    if problem.dtype != "fp32":
        return {"out": activated(problem, convolved())}
    setting = torch.backends.cudnn.conv
    before, setting.fp32_precision = setting.fp32_precision, precision(problem)
    try:
        return {"out": activated(problem, convolved())}
    finally:
        setting.fp32_precision = before


def _by_axis(problem: Problem, *names: str) -> dict[str, tuple[int, int]]:
    """Return arguments of torch's convolution, each for rows and columns."""
    found = layer(problem)
    return {name: (getattr(found.rows, name), getattr(found.columns, name)) for name in names}


def rounding(problem: Problem) -> float:
    """Return the relative rounding error of fp32 products; 0 for other dtypes.

    A running sum of K products strays by about sqrt(K) half steps of fp32. tf32 keeps 10 bits of each factor.
    """
    if problem.dtype != "fp32":
        return 0.0
    return 2.0**-10 if precision(problem) == "tf32" else layer(problem).depth ** 0.5 * 2.0**-24
