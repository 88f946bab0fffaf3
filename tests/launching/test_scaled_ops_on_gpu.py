"""`ops.scaled_gemm` on a real card: on tensors of any strides, in a graph, and inside `torch.compile`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fresh_client import forget
from torch import Tensor

from tuner import ops
from tuner.launching.calls import PREPARED

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 9), reason="no 8-bit tensor cores here"
    ),
]
F8 = torch.float8_e4m3fn


@pytest.fixture(autouse=True)
def nothing_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    forget()
    PREPARED.prepared.clear()
    yield
    forget()
    PREPARED.prepared.clear()


def draw(rows: int, columns: int) -> Tensor:
    return torch.randn(rows, columns, device="cuda").to(F8)


def scales(*shape: int) -> Tensor:
    return torch.rand(shape, device="cuda") + 0.5


def blocks(M: int, N: int, K: int) -> tuple[Tensor, Tensor]:
    return scales(M, -(-K // 128)), scales(-(-K // 128), -(-N // 128))


def product(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor) -> Tensor:
    left, right = a.double(), b.double()
    if scale_a.numel() == scale_b.numel() == 1:
        return (left @ right) * (scale_a.double() * scale_b.double()).reshape(())
    each_a = scale_a.double().repeat_interleave(128, 1)[:, : a.shape[1]]
    each_b = scale_b.double().repeat_interleave(128, 0)[: b.shape[0]].repeat_interleave(128, 1)[:, : b.shape[1]]
    return (left * each_a) @ (right * each_b)


def right(result: Tensor, reference: Tensor) -> bool:
    apart = (result.double() - reference).abs().max() / reference.abs().max()
    return bool(apart <= 2 * torch.finfo(result.dtype).eps)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "size", [(1, 1, 1), (3, 129, 127), (127, 129, 65), (1, 512, 4096), (64, 272, 528), (300, 640, 1311)]
)
def test_odd_sizes_and_both_kinds_of_scales(size: tuple[int, int, int], dtype: torch.dtype) -> None:
    M, N, K = size
    for _ in range(2):
        a, b = draw(M, K), draw(N, K).t()
        for given in ((scales(), scales(1)), blocks(M, N, K)):
            assert right(ops.scaled_gemm(a, b, *given, out_dtype=dtype), product(a, b, *given))


def test_scales_of_blocks_lie_in_columns_in_rows_or_with_gaps() -> None:
    """With roles for warps, the copy engine reads whole columns of scales, at any address."""
    M, N, K = 1025, 2048, 1408
    a, b = draw(M, K), draw(N, K).t()
    by_a, by_b = blocks(M, N, K)
    reference = product(a, b, by_a, by_b)
    gaps = torch.full((by_a.shape[1], M + 7), float("nan"), device="cuda")
    gaps[:, :M] = by_a.t()
    for scale_a in (by_a, by_a.t().contiguous().t(), gaps[:, :M].t()):
        assert right(ops.scaled_gemm(a, b, scale_a, by_b), reference)


def test_any_strides_and_addresses() -> None:
    M, N, K = 300, 260, 400
    whole = draw(1, N * K + 1)[0]
    shifted = whole[1:].view(N, K).t()
    assert shifted.data_ptr() % 16 == 1
    a, b = draw(M, K), draw(N, K).t()
    views = [
        (a, b.contiguous()),
        (a.t().contiguous().t(), b),
        (a, shifted),
        (draw(M, 2 * K)[:, ::2], draw(2 * N, K)[::2].t()),
        (a[:1].expand(M, K), b),
    ]
    for left, right_ in views:
        by_block = blocks(M, N, K)
        for by_a, by_b in ((scales(1, 1), scales()), by_block, [x.t().contiguous().t() for x in by_block]):
            out = torch.full((2 * M, 3 * N), 7.0, dtype=torch.float16, device="cuda")
            ops.scaled_gemm(left, right_, by_a, by_b, out[::2, ::3])
            assert right(out[::2, ::3], product(left, right_, by_a, by_b))
            assert bool((out[1::2] == 7).all())
            assert right(ops.scaled_gemm(left, right_, by_a, by_b), product(left, right_, by_a, by_b))


def test_one_tensor_as_both_factors_is_another_call_than_two_tensors() -> None:
    x, y = draw(128, 128), draw(128, 128)
    x_t, one, two = x.t(), scales(1), scales(1)
    ops.scaled_gemm(x, x_t, one, one)
    assert right(ops.scaled_gemm(x, y.t(), one, two), product(x, y.t(), one, two))


def test_an_empty_product_is_0_and_one_without_rows_is_empty() -> None:
    out = torch.ones(3, 5, dtype=torch.bfloat16, device="cuda")
    assert bool((ops.scaled_gemm(draw(3, 0), draw(5, 0).t(), scales(), scales(), out=out) == 0).all())
    assert ops.scaled_gemm(draw(0, 16), draw(5, 16).t(), scales(), scales()).shape == (0, 5)


def test_in_a_captured_graph_and_compiled() -> None:
    a, b = draw(16, 4096), draw(512, 4096).t()
    given = blocks(16, 512, 4096)
    ops.scaled_gemm(a, b, *given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = ops.scaled_gemm(a, b, *given)
    a.copy_(draw(16, 4096))
    graph.replay()
    assert right(result, product(a, b, *given))
    compiled = torch.compile(lambda a, b, x, y: ops.scaled_gemm(a, b, x, y) * 2, fullgraph=True, backend="aot_eager")
    assert right(compiled(a, b, *given), 2 * product(a, b, *given))


def test_slices_along_k_are_summed_alike_every_time() -> None:
    """The default of few rows has slices."""
    a, b = draw(16, 14336), draw(512, 14336).t()
    given = scales(), scales()
    first = ops.scaled_gemm(a, b, *given)
    assert right(first, product(a, b, *given))
    assert all(torch.equal(ops.scaled_gemm(a, b, *given), first) for _ in range(50))


INF, NAN = float("inf"), float("nan")
EXTREME = [
    (1e30, 1e30), (3e38, 1.0), (3e38, 3e38), (1e30, 1e-30), (INF, 1.0), (-INF, 2.0), (INF, 0.0), (NAN, 1.0),
    (0.0, 1.0), (1e-30, 1e-30), (3e38, 1e-38),
]  # fmt: skip


def whole(rows: int, columns: int) -> Tensor:
    """Return small whole numbers, whose sums are exact in any order, with a row of zeros."""
    drawn = torch.randint(-2, 3, (rows, columns), device="cuda")
    drawn[0] = 0
    return drawn.half().to(F8)


def alike(result: Tensor, reference: Tensor) -> bool:
    """Return whether results are equal, infinities and NaN included."""
    return bool(
        torch.equal(result.isnan(), reference.isnan())
        and torch.allclose(
            result.float().nan_to_num(nan=0.0), reference.float().nan_to_num(nan=0.0), rtol=2**-7, atol=0
        )
    )


@pytest.mark.parametrize("accumulate", ["fp32", "fast"])
@pytest.mark.parametrize("size", [(1, 512, 4096), (3, 129, 127), (16, 512, 1024), (300, 640, 1408), (1024, 2048, 512)])
def test_infinite_and_huge_scales_give_what_fp32_gives(size: tuple[int, int, int], accumulate: str) -> None:
    """The sum is multiplied with the product of both scales, as torch multiplies it."""
    M, N, K = size
    a, b = whole(M, K), whole(N, K).t()
    sums = a.double() @ b.double()
    for dtype in (torch.bfloat16, torch.float16):
        for by_a, by_b in EXTREME:
            scale_a, scale_b = (torch.tensor(by, device="cuda") for by in (by_a, by_b))
            reference = (sums.float() * (scale_a * scale_b)).to(dtype)
            result = ops.scaled_gemm(a, b, scale_a, scale_b, out_dtype=dtype, accumulate=accumulate)
            assert alike(result, reference), (by_a, by_b)


@pytest.mark.parametrize("size", [(1, 512, 4096), (3, 129, 127), (16, 512, 1024), (300, 640, 1408), (1024, 2048, 512)])
def test_infinite_and_huge_scales_of_blocks_give_what_fp32_gives(size: tuple[int, int, int]) -> None:
    """Results are finite where those of fp32 are, and equal there up to the rounding of the terms."""
    M, N, K = size
    a, b = whole(M, K), whole(N, K).t()
    for by_a, by_b in EXTREME:
        scale_a, scale_b = torch.ones(-(-K // 128), M, device="cuda").t(), torch.ones_like(blocks(M, N, K)[1])
        scale_a[M // 2 :, 0], scale_b[0, -1] = by_a, by_b
        each = scale_b.repeat_interleave(128, 1)[:, :N]
        reference, terms = torch.zeros(M, N, device="cuda"), torch.zeros(M, N, device="cuda", dtype=torch.float64)
        for block in range(-(-K // 128)):
            k = slice(128 * block, 128 * block + 128)
            scale = scale_a[:, block, None] * each[block]
            reference += (a[:, k].double() @ b[k].double()).float() * scale
            terms += (a[:, k].double().abs() @ b[k].double().abs()) * scale.abs()
        result, reference = ops.scaled_gemm(a, b, scale_a, scale_b), reference.bfloat16()
        # A config that sums parts of a block gives NaN if its parts are infinite with different signs.
        finite = reference.isfinite()
        assert torch.equal(result.isfinite(), finite), (by_a, by_b)
        off = (result.double() - reference.double()).abs()[finite]
        # Parts of a block that cancel leave the rounding of a product, about 2^-24 of it.
        assert (off <= 2**-7 * reference.double().abs()[finite] + 2**-21 * terms[finite]).all(), (by_a, by_b)
