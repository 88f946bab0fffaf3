"""Second launch of a problem whose keys are split: the shares of each row are weighted and added."""

from __future__ import annotations

import triton
import triton.language as tl

from tuner.kernels.attention.tiles import LN_2, strides_of


@triton.jit(do_not_specialize=["all_rows", "count", "H", "M"])
def attention_combine(
    out, lse, partial, partial_lse, all_rows, count, H, M, stride_ob, stride_oh, stride_om,
    D: tl.constexpr, BLOCK_D: tl.constexpr, SPLITS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
    IS_PACKED: tl.constexpr, ALIGN: tl.constexpr,
):  # fmt: skip
    """Add the shares of `count` rows, all of which a program reads at once; every run gives the same bits.

    Rows lie in the workspace as they do in lse: (B, H, M), or packed (rows, H). WIDTH is SPLITS, rounded up to a power
    of 2. Strides of out are multiples of ALIGN.
    """
    stride_ob, stride_oh, stride_om = strides_of(stride_ob, stride_oh, stride_om, ALIGN)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    exists = row < count
    if IS_PACKED:
        b, h, m = row * 0, row % H, row // H
    else:
        b, h, m = row // M // H, row // M % H, row % M
    wide = row.to(tl.int64)
    s, d = tl.arange(0, WIDTH), tl.arange(0, BLOCK_D)
    stored, shared = exists[:, None] & (d < D)[None, :], exists[:, None] & (s < SPLITS)[None, :]
    at = s.to(tl.int64)[None, :] * all_rows + wide[:, None]
    logs = tl.load(partial_lse + at, mask=shared, other=-float("inf"))
    of_share = shared[:, :, None] & (d < D)[None, None, :]
    values = tl.load(partial + at[:, :, None] * D + d[None, None, :], mask=of_share, other=0.0)
    top = tl.max(logs, axis=1)
    shift = tl.where(top == -float("inf"), 0.0, top)
    weights = tl.exp2(logs - shift[:, None])
    total = tl.sum(weights, axis=1)
    total = tl.where(total == 0.0, 1.0, total)
    acc = tl.sum(weights[:, :, None] * values, axis=1) / total[:, None]
    if lse is not None:
        tl.store(lse + wide, (top + tl.log2(total)) * LN_2, mask=exists)
    at_out = out + b.to(tl.int64) * stride_ob + h.to(tl.int64) * stride_oh + m.to(tl.int64) * stride_om
    tl.store(at_out[:, None] + d[None, :], acc.to(out.dtype.element_ty), mask=stored)
