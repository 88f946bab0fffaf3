"""Reference of maximum pooling in double precision, and the vendor's kernel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.spec import Problem


def pooled(problem: Problem, x: Any) -> Any:
    """Return what torch computes."""
    import torch

    pairs = {name: (problem[f"{name}_h"], problem[f"{name}_w"]) for name in ("stride", "padding", "dilation")}
    window = (problem["R"], problem["S"])
    return torch.nn.functional.max_pool2d(x, window, **pairs, ceil_mode=problem["ceil"])


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    return {"out": pooled(problem, tensors["x"][rows].double())}


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> Mapping[str, Any]:
    """Run `torch.nn.functional.max_pool2d`."""
    return {"out": pooled(problem, tensors["x"])}
