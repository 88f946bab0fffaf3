"""Variants `gemm` and `gemm_swapped`: windows of one pixel, with a stride of 1, as one product of matrices.

Pixels of x are rows of C elements, filters are rows of C elements, and pixels of out are rows of O elements, all one
after the other: no patch, no window and no padding is left of the convolution. So it is gemm's product of the layout
nt, by the same warps with roles, whose device code is in `shared.specialized`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.conv2d.layer import product
from tuner.kernels.conv2d.space import as_product
from tuner.kernels.shared.roles_launch import Rows, product_by_roles
from tuner.kernels.spec import Launch, Problem


def gemm(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any]) -> Launch:
    matrices = product(problem)
    _, N, K = matrices.sizes
    pixels, filters, out = (Rows(tensors[name], each) for name, each in (("x", K), ("weight", K), ("out", N)))
    return product_by_roles(matrices, as_product(config), pixels, filters, out, tensors)
