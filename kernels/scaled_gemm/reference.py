"""Reference of scaled_gemm in fp32, and the vendor's kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.scaled_gemm.space import BLOCK
from tuner.kernels.spec import Problem


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    """Return the product in fp32, where products of 8-bit floats are exact."""
    _, N, K = problem.sizes
    a, b = tensors["a"][rows].float(), tensors["b"].float()
    scale_a, scale_b = tensors["scale_a"], tensors["scale_b"]
    if problem["scales"] == "tensor":
        return {"out": (a @ b) * (scale_a * scale_b)}
    a *= scale_a[rows].repeat_interleave(BLOCK, 1)[:, :K]
    b *= scale_b.repeat_interleave(BLOCK, 0)[:K].repeat_interleave(BLOCK, 1)[:, :N]
    return {"out": a @ b}


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """Run `torch._scaled_mm`, which calls cuBLAS; if it refuses, the reference."""
    import torch

    out = tensors["out"]
    if not vendor_can(problem, out):
        return out.copy_(reference(problem, tensors, slice(None))["out"])
    fast = problem["scales"] == "tensor" and problem["accumulate"] == "fast"
    given = {name: tensors[name] for name in ("scale_a", "scale_b", "out")}
    return torch._scaled_mm(tensors["a"], tensors["b"], out_dtype=out.dtype, use_fast_accum=fast, **given)


def vendor_can(problem: Problem, out: Any) -> bool:
    """Return whether `torch._scaled_mm` computes a problem.

    With scales of blocks, torch passes on problems that cuBLAS refuses (M is no multiple of 16) or computes wrongly
    (K is no multiple of four blocks).
    """
    import torch

    M, _, K = problem.sizes
    if is_refused(problem) or not out.is_cuda:
        return False
    if problem["scales"] == "tensor":
        return True
    cuda = tuple(map(int, (torch.version.cuda or "0.0").split(".")))
    hopper = torch.cuda.get_device_capability(out.device)[0] == 9
    return cuda >= (12, 9) and hopper and M % 16 == 0 and K % (4 * BLOCK) == 0


def is_refused(problem: Problem) -> bool:
    """Return whether cuBLAS refuses a problem: its rows are no multiple of 16 elements."""
    return bool(problem["N"] % 16 or problem["K"] % 16)


FAST_SUM = 2.0**-14
"""Largest part of a sum that an addition in the tensor cores cuts off: Hopper keeps 14 bits (DeepSeek-V3, 2024)."""
DEPTH = 32
"""Elements along K of one addition."""
LONGEST = 8192
"""K above which the tolerance does not grow, so that it still refuses wrong results."""


def rounding(problem: Problem) -> float:
    """Return the relative rounding error of fast sums if no vendor can be compared, else 0.

    Each of K / DEPTH additions cuts off up to FAST_SUM of a sum that is, on average, half of the last one. Four times
    that is tolerated: 0.0097 with K = 2546, where errors of 0.0040 of the largest value were seen, and 0.0313 with K =
    16383, where 0.0159 were (H200, 2026-11-30).
    """
    if problem["scales"] != "tensor" or problem["accumulate"] != "fast" or not is_refused(problem):
        return 0.0
    return float(FAST_SUM * min(problem["K"], LONGEST) / DEPTH / 2)
