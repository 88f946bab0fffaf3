"""The largest sizes on a real card: right, or refused before anything is launched."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from fresh_client import forget
from torch import Tensor

from tuner import ops
from tuner.errors import UsageError
from tuner.kernels.shared.product_rows import LONGEST_ROW
from tuner.kernels.spec import MAX_SIZE
from tuner.launching.calls import PREPARED

NEEDED_BYTES = 60 << 30
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        torch.cuda.is_available() and torch.cuda.mem_get_info()[1] < NEEDED_BYTES, reason="the card has less memory"
    ),
]
F8 = torch.float8_e4m3fn
TALLEST, DEEPEST = 2**31 - 4096, 2**31 - 8192


@pytest.fixture(autouse=True)
def nothing_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    forget()
    PREPARED.prepared.clear()
    torch.cuda.empty_cache()
    yield
    forget()
    PREPARED.prepared.clear()
    torch.cuda.empty_cache()


def full(*size: int, value: float = 1.0, dtype: torch.dtype = torch.bfloat16) -> Tensor:
    return torch.full(size, value, dtype=dtype, device="cuda")


def ones(*size: int) -> Tensor:
    """Return ones in 8 bits."""
    return torch.full(size, 0x38, dtype=torch.uint8, device="cuda").view(F8)


class TestSoftmax:
    def test_the_longest_row(self) -> None:
        x = full(1, 2**31 - 2**18, value=-60_000.0, dtype=torch.float16)
        peaks = [0, 2**30 + 1, x.shape[1] - 2**15, x.shape[1] - 1]
        x[0, peaks] = 0
        out = ops.softmax(x)
        assert out[0, peaks].tolist() == [0.25] * 4
        assert int(torch.count_nonzero(out)) == 4

    def test_the_most_rows(self) -> None:
        x = full(MAX_SIZE, 1, value=3.0, dtype=torch.float16)
        assert bool((ops.softmax(x) == 1).all())

    def test_rows_that_are_further_apart_than_32_bits_count(self) -> None:
        x = full(2, 2**31 + 64, value=0.0, dtype=torch.float16)[:, :100]
        x[1, 7] = 5.0
        out = full(2, 2**31 + 64, value=7.0, dtype=torch.float16)[:, 64:164]
        ops.softmax(x, out=out)
        assert torch.allclose(out.float(), x.float().softmax(1), atol=1e-3)


class TestTranspose:
    @pytest.mark.parametrize("size", [(2**31 - 256, 1), (1, MAX_SIZE), (2, 2**30 + 1), (2**30 + 3, 2)])
    def test_the_most_rows_and_columns(self, size: tuple[int, int]) -> None:
        x = torch.empty(size, dtype=torch.int8, device="cuda").random_(-128, 128)
        assert torch.equal(ops.transpose(x), x.t())

    def test_rows_that_are_further_apart_than_32_bits_count(self) -> None:
        x = torch.empty(3, 2**31 + 64, dtype=torch.int8, device="cuda").random_(-128, 128)[:, :70]
        out = torch.zeros(70, 2**28 + 1, dtype=torch.int8, device="cuda")[:, :3]
        assert torch.equal(ops.transpose(x, out=out), x.t())


class TestGemm:
    def test_the_longest_sum(self) -> None:
        a, b = full(1, TALLEST, value=0.0), full(TALLEST, 1)
        a[0, [0, 1, 2**30, TALLEST - 1]] = torch.tensor([1.0, 2.0, 4.0, 8.0], dtype=a.dtype, device="cuda")
        b[TALLEST - 1] = 2.0
        assert float(ops.gemm(a, b)) == 23.0

    def test_the_most_rows(self) -> None:
        a, b = full(TALLEST, 8), full(8, 1)
        a[-1000:] = 2.0
        a[2**30 : 2**30 + 1000] = 3.0
        self.check(ops.gemm(a, b)[:, 0])

    def test_the_most_columns(self) -> None:
        a, b = full(1, 8), full(TALLEST, 8)
        b[-1000:] = 2.0
        b[2**30 : 2**30 + 1000] = 3.0
        self.check(ops.gemm(a, b.t())[0])

    def check(self, out: Tensor) -> None:
        """Check sums of 8 ones, with a thousand of 8 twos and of 8 threes at known places."""
        assert bool((out[-1000:] == 16).all())
        assert bool((out[2**30 : 2**30 + 1000] == 24).all())
        assert int((out == 8).sum()) == len(out) - 2000

    @pytest.mark.parametrize("columns", [LONGEST_ROW, LONGEST_ROW + 1])
    @pytest.mark.parametrize(("rows", "depth"), [(1, 8), (1, 70), (64, 40)])
    def test_long_rows_of_b(self, rows: int, depth: int, columns: int) -> None:
        """The longest that the kernel reads as they lie, and longer ones, which are copied."""
        a, b = full(rows, depth), full(depth, columns)
        b[:, -5:] = 2.0
        b[depth - 1, :5] = 3.0
        out = ops.gemm(a, b)
        assert bool((out[:, -5:] == 2 * depth).all())
        assert bool((out[:, :5] == depth + 2).all())
        assert bool((out[:, 5:-5] == depth).all())

    def test_fp32_rows(self) -> None:
        a, b = full(64, 40, dtype=torch.float32), full(40, 2**25, dtype=torch.float32)
        b[:, -5:] = 2.0
        out = ops.gemm(a, b)
        assert bool((out[:, :-5] == 40).all())
        assert bool((out[:, -5:] == 80).all())


class TestScaledGemm:
    def test_the_longest_sum(self) -> None:
        one = full(dtype=torch.float32)
        a, b = torch.zeros_like(ones(1, DEEPEST)), ones(1, DEEPEST)
        places = torch.tensor([0, 1, 2**30, DEEPEST - 1], device="cuda")
        a.view(torch.uint8)[0, places] = torch.tensor([1.0, 2.0, 4.0, 8.0], device="cuda").to(F8).view(torch.uint8)
        assert float(ops.scaled_gemm(a, b.t(), one, one)) == 15.0

    def test_the_most_columns_with_scales_of_blocks(self) -> None:
        a, b = ones(1, 16), ones(DEEPEST, 16)
        scale_a, scale_b = full(1, 1, dtype=torch.float32), full(1, DEEPEST // 128, dtype=torch.float32)
        scale_b[0, -1] = 2.0
        scale_b[0, 2**23] = 3.0
        out = ops.scaled_gemm(a, b.t(), scale_a, scale_b)[0]
        assert bool((out[-128:] == 32).all())
        assert bool((out[2**30 : 2**30 + 128] == 48).all())
        assert int((out == 16).sum()) == DEEPEST - 256


def bf16(*size: int) -> Tensor:
    return torch.empty(size, dtype=torch.bfloat16, device="cuda")


def fp8(*size: int) -> Tensor:
    return torch.empty(size, dtype=F8, device="cuda")


SMALLEST_REFUSED: dict[str, Callable[[], object]] = {
    "softmax columns": lambda: ops.softmax(bf16(1, 2**31 - 2**18 + 1)),
    "softmax, the largest": lambda: ops.softmax(bf16(1, MAX_SIZE)),
    "softmax, more than 32 bits": lambda: ops.softmax(bf16(1, 2**31)),
    "transpose rows": lambda: ops.transpose(fp8(2**31 - 255, 1)),
    "transpose, the largest": lambda: ops.transpose(fp8(MAX_SIZE, 1)),
    "transpose, more than 32 bits": lambda: ops.transpose(fp8(1, 2**31)),
    "gemm depth": lambda: ops.gemm(bf16(1, TALLEST + 1), bf16(TALLEST + 1, 1)),
    "gemm, the largest": lambda: ops.gemm(bf16(1, MAX_SIZE), bf16(MAX_SIZE, 1)),
    "gemm rows": lambda: ops.gemm(bf16(TALLEST + 1, 2), bf16(2, 1)),
    "gemm, one long row": lambda: ops.gemm(bf16(1, 1), bf16(1, LONGEST_ROW + 1)),
    "scaled_gemm depth": lambda: ops.scaled_gemm(
        fp8(1, DEEPEST + 1), fp8(1, DEEPEST + 1).t(), *full(2, 1, dtype=torch.float32)
    ),
}


@pytest.mark.parametrize("case", SMALLEST_REFUSED)
def test_a_larger_size_is_refused_and_the_card_is_as_before(case: str) -> None:
    with pytest.raises(UsageError, match=r"is at most \d+|from 1 to 2147483647") as refused:
        SMALLEST_REFUSED[case]()
    assert "\n" not in str(refused.value)
    torch.cuda.synchronize()
    x = torch.randn(64, 64, device="cuda")
    assert torch.allclose(ops.softmax(x), x.softmax(1), atol=1e-6)
