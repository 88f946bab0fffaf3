"""Dims, attributes and knobs of conv2d; windows are stated as those of pooling."""

from __future__ import annotations

from tuner.kernels.conv2d.layer import MOST_ROWS
from tuner.kernels.conv2d.space import KNOBS
from tuner.kernels.spec import Attribute, Dim, Signature, SizeLimit

MOST_PADDING = 64
MOST_DILATION = 64

SIGNATURE = Signature(
    op="conv2d",
    summary="convolution of images x (B, C, H, W) by filters (O, C, R, S), channels last, with bias and activation",
    dims=(
        Dim("B", help="images"),
        Dim("C", help="channels of x"),
        Dim("H", help="rows of an image"),
        Dim("W", default="H", help="columns of an image"),
        Dim("O", default="C", help="filters, the channels of out"),
        Dim("R", default=3, help="rows of a window"),
        Dim("S", default="R", help="columns of a window"),
        Dim("stride_h", default=1, help="rows from window to window"),
        Dim("stride_w", default="stride_h", help="columns from window to window"),
    ),
    dtypes=("bf16", "fp16", "fp32"),
    attributes=(
        Attribute("padding_h", tuple(range(MOST_PADDING + 1)), 0, "rows of zeros on either side"),
        Attribute("padding_w", tuple(range(MOST_PADDING + 1)), 0, "columns of zeros on either side"),
        Attribute("dilation_h", tuple(range(1, MOST_DILATION + 1)), 1, "rows between elements of a window"),
        Attribute("dilation_w", tuple(range(1, MOST_DILATION + 1)), 1, "columns between elements of a window"),
        Attribute("bias", (False, True), False, "whether bias (O,) is added to each pixel"),
        Attribute("activation", ("none", "relu", "silu", "gelu"), "none", "function of each sum"),
        Attribute("precision", ("tf32", "ieee"), "tf32", "how fp32 products are computed", dtypes=("fp32",)),
    ),
    size_limits=(
        *(SizeLimit(dim, 2**24) for dim in ("H", "W", "R", "S", "stride_h", "stride_w")),
        *(SizeLimit(dim, MOST_ROWS) for dim in "CO"),
    ),
    knobs=KNOBS,
)
"""The op as plain data."""
