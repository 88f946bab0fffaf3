"""Average pooling: out (B, C, P, Q) has the mean of each window of R x S elements of x (B, C, H, W).

Each element is read once and each output written once, B C (H W + P Q) elements, and the sums are cheap. A kernel with
a thread for each output reads B C P Q R S single elements from the caches instead, and has one thread for a whole image
if that is the window.

Rows contiguous (nchw): a thread computes a tile of outputs. It reads 16 bytes at a time and takes them apart in its
registers, adds each row of the image along the windows once, and adds the rows for each row of outputs.

Channels contiguous (nhwc): a thread has 16 bytes of channels of each pixel, and its outputs share pixels likewise.

Large windows, such as a whole image (the global average), have too few outputs for a thread each. The threads of a
program share a window, and several programs share one if there are not enough windows for the card.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.kernels.avg_pool2d.draw import draw
from tuner.kernels.avg_pool2d.reference import reference, vendor
from tuner.kernels.shared.windows import images, windows
from tuner.kernels.shared.windows_default import default as shared_default
from tuner.kernels.shared.windows_launch import pooled
from tuner.kernels.shared.windows_launch import workspace as shared_workspace
from tuner.kernels.shared.windows_signature import ATTRIBUTES, COUNT_PADDING, DIMS, LIMITS
from tuner.kernels.shared.windows_space import KNOBS, PARTS, valid
from tuner.kernels.spec import Config, Kernel, Launch, Limits, Operand, Problem, Signature, Value


def operands(problem: Problem) -> Mapping[str, Operand]:
    """Return x (B, C, H, W) and out (B, C, P, Q)."""
    return images(problem)


def launch(problem: Problem, config: Config, tensors: Mapping[str, Any]) -> tuple[Launch, ...]:
    return pooled(problem, config, tensors, maximum=False, divisor=tensors["divisor_override"])


def default(problem: Problem, limits: Limits) -> Mapping[str, Value]:
    """Return the config with the least estimated time, or one whose threads share windows."""
    return shared_default(problem, limits, maximum=False)


def workspace(problem: Problem, config: Config, limits: Limits) -> Mapping[str, Operand]:
    """Return what programs that share windows exchange."""
    return shared_workspace(problem, config)


def flops(problem: Problem) -> int:
    """Return a sum or a division for each element of each window."""
    found = windows(problem)
    return found.outputs * found.elements


KERNEL = Kernel(
    signature=Signature(
        op="avg_pool2d",
        summary="mean of each window of R x S elements of x (B, C, H, W)",
        dims=DIMS,
        dtypes=("bf16", "fp16", "fp32"),
        attributes=(*ATTRIBUTES, COUNT_PADDING),
        size_limits=LIMITS,
        knobs=KNOBS,
    ),
    operands=operands,
    launch=launch,
    workspace=workspace,
    reference=reference,
    vendor=vendor,
    valid=valid,
    parts=PARTS,
    default=default,
    flops=flops,
    draw=draw,
    scalars={"divisor_override": 0.0},  # 0: the number of elements that are counted
)
