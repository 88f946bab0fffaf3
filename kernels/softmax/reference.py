"""What softmax is compared with: torch, in double precision and as a user would call it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.spec import Problem


def reference(problem: Problem, tensors: Mapping[str, Any], rows: slice) -> Mapping[str, Any]:
    return {"out": tensors["x"][rows].double().softmax(dim=1)}


def vendor(problem: Problem, tensors: Mapping[str, Any]) -> object:
    """`torch.softmax`."""
    import torch

    return torch.softmax(tensors["x"], dim=1, out=tensors["out"])
