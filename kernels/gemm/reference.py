"""Reference of gemm in higher precision, and the vendor's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.gemm.space import precision
from tuner.kernels.spec import Problem


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    """Return the product in fp32 for 16-bit inputs, whose products are exact there, and in fp64 for fp32 inputs."""
    a, b = tensors["a"][rows], tensors["b"]
    out = a.double() @ b.double() if problem.dtype == "fp32" else a.float() @ b.float()
    if problem["bias"]:
        out += tensors["bias"]
    return {"out": activated(problem, out)}


def activated(problem: Problem, x: Any) -> Any:
    """Return torch's activation of x."""
    import torch

    return {"none": lambda x: x, "silu": torch.nn.functional.silu, "gelu": torch.nn.functional.gelu}[
        problem["activation"]
    ](x)


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """Run `torch.matmul` or `torch.addmm`, which call cuBLAS, and torch's activation."""
    import torch

    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, precision(problem) == "tf32"
    a, b, out = tensors["a"], tensors["b"], tensors["out"]
    try:
        if problem["bias"]:
            torch.addmm(tensors["bias"], a, b, out=out)
        else:
            torch.matmul(a, b, out=out)
        return out if problem["activation"] == "none" else out.copy_(activated(problem, out))
    finally:
        matmul.allow_tf32 = before


def rounding(problem: Problem) -> float:
    """Return the relative rounding error of fp32 products; 0 for other dtypes.

    A running sum of K products strays by about sqrt(K) half steps of fp32. tf32 keeps 10 bits of each factor, and
    cuBLAS does not always use it if it may.
    """
    if problem.dtype != "fp32":
        return 0.0
    return 2.0**-10 if precision(problem) == "tf32" else problem["K"] ** 0.5 * 2.0**-24
