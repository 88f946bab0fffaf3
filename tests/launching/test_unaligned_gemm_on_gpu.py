"""Products whose rows are not aligned to 16 bytes, on a real card: as torch's, in graphs, and of any strides."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from tuner import ops

pytestmark = pytest.mark.gpu
SIZES = [(82, 1153, 2112), (4097, 257, 1021), (301, 515, 3001), (41, 41, 20001), (2049, 1025, 77), (33, 4099, 1200)]


@pytest.fixture(autouse=True)
def database(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))


@pytest.fixture
def tf32() -> Iterator[None]:
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    yield
    torch.backends.cuda.matmul.fp32_precision = before


def drawn(rows: int, columns: int, dtype: torch.dtype = torch.bfloat16, *, is_t: bool = False) -> Tensor:
    generator = torch.Generator("cuda").manual_seed(rows + columns)
    size = (columns, rows) if is_t else (rows, columns)
    x = torch.randn(size, device="cuda", generator=generator).to(dtype)
    return x.t() if is_t else x


def close(found: Tensor, a: Tensor, b: Tensor) -> bool:
    """Return whether a product is off by two roundings of its largest value at most; tf32 rounds to 10 bits."""
    expected = a.double() @ b.double()
    step = torch.finfo(found.dtype).eps if found.dtype != torch.float32 else 2.0**-9
    return bool((found - expected).abs().max() <= 2 * step * expected.abs().max())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(("M", "N", "K"), SIZES)
@pytest.mark.usefixtures("tf32")
def test_products_are_those_of_torch(M: int, N: int, K: int, layout: str, dtype: torch.dtype) -> None:
    a, b = drawn(M, K, dtype, is_t=layout[0] == "t"), drawn(K, N, dtype, is_t=layout[1] == "t")
    found = ops.gemm(a, b)
    assert close(found, a, b)
    out = torch.full((M + 1, N), 7.0, device="cuda", dtype=dtype)
    for _ in range(20):
        assert torch.equal(ops.gemm(a, b, out[:M]), found)
    assert (out[M] == 7).all()


def test_tensors_of_other_strides_have_the_same_product() -> None:
    """Descriptors use operands with padded rows without a copy; operands with other offsets or strides are copied."""
    M, N, K = 301, 515, 1001
    a, b = drawn(M, K), drawn(K, N)
    found = ops.gemm(a, b)
    for apart, first, step in ((1008, 0, 1), (1005, 3, 1), (2002, 0, 2)):
        other = torch.zeros(M * apart + 16, device="cuda", dtype=a.dtype).as_strided((M, K), (apart, step), first)
        other.copy_(a)
        assert close(ops.gemm(other, b), a, b)
    out = torch.zeros(M, 520, device="cuda", dtype=a.dtype)
    assert torch.equal(ops.gemm(a, b, out[:, :N]), found)
    assert not out[:, N:].any()


def test_graphs_and_streams_have_copies_of_their_own() -> None:
    a, b = drawn(1311, 2049), drawn(2049, 4353)
    expected, out = ops.gemm(a, b), torch.empty(1311, 4353, device="cuda", dtype=a.dtype)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        ops.gemm(a, b, out)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            ops.gemm(a, b, out)
    out.fill_(float("nan"))
    other = drawn(1311, 2050)[:, 1:].contiguous()
    streams = [torch.cuda.Stream() for _ in range(4)]
    torch.cuda.synchronize()
    for _ in range(20):
        graph.replay()
        results = []
        for stream in streams:
            with torch.cuda.stream(stream):
                results.append((ops.gemm(other, b), ops.gemm(a, b)))
    torch.cuda.synchronize()
    assert torch.equal(out, expected)
    for of_other, of_a in results:
        assert close(of_other, other, b)
        assert torch.equal(of_a, expected)
