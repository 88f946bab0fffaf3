"""Memory of tensors: outputs that overlap inputs, negative and conjugate views, and values that are no dense tensors.

Real ops on the CPU: `cpu_launches` computes in the memory at the addresses that a launch is given.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest
import torch
from cpu_launches import on_cpu
from torch import Tensor
from torch.autograd import forward_ad
from torch.testing._internal.two_tensor import TwoTensor

from tuner import ops
from tuner.errors import UsageError
from tuner.kernels import calling
from tuner.kernels.overlap import shares_memory
from tuner.launching.calls import PreparedLaunches

F8 = torch.float8_e4m3fn


@pytest.fixture(autouse=True)
def launches() -> Iterator[PreparedLaunches]:
    with on_cpu() as installed:
        yield installed


def draw(*size: int) -> Tensor:
    return torch.randn(size)


def right(result: Tensor, reference: Tensor) -> bool:
    return bool(torch.allclose(result.double(), reference.double(), atol=1e-4))


class TestSharesMemory:
    def places(self, view: Tensor) -> set[int]:
        """Return the elements of the storage that a view has."""
        numbers = torch.arange(view.untyped_storage().nbytes() // view.element_size())
        return set(numbers.as_strided(view.shape, view.stride(), view.storage_offset()).flatten().tolist())

    @pytest.mark.parametrize("steps", [(1, 1), (2, 1), (1, 2), (3, 2)])
    def test_it_is_exact_for_blocks_of_one_matrix_with_the_same_steps(self, steps: tuple[int, int]) -> None:
        dice, matrix = random.Random(str(steps)), torch.zeros(24, 24)

        def block() -> Tensor:
            rows, columns = (slice(dice.randrange(22), dice.randrange(25), step) for step in steps)
            return matrix[rows, columns]

        for _ in range(1000):
            x, y = block(), block()
            assert shares_memory(x, y) == bool(self.places(x) & self.places(y))

    def test_it_misses_no_overlap_of_any_strides(self) -> None:
        dice, memory = random.Random(0), torch.zeros(600)

        def view() -> Tensor:
            return memory.as_strided(
                (dice.randrange(9), dice.randrange(9)),
                (dice.randrange(40), dice.randrange(12)),
                dice.randrange(200),
            )

        found = 0
        for _ in range(3000):
            x, y = view(), view()
            overlap = bool(self.places(x) & self.places(y))
            assert shares_memory(x, y) or not overlap
            found += overlap
        assert found > 500


OVERLAPPING: dict[str, Callable[[Tensor], object]] = {
    "softmax": lambda m: ops.softmax(m[:8, :16], out=m[1:9, :16]),
    "softmax, a byte run": lambda m: ops.softmax(m.view(-1)[:256].view(16, 16), out=m.view(-1)[8:264].view(16, 16)),
    "softmax, other strides": lambda m: ops.softmax(m[:8, :16], out=m.view(-1)[:128].view(8, 16)),
    "transpose": lambda m: ops.transpose(m[:8, :16], out=m[4:20, 4:12]),
    "transpose, before": lambda m: ops.transpose(m[4:20, 4:12], out=m[:8, :16]),
    "gemm, a": lambda m: ops.gemm(m[:8, :16], draw(16, 16), out=m[4:12, :16]),
    "gemm, b": lambda m: ops.gemm(draw(8, 16), m[:16, :16], out=m[8:16, 8:24]),
    "gemm, bias": lambda m: ops.gemm(draw(8, 16), draw(16, 16), out=m[:8, :16], bias=m[7, :16]),
    "scaled_gemm, scale": lambda m: ops.scaled_gemm(
        draw(8, 16).to(F8), draw(16, 16).to(F8).t(), m[7, 7], draw(1), out=m.view(torch.bfloat16)[:8, :16]
    ),
}


class TestOverlap:
    @pytest.mark.parametrize("case", OVERLAPPING)
    def test_an_out_that_overlaps_an_input_at_an_offset_is_refused(self, case: str) -> None:
        for _ in range(2):
            with pytest.raises(UsageError, match="cannot write over what it reads, and out shares memory with"):
                OVERLAPPING[case](draw(32, 32))

    def test_it_is_refused_after_a_call_on_such_tensors_that_was_right(self) -> None:
        memory = draw(2, 64, 64)
        x, out = memory
        assert ops.transpose(x, out=out) is out
        shifted = memory.view(-1)[16 : 16 + 4096].view(64, 64)
        with pytest.raises(UsageError, match="out shares memory with x"):
            ops.transpose(x, out=shifted)
        with pytest.raises(UsageError, match="out shares memory with x"):
            ops.transpose(shifted, out=x)
        assert right(ops.transpose(x, out=out), x.t())

    def test_tensors_one_behind_the_other_share_nothing(self) -> None:
        memory = draw(3, 64, 64)
        for x, out in ((memory[0], memory[1]), (memory[1], memory[0]), (memory[2], memory[1])):
            assert right(ops.transpose(x, out=out), x.t())
        assert len(calling.prepared) == 1

    def test_blocks_of_one_matrix_are_prepared_once_for_each_distance(self, launches: PreparedLaunches) -> None:
        matrix = draw(64, 96)
        left, middle, right_ = matrix[:, :32], matrix[:, 32:64], matrix[:, 64:]
        for _ in range(3):
            for x, out in ((left, middle), (middle, right_), (left, right_)):
                expected = x.softmax(1)
                assert right(ops.softmax(x, out=out), expected)
        assert len(calling.prepared) == 3  # without distances, and two distances
        even, odd = matrix[::2], matrix[1::2]
        expected = even.softmax(1)
        assert right(ops.softmax(even, out=odd), expected)
        with pytest.raises(UsageError, match="out shares memory with x"):
            ops.softmax(even, out=matrix[:32])

    def test_softmax_works_in_place_on_the_very_same_elements(self) -> None:
        x = draw(64, 96)[:, :64]
        for _ in range(2):
            expected = x.softmax(1)
            assert right(ops.softmax(x, out=x), expected)
        row = draw(1, 8)
        expected = row.softmax(1)
        assert right(ops.softmax(row, out=row.as_strided((1, 8), (99, 1))), expected)

    def test_an_empty_out_or_input_overlaps_nothing(self) -> None:
        x = draw(8, 8)
        assert ops.transpose(x[:0], out=x[:, :0]).shape == (8, 0)
        out = torch.ones(8, 8)
        assert bool((ops.gemm(out[:, :0], out[:0], out=out) == 0).all())


def negative(x: Tensor) -> Tensor:
    return torch._neg_view(x)


class TestNegativeAndConjugate:
    """A view with the negative bit has the address of numbers with the other sign."""

    def test_softmax(self) -> None:
        x, out = draw(8, 16), torch.zeros(8, 16)
        assert right(ops.softmax(x), x.softmax(1))
        for _ in range(2):
            assert right(ops.softmax(negative(x)), (-x).softmax(1))
            assert right(ops.softmax(x, out=negative(out)), x.softmax(1))
            assert right(-out, x.softmax(1))
        imaginary = torch.complex(draw(8, 16), draw(8, 16)).conj().imag
        assert imaginary.is_neg()
        assert right(ops.softmax(imaginary), imaginary.resolve_neg().softmax(1))

    def test_in_place(self) -> None:
        x = negative(draw(8, 16))
        expected = x.resolve_neg().softmax(1)
        assert right(ops.softmax(x, out=x), expected)

    def test_transpose(self) -> None:
        x = draw(8, 16)
        assert torch.equal(ops.transpose(x), x.t())
        assert torch.equal(ops.transpose(negative(x)), -x.t())
        out = negative(torch.zeros(16, 8))
        assert torch.equal(ops.transpose(x, out=out), x.t())
        assert torch.equal(out, x.t())
        z = torch.complex(draw(8, 16), draw(8, 16))
        assert torch.equal(ops.transpose(z), z.t())
        assert torch.equal(ops.transpose(z.conj()), z.conj().t())
        assert torch.equal(ops.transpose(z, out=torch.empty(16, 8, dtype=z.dtype).conj()), z.t())

    def test_gemm(self) -> None:
        a, b, bias = draw(8, 16), draw(16, 4), draw(4)
        assert right(ops.gemm(a, b, bias=bias), a @ b + bias)
        for x, y, z in ((negative(a), b, bias), (a, negative(b), bias), (a, b, negative(bias))):
            assert right(ops.gemm(x, y, bias=z), x.resolve_neg() @ y.resolve_neg() + z.resolve_neg())
        out = negative(torch.zeros(8, 4))
        assert right(ops.gemm(a, b, out=out, bias=bias), a @ b + bias)

    def test_scaled_gemm(self) -> None:
        a, b, one, two = draw(8, 16).to(F8), draw(4, 16).to(F8).t(), torch.ones(1), torch.full((), 2.0)
        expected = (a.float() @ b.float()) * 2
        assert right(ops.scaled_gemm(a, b, one, two), expected.bfloat16())
        assert right(ops.scaled_gemm(a, b, negative(one), two), -expected.bfloat16())
        assert right(ops.scaled_gemm(a, b, one, negative(two)), -expected.bfloat16())
        out = negative(torch.zeros(8, 4, dtype=torch.bfloat16))
        assert right(ops.scaled_gemm(a, b, one, two, out), expected.bfloat16())

    def test_a_dtype_that_torch_does_not_negate_is_refused(self) -> None:
        a, one = torch.ones(4, 4).to(F8), torch.ones(())
        calls: list[Callable[[], object]] = [
            lambda: ops.scaled_gemm(negative(a), a.t(), one, one),
            lambda: ops.transpose(negative(a)),
            lambda: ops.transpose(a, out=negative(a.clone())),
            lambda: ops.transpose(negative(a == a)),
        ]
        for call in calls:
            with pytest.raises(UsageError, match=r"torch negates no torch\.\w+, and (a|x|out) is a negative view"):
                call()


X = torch.ones(4, 4)
ODD: dict[str, tuple[Callable[[], object], str]] = {
    "list": (lambda: [[1.0]], "is list; convert it with torch.as_tensor()"),
    "number": (lambda: 2.0, "is float; convert it with torch.as_tensor()"),
    "sparse": (X.to_sparse, "takes dense tensors, and {} is sparse_coo; make it one with .to_dense()"),
    "mkldnn": (X.to_mkldnn, "takes dense tensors, and {} is mkldnn; make it one with .to_dense()"),
    "nested": (lambda: torch.nested.nested_tensor([X, X]), "takes dense tensors, and {} is nested; make it one"),
    "jagged": (
        lambda: torch.nested.nested_tensor([X, X], layout=torch.jagged),
        "takes dense tensors, and {} is nested; make it one",
    ),
    "quantized": (
        lambda: torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),
        "takes plain numbers, and {} is quantized; convert it with .dequantize()",
    ),
    "meta": (lambda: X.to("meta"), "meta"),
    "complex": (lambda: X.to(torch.complex64), "torch.complex64"),
}
ANY_TEXT = "meta", "complex"
"""Kinds that several rules refuse."""

CALLS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax x": lambda x: ops.softmax(x),
    "softmax out": lambda x: ops.softmax(X, out=x),
    "transpose x": lambda x: ops.transpose(x),
    "gemm a": lambda x: ops.gemm(x, X),
    "gemm b": lambda x: ops.gemm(X, x),
    "gemm bias": lambda x: ops.gemm(X, X, bias=x),
    "scaled_gemm scale_b": lambda x: ops.scaled_gemm(X.to(F8), X.to(F8), X[0, 0], x),
}


@pytest.mark.filterwarnings("ignore:.*(quantiz|nested|Sparse).*")
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.parametrize("call", CALLS)
def test_what_is_no_dense_tensor_of_numbers_is_refused_in_one_line(call: str, kind: str) -> None:
    if kind == "complex" and call == "transpose x":
        pytest.skip("elements that only move may be complex")
    make, message = ODD[kind]
    value: object = make()
    for _ in range(2):
        with pytest.raises(UsageError) as refused:
            CALLS[call](value)
        text, operand = str(refused.value), call.split()[-1]
        assert "\n" not in text
        assert ";" in text
        assert (message if kind in ANY_TEXT else message.format(operand)) in text


def test_inside_a_transform_of_torch_func_the_op_is_refused() -> None:
    with pytest.raises(UsageError, match=r"softmax is not known to torch\.func, and x is inside one of its transforms"):
        torch.vmap(lambda x: ops.softmax(x))(torch.ones(2, 3, 3))
    with pytest.raises(UsageError, match=r"no backward pass|not known to torch\.func"):
        torch.func.grad(lambda x: ops.softmax(x).sum())(X)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")  # by make_dual
def test_a_dual_tensor_is_refused_since_its_tangent_would_be_lost() -> None:
    ops.softmax(X)
    with forward_ad.dual_level():
        ops.softmax(X)
        dual = forward_ad.make_dual(X, X)
        with pytest.raises(UsageError, match=r"^softmax has no forward derivative, and x is a dual tensor of torch"):
            ops.softmax(dual)
        with pytest.raises(UsageError, match=r"^gemm has no forward derivative, and bias is a dual tensor"):
            ops.gemm(X, X, bias=dual[0])
        with pytest.raises(UsageError, match=r"^transpose has no forward derivative, and out is a dual tensor"):
            ops.transpose(X, out=dual)


def test_a_subclass_that_wraps_tensors_runs_on_those_inside() -> None:
    x = draw(4, 4)
    result = ops.softmax(TwoTensor(x, 2 * x), out=TwoTensor(torch.zeros(4, 4), torch.zeros(4, 4)))
    assert right(result.a, x.softmax(1))
    assert right(result.b, (2 * x).softmax(1))


def test_expanded_and_unaligned_views_and_numbers_without_dims_are_taken() -> None:
    x, flat = draw(1, 8), draw(65)
    assert right(ops.softmax(x.expand(4, 8)), x.expand(4, 8).softmax(1))
    assert right(ops.gemm(x.expand(4, 8), flat[1:].view(8, 8)), x.expand(4, 8) @ flat[1:].view(8, 8))
    assert right(ops.transpose(x[:, :1].expand(4, 4)), x[:, :1].expand(4, 4).t())
    with pytest.raises(UsageError, match=r"softmax takes matrices, and x has shape \(\)"):
        ops.softmax(flat[0])
