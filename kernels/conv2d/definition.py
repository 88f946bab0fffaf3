"""Convolution of images: out (B, O, P, Q) = act(x (B, C, H, W) * weight (O, C, R, S) + bias (O,)), summed in fp32.

Each of the B P Q output pixels is O sums of R S C products: a product of a matrix with a row for each window of x, and
the filters. Written to memory, that matrix (im2col) has R S times the elements of x. Here it is never written: a
program that computes a tile of output pixels and filters reads, for each of the R S pixels of a window, the same
pixels of x shifted by a few rows and columns, from the caches. Channels are neighbours in memory (channels last), so
that each read is long, whatever the window.

`tiles` computes the address of each pixel in the threads. `boxes` takes tiles of output pixels that are a patch of an
image, or of several: the copy engine reads a shifted patch by its corner, and fills in zeros outside of the image.
`specialized` does the same with specialized warps: one loads, the others multiply. `direct` loads windows of few
channels straight into the registers that multiply. For these but the last, channels that are not aligned to 16 bytes
may be copied first (`copies`). `gemm` takes windows of one pixel, with a stride of 1: a product of two matrices as they
lie, for which it has gemm's own warps with roles, tiles and slices.

`space` states the feasible configs, `default` the config that runs untuned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.conv2d.boxes import boxes
from tuner.kernels.conv2d.copies import copy_of
from tuner.kernels.conv2d.default import default
from tuner.kernels.conv2d.direct import direct
from tuner.kernels.conv2d.draw import draw
from tuner.kernels.conv2d.estimate import estimate
from tuner.kernels.conv2d.gemm import gemm
from tuner.kernels.conv2d.layer import check, layer
from tuner.kernels.conv2d.padded import copy_workspace, padded
from tuner.kernels.conv2d.patches import View, view
from tuner.kernels.conv2d.reference import reference, rounding, vendor
from tuner.kernels.conv2d.signature import SIGNATURE
from tuner.kernels.conv2d.space import AS_PRODUCTS, RULES, WITH_ROLES, parts, tile_count
from tuner.kernels.conv2d.specialized import specialized
from tuner.kernels.conv2d.tiles import tiles
from tuner.kernels.spec import Config, Kernel, Launch, Limits, Operand, Problem, next_power_of_2


def operands(problem: Problem) -> Mapping[str, Operand]:
    """Return x (B, C, H, W), weight (O, C, R, S), bias (O,) and out (B, O, P, Q), channels last in memory.

    Raises:
        UsageError: no window fits the image, or a number is out of range.
    """
    check(problem)
    found = layer(problem)
    rows, columns = found.rows, found.columns

    def image(images: int, channels: int, height: int, width: int, role: Any = "in") -> Operand:
        strides = (height * width * channels, 1, width * channels, channels)
        return Operand((images, channels, height, width), problem.dtype, role, strides)

    bias = {"bias": Operand((found.filters,), problem.dtype)} if problem["bias"] else {}
    return {
        "x": image(found.images, found.channels, rows.size, columns.size),
        "weight": image(found.filters, found.channels, rows.window, columns.window),
        **bias,
        "out": image(found.images, found.filters, rows.count, columns.count, "out"),
    }


def workspace(problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
    """Return the partial sums of slices, and counters of arrived slices for each tile, or each group's rows of it.

    With COPY, also the copies of x and weight.
    """
    count, slices = tile_count(problem, config), config["SPLIT_K"]
    has_roles, copies = config["VARIANT"] in WITH_ROLES, copy_workspace(problem, config)
    if slices == 1:  # without slices, the counters only say how many multiprocessors there are
        return {"arrived": Operand((limits.sm_count,), "int32"), **copies} if has_roles else copies
    return {
        "arrived": Operand((config["GROUPS"] * count if has_roles else count,), "int32"),
        "partials": Operand((count * slices, config["BLOCK_M"], config["BLOCK_N"]), "fp32"),
        **copies,
    }


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    """Return the launch of a variant, after that of its copies; `tiles` runs on tensors not aligned to 16 bytes."""
    found = layer(problem)
    if found.pixels == 0 or found.filters == 0:
        return ()
    if config["COPY"]:
        copy = copy_of(problem, config)
        of_copies = {**tensors, "x": tensors["x_copy"], "weight": tensors["weight_copy"]}
        product = launched(copy.problem, config, of_copies, copy.seen)
        before: tuple[Launch, ...] = (padded(problem, copy, tensors),)
    else:
        product, before = launched(problem, config, tensors, view(problem)), ()
    return (*before, product) if product else (tiles(problem, through_pointers(config), tensors),)


def launched(problem: Problem, config: Config, tensors: Mapping[str, Any], seen: View) -> Launch | None:
    """Return the launch of a variant, or None if it needs descriptors and a tensor is not aligned to 16 bytes."""
    if config["VARIANT"] == "tiles":
        return tiles(problem, config, tensors)
    if config["VARIANT"] == "direct":
        return direct(problem, config, tensors)
    if all(tensors[name].data_ptr() % 16 == 0 for name in ("x", "weight", "out")):
        if config["VARIANT"] in AS_PRODUCTS:
            return gemm(problem, config, tensors)
        return (boxes if config["VARIANT"] == "boxes" else specialized)(problem, config, tensors, seen)
    return None


def through_pointers(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config of `tiles` that replaces one that needs descriptors.

    It has no slices, which the workspace has no room for, and instead of warps with roles a tile of powers of two that
    fits four warps.
    """
    config = {**config, "VARIANT": "tiles", "PATCH": 0, "SPLIT_K": 1, "num_stages": 3}
    if config["num_warps"] == 4:
        return config | {name: min(128, max(16, next_power_of_2(config[name]))) for name in ("BLOCK_M", "BLOCK_N")}
    return config


def flops(problem: Problem) -> int:
    """Return the number of floating-point operations: a product and a sum for each element of each window."""
    found = layer(problem)
    return 2 * found.pixels * found.filters * found.depth


KERNEL = Kernel(
    signature=SIGNATURE,
    operands=operands,
    launch=launch,
    workspace=workspace,
    reference=reference,
    vendor=vendor,
    valid=RULES,
    parts=tuple(parts()),
    default=default,
    draw=draw,
    estimate=estimate,
    flops=flops,
    rounding=rounding,
)
