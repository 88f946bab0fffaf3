"""Variants `specialized`, `swapped` and `stream_k`: warps with roles. Their launch is in `shared.roles_launch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.shared.product_rows import transposed
from tuner.kernels.shared.roles_launch import Rows, product_by_roles
from tuner.kernels.spec import Launch, Problem


def specialized(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    a_is_t, b_is_t = transposed(problem)
    a, b, out = (
        Rows(tensors[name], tensors[name].stride(1 if is_t else 0))
        for name, is_t in (("a", a_is_t), ("b", b_is_t), ("out", False))
    )
    return product_by_roles(problem, config, a, b, out, tensors)
