"""Memory of tensors, on a real card: overlaps, negative views, copies that Inductor removes, a damaged cache."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from fresh_client import forget
from torch import Tensor

from tuner import ops
from tuner.errors import UsageError
from tuner.launching.calls import PREPARED

pytestmark = pytest.mark.gpu
F8, BF16 = torch.float8_e4m3fn, torch.bfloat16
FIRST_CAPTURE_WARNS = pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning")


@pytest.fixture(autouse=True)
def nothing_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    forget()
    PREPARED.prepared.clear()
    yield
    forget()
    PREPARED.prepared.clear()


def draw(*size: int) -> Tensor:
    return torch.randn(*size, device="cuda")


def right(result: Tensor, reference: Tensor) -> bool:
    return bool(torch.allclose(result.double(), reference.double(), rtol=2**-7, atol=1e-4))


OVERLAPPING: dict[str, Callable[[Tensor], object]] = {
    "softmax": lambda m: ops.softmax(m[:8, :16], out=m[1:9, :16]),
    "softmax, other strides": lambda m: ops.softmax(m[:8, :16], out=m.view(-1)[:128].view(8, 16)),
    "transpose": lambda m: ops.transpose(m[:8, :16], out=m[4:20, 4:12]),
    "gemm a": lambda m: ops.gemm(m[:8, :16], draw(16, 16), out=m[4:12, :16]),
    "gemm b": lambda m: ops.gemm(draw(8, 16), m[:16, :16], out=m[8:16, 8:24]),
    "gemm bias": lambda m: ops.gemm(draw(8, 16), draw(16, 16), out=m[:8, :16], bias=m[7, :16]),
    "scaled_gemm scale": lambda m: ops.scaled_gemm(
        draw(8, 16).to(F8), draw(16, 16).to(F8).t(), m[7, 7], draw(1), out=m.view(BF16)[:8, :16]
    ),
}


@pytest.mark.parametrize("case", OVERLAPPING)
def test_an_out_that_overlaps_an_input_at_an_offset_is_refused(case: str) -> None:
    for _ in range(2):
        with pytest.raises(UsageError, match="cannot write over what it reads, and out shares memory with"):
            OVERLAPPING[case](draw(32, 32))


def test_blocks_of_one_matrix_that_share_nothing_are_taken() -> None:
    for _ in range(3):
        matrix = draw(64, 96)
        left, middle, right_ = matrix[:, :32], matrix[:, 32:64], matrix[:, 64:]
        for x, out in ((left, middle), (middle, right_), (left, right_)):
            expected = x.double().softmax(1)
            assert right(ops.softmax(x, out=out), expected)
        expected = matrix[::2].double().softmax(1)
        assert right(ops.softmax(matrix[::2], out=matrix[1::2]), expected)


def test_negative_and_conjugate_views() -> None:
    x, y = draw(64, 32), draw(32, 64)
    for first in (torch._neg_view(x), torch.complex(y.t(), x).conj().imag):
        assert first.is_neg()
        for _ in range(2):
            assert right(ops.softmax(x), x.softmax(1))
            assert right(ops.softmax(first), (-x).softmax(1))
            assert right(ops.transpose(first), -x.t())
            assert right(ops.gemm(first, y), -(x.double() @ y.double()))
            assert right(ops.gemm(y, first), -(y.double() @ x.double()))
            assert right(ops.softmax(x, out=first.clone(memory_format=torch.preserve_format)), x.softmax(1))
    out = torch.zeros(64, 32, device="cuda")
    ops.softmax(x, out=torch._neg_view(out))
    assert right(-out, x.softmax(1))
    z = torch.complex(x, x)
    assert torch.equal(ops.transpose(z.conj()), z.conj().t())
    a, b, one = x.to(F8), x.to(F8).t(), torch.ones((), device="cuda")
    assert torch.equal(ops.scaled_gemm(a, b, torch._neg_view(one), one.clone()), -ops.scaled_gemm(a, b, one, one))


COPIES: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], Callable[[Tensor, Tensor], Tensor]]] = {
    "softmax": (lambda x, y: ops.softmax(x.clone(), out=x), lambda x, y: x.softmax(1)),
    "softmax, shifted": (lambda x, y: ops.softmax(x[1:].clone(), out=x[:-1]), lambda x, y: x[1:].softmax(1)),
    "transpose": (lambda x, y: ops.transpose(x.clone(), out=x), lambda x, y: x.t()),
    "gemm": (lambda x, y: ops.gemm(x.clone(), y, out=x, bias=x[0].clone()), lambda x, y: x @ y + x[0]),
}


@FIRST_CAPTURE_WARNS
@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("case", COPIES)
def test_a_copy_of_what_is_overwritten_is_read_as_it_was_in_compiled_code(case: str, mode: str) -> None:
    torch._dynamo.reset()
    call, expected = COPIES[case]
    compiled = torch.compile(call, fullgraph=True, mode=mode)
    for _ in range(4):
        x, y = draw(256, 256), draw(256, 256) / 16
        reference = expected(x.clone(), y)
        assert right(compiled(x, y).clone(), reference)
        assert right(x[: len(reference)], reference)


COMPUTES = """
import sys, torch
from pathlib import Path
from tuner import ops
x = torch.randn(64, 1000, device="cuda")
assert torch.allclose(ops.softmax(x), x.softmax(1), atol=1e-6)
"""


@pytest.mark.parametrize("pattern", ["softmax_one_pass.cubin", "softmax_one_pass.json"])
def test_a_damaged_kernel_in_the_cache_is_compiled_again_by_the_first_call(tmp_path: Path, pattern: str) -> None:
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-P", "-c", COMPUTES]
    subprocess.run(command, env=environment, check=True)
    (path,) = (tmp_path / "cache").rglob(pattern)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    assert "is compiled again" in done.stderr
    assert len(path.read_bytes()) > len(whole) // 2
