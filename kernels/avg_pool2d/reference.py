"""Reference of average pooling in double precision, and the vendor's kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.spec import Problem


def is_global(problem: Problem) -> bool:
    """Return whether a window is the whole image."""
    return (problem["R"], problem["S"], problem["padding_h"], problem["padding_w"]) == (
        problem["H"], problem["W"], 0, 0,
    )  # fmt: skip


def pooled(problem: Problem, x: Any, divisor: float) -> Any:
    """Return what torch computes."""
    import torch

    pairs = {name: (problem[f"{name}_h"], problem[f"{name}_w"]) for name in ("stride", "padding")}
    return torch.nn.functional.avg_pool2d(
        x,
        (problem["R"], problem["S"]),
        **pairs,
        ceil_mode=problem["ceil"],
        count_include_pad=problem["count_include_pad"],
        divisor_override=int(divisor) or None,
    )


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    x, divisor = tensors["x"][rows].double(), tensors["divisor_override"]
    if is_global(problem):  # torch's pooling has one thread for each window
        return {"out": x.sum((2, 3), keepdim=True) / (divisor or problem["H"] * problem["W"])}
    return {"out": pooled(problem, x, divisor)}


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run `torch.nn.functional.avg_pool2d`, or for whole images `adaptive_avg_pool2d`, which is faster."""
    import torch

    if is_global(problem) and not tensors["divisor_override"]:
        return {"out": torch.nn.functional.adaptive_avg_pool2d(tensors["x"], 1)}
    return {"out": pooled(problem, tensors["x"], tensors["divisor_override"])}
