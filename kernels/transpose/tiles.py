"""Device code: a program for each tile, which is transposed in padded shared memory."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

from tuner.kernels.shared.products import multiple


@gluon.constexpr_function
def shared_layout(tile_m, tile_n, pad):
    """Return the layout of a tile row by row, with `pad` elements behind each row."""
    if pad == 0:
        return gl.SwizzledSharedLayout(1, 1, 1, [1, 0])
    return gl.PaddedSharedLayout.with_identity_for([[tile_n, pad]], [tile_m, tile_n], [1, 0])


@gluon.jit
def transpose_kernel(
    x, out, M, N, stride_x, stride_out,
    TILE_M: gl.constexpr, TILE_N: gl.constexpr, PAD: gl.constexpr, VEC: gl.constexpr,
    X_ALIGN: gl.constexpr, OUT_ALIGN: gl.constexpr, num_warps: gl.constexpr,
):  # fmt: skip
    # X_ALIGN divides the length and the stride of rows of x, OUT_ALIGN those of out. As many elements are one access,
    # and masked together.
    N, stride_x = multiple(N, X_ALIGN), multiple(stride_x, X_ALIGN)
    M, stride_out = multiple(M, OUT_ALIGN), multiple(stride_out, OUT_ALIGN)

    # A thread owns VEC neighbouring elements, and a warp up to 32 such groups of one row, of x and of out alike.
    LANES_N: gl.constexpr = min(32, TILE_N // VEC)
    LANES_M: gl.constexpr = min(32, TILE_M // VEC)
    READ: gl.constexpr = gl.BlockedLayout([1, VEC], [32 // LANES_N, LANES_N], [num_warps, 1], [1, 0])
    WRITE: gl.constexpr = gl.BlockedLayout([1, VEC], [32 // LANES_M, LANES_M], [num_warps, 1], [1, 0])
    SHARED: gl.constexpr = shared_layout(TILE_M, TILE_N, PAD)

    tiles_m = gl.cdiv(M, TILE_M)
    first_m = gl.program_id(0) % tiles_m * TILE_M
    first_n = gl.program_id(0) // tiles_m * TILE_N
    m = first_m + gl.arange(0, TILE_M, gl.SliceLayout(1, READ))
    n = first_n + gl.arange(0, TILE_N, gl.SliceLayout(0, READ))
    mask = (m < M)[:, None] & (n < N)[None, :]
    tile = gl.load(x + m.to(gl.int64)[:, None] * stride_x + n[None, :], mask=mask)
    shared = gl.allocate_shared_memory(x.dtype.element_ty, [TILE_M, TILE_N], SHARED, tile)

    n = first_n + gl.arange(0, TILE_N, gl.SliceLayout(1, WRITE))
    m = first_m + gl.arange(0, TILE_M, gl.SliceLayout(0, WRITE))
    mask = (n < N)[:, None] & (m < M)[None, :]
    gl.store(out + n.to(gl.int64)[:, None] * stride_out + m[None, :], shared.permute((1, 0)).load(WRITE), mask=mask)
