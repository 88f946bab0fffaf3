"""Dims and attributes of pooling."""

from __future__ import annotations

from tuner.kernels.spec import Attribute, Dim, SizeLimit

MOST_PADDING = 64
"""Largest padding, that of windows of 129 elements."""
MOST_DILATION = 32
"""Largest distance between the elements of a window."""

DIMS = (
    Dim("B", help="images"),
    Dim("C", help="channels"),
    Dim("H", help="rows of an image"),
    Dim("W", default="H", help="columns of an image"),
    Dim("R", default=2, help="rows of a window"),
    Dim("S", default="R", help="columns of a window"),
    Dim("stride_h", default="R", help="rows from window to window"),
    Dim("stride_w", default="stride_h", help="columns from window to window"),
)
ATTRIBUTES = (
    Attribute("padding_h", tuple(range(MOST_PADDING + 1)), 0, "rows of padding on either side, at most half a window"),
    Attribute("padding_w", tuple(range(MOST_PADDING + 1)), 0, "columns of padding on either side"),
    Attribute("ceil", (False, True), False, "a last window may reach out of the padded image"),
    Attribute("layout", ("nchw", "nhwc"), "nchw", "order in memory: columns or channels are neighbours"),
)
DILATIONS = (
    Attribute("dilation_h", tuple(range(1, MOST_DILATION + 1)), 1, "rows between neighbouring elements of a window"),
    Attribute("dilation_w", tuple(range(1, MOST_DILATION + 1)), 1, "columns between neighbouring elements of a window"),
)
COUNT_PADDING = Attribute("count_include_pad", (True, False), True, "whether sums are divided by padding too")
LIMITS = tuple(SizeLimit(dim, 2**30 if dim in "HW" else 2**24) for dim in ("H", "W", "R", "S", "stride_h", "stride_w"))
"""With these, a channel of the last block and a row or column of the last window fit 32 bits."""
