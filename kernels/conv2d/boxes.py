"""Variant `boxes`: a program for each patch of output pixels and tile of filters, through tensor descriptors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from tuner.kernels.conv2d.arguments import compiled_in, sliced_count
from tuner.kernels.conv2d.layer import layer
from tuner.kernels.conv2d.patches import View, outputs
from tuner.kernels.conv2d.space import patch_of
from tuner.kernels.shared.products import corner_of, finished, joined
from tuner.kernels.spec import Launch, Problem


@triton.jit(do_not_specialize=["group_m"])
def conv2d_boxes(
    x, weight, out, bias, partials, arrived, images, P, Q, C, N, group_m,
    R: tl.constexpr, S: tl.constexpr, PADDING_H: tl.constexpr, PADDING_W: tl.constexpr,
    DILATION_H: tl.constexpr, DILATION_W: tl.constexpr, PHASES_H: tl.constexpr, PHASES_W: tl.constexpr,
    PATCH_P: tl.constexpr, PATCH_Q: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, SPLIT_K: tl.constexpr,
    PRECISION: tl.constexpr, ACTIVATION: tl.constexpr,
):  # fmt: skip
    """Compute a tile, or a slice of it along K.

    The box of a step is the patch, shifted by the place of a pixel in its window. Coordinates may be negative: the copy
    engine writes zeros for what is outside of the image. The transpose of the tile is computed, filters on the left:
    Triton lets the tensor cores read a box from shared memory only on the right, since its shape changes.
    """
    PATCH_B: tl.constexpr = BLOCK_M // (PATCH_P * PATCH_Q)
    patches_p = tl.cdiv(P, PATCH_P)
    patches_q = tl.cdiv(Q, PATCH_Q)
    patches = tl.cdiv(images, PATCH_B) * patches_p * patches_q
    slot = tl.program_id(0)
    first_m, first_n = corner_of(slot // SPLIT_K, patches * BLOCK_M, N, group_m, BLOCK_M, BLOCK_N)
    patch = first_m // BLOCK_M
    q = patch % patches_q * PATCH_Q
    p = patch // patches_q % patches_p * PATCH_P
    b = patch // patches_q // patches_p * PATCH_B
    blocks = tl.cdiv(C, BLOCK_K)
    steps = R * S * blocks
    first = steps * (slot % SPLIT_K) // SPLIT_K
    end = steps * (slot % SPLIT_K + 1) // SPLIT_K

    acc = tl.zeros((BLOCK_N, BLOCK_M), dtype=tl.float32)
    for step in range(first, end):
        tap = step // blocks
        c = step % blocks * BLOCK_K
        h = tap // S * DILATION_H - PADDING_H
        w = tap % S * DILATION_W - PADDING_W
        if PHASES_H * PHASES_W == 1:
            box = x.load([b, p + h, q + w, c])
        else:  # rounded down, for negative numbers too
            high = (h + PADDING_H * PHASES_H) // PHASES_H - PADDING_H
            wide = (w + PADDING_W * PHASES_W) // PHASES_W - PADDING_W
            box = x.load([b, p + high, h - high * PHASES_H, q + wide, (w - wide * PHASES_W) * C + c])
        pixels = tl.reshape(box, (BLOCK_M, BLOCK_K))
        acc = tl.dot(weight.load([first_n, tap * C + c]), pixels.T, acc, input_precision=PRECISION)

    done = True
    if SPLIT_K > 1:
        acc, done = joined(acc, partials, arrived, slot, SPLIT_K, BLOCK_N, BLOCK_M)
    if done:
        tile = finished(acc.T, bias, first_n + tl.arange(0, BLOCK_N), N, ACTIVATION, out.dtype)
        stored = tl.reshape(tile.to(out.dtype), (PATCH_B, PATCH_P, PATCH_Q, BLOCK_N))
        out.store([b, p, q, first_n], stored)


def boxes(problem: Problem, config: Mapping[str, Any], tensors: Mapping[str, Any], seen: View) -> Launch:
    found, patch, grid = layer(problem), patch_of(problem, config), outputs(problem)
    block_n, block_k, N, C = config["BLOCK_N"], config["BLOCK_K"], found.filters, found.channels
    box = [patch.images, patch.rows, patch.columns]
    of_x = [*box, block_k] if seen.phases == (1, 1) else [*box[:2], 1, box[2], block_k]
    written = [grid.rows * grid.columns * N, grid.columns * N, N, 1]
    descriptors = (
        TensorDescriptor(tensors["x"], [*seen.shape], [*seen.strides], of_x),
        TensorDescriptor(tensors["weight"], [N, found.depth], [found.depth, 1], [block_n, block_k]),
        TensorDescriptor(tensors["out"], [*grid, N], written, [*box, block_n]),
    )
    summing = [tensors.get(name) for name in ("bias", "partials", "arrived")]
    return Launch(
        conv2d_boxes,
        grid=(sliced_count(problem, config),),
        args=(*descriptors, *summing, *grid, C, N, config["GROUP_M"]),
        kwargs=compiled_in(problem, config)
        | {"PHASES_H": seen.phases[0], "PHASES_W": seen.phases[1], "PATCH_P": patch.rows, "PATCH_Q": patch.columns},
    )
