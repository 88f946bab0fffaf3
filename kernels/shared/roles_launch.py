"""Launch of a 16-bit product by warps with roles. Its device code is in `shared.specialized`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from tuner.kernels.shared.product_rows import transposed
from tuner.kernels.shared.roles import walked_together
from tuner.kernels.shared.roles_space import shared_tiles, staging_slots, tile_of_roles
from tuner.kernels.shared.specialized import gemm_specialized, of_parts
from tuner.kernels.shared.tiling import ALIGNED_BYTES, tile_count
from tuner.kernels.shared.wide_wgmma import compiled_tile, is_kept
from tuner.kernels.spec import Launch, Problem, itemsize

_GLUON = {"bf16": gl.bfloat16, "fp16": gl.float16}


def described(
    tensor: Any, shape: Sequence[int], strides: Sequence[int], box: Sequence[int], dtype: str
) -> TensorDescriptor:
    """Return Gluon's descriptor of boxes of a tensor of 16-bit elements.

    Args:
        shape, strides: those that the copy engine sees, which may differ from the tensor's own.
    """
    layout = gl.NVMMASharedLayout.get_default_for([*box], _GLUON[dtype])
    return TensorDescriptor(tensor, [*shape], [*strides], [*box], layout)


class Rows(NamedTuple):
    """A matrix by its contiguous rows, or by its columns if it is a transpose."""

    tensor: Any
    stride: int
    """Elements from one row to the next."""


def product_by_roles(
    problem: Problem, config: Mapping[str, Any], a: Rows, b: Rows, out: Rows, tensors: Mapping[str, Any]
) -> Launch:
    """Return the launch of a product.

    Args:
        problem: with dims M, N and K, an activation, and a layout if that is not nt.
        config: of variant `specialized`, `swapped` or `stream_k`.
        tensors: the bias, if there is one, and the workspace.
    """
    M, N, K = problem.sizes
    a_is_t, b_is_t = transposed(problem)
    swapped, stream_k, slices = config["VARIANT"] == "swapped", config["VARIANT"] == "stream_k", config["SPLIT_K"]
    tile, tiles = compiled_tile(tile_of_roles(problem, config), is_kept()), tile_count(problem, config)
    programs = tensors["arrived"].shape[0] // (tile.groups if stream_k else 1) if slices == 1 else tiles * slices
    slots = staging_slots(problem, config, programs)

    def boxes(factor: Rows, count: int, across_k: bool) -> Callable[[int], TensorDescriptor]:
        order = slice(None, None, -1 if across_k else 1)
        return lambda rows: described(
            factor.tensor, [count, K][order], [factor.stride, 1], [rows, tile.block_k][order], problem.dtype
        )

    factors = [(boxes(a, M, a_is_t), a_is_t, M), (boxes(b, N, not b_is_t), not b_is_t, N)]
    (left, left_across_k, left_rows), (right, right_across_k, right_rows) = factors[::-1] if swapped else factors

    def piece(part: int) -> TensorDescriptor:
        box = (tile.chunk(part), tile.rows) if swapped else (tile.rows, tile.chunk(part))
        return described(out.tensor, (M, N), (out.stride, 1), box, problem.dtype)

    args = (
        left(tile.rows),
        *of_parts(tile, right),
        *of_parts(tile, piece),
        tensors.get("bias"),
        *(None, None),  # scales
        *(tensors.get(name) for name in ("partials", "arrived")),
        *(left_rows, right_rows, K),
        *(0, 0, 0),  # strides of scales
        shared_tiles(problem, config, programs),
        walked_together(left_rows, right_rows, tile),
    )
    return Launch(
        gemm_specialized,
        grid=(programs if stream_k else min(programs, tiles * slices),),
        args=args,
        kwargs={
            **tile.compiled_in(slots),
            "WIDE": tile.wide,
            "SPLIT_K": slices,
            "STREAM_K": stream_k,
            **moved_back(problem, config["VARIANT"], left_across_k, right_across_k),
            "SWAPPED": swapped,
            "LEFT_ACROSS_K": left_across_k,
            "RIGHT_ACROSS_K": right_across_k,
            "ACTIVATION": problem["activation"],
            "SCALES": "none",
            "PROMOTED": False,
            "num_warps": config["num_warps"],
        },
    )


def moved_back(problem: Problem, variant: str, left_across_k: bool, right_across_k: bool) -> dict[str, int]:
    """Return LEFT_EACH and RIGHT_EACH: multiples of rows and columns to which the last tile is moved back.

    A box of the copy engine must begin at a multiple of 16 bytes of a contiguous row (otherwise: illegal instruction;
    docs/studies/gemm.md): columns of out, and of factors that lie across K. With stream-K a program's share decides how
    a row's sum is cut, so neighbours' sums differ, and no tile is moved.
    """
    if variant == "stream_k":
        return {"LEFT_EACH": 0, "RIGHT_EACH": 0}
    each, swapped = ALIGNED_BYTES // itemsize(problem.dtype), variant == "swapped"
    return {
        "LEFT_EACH": each if swapped or left_across_k else 1,
        "RIGHT_EACH": each if right_across_k or not swapped else 1,
    }
