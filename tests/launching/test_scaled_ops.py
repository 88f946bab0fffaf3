"""`ops.scaled_gemm` without a GPU: refused calls, tracing by torch, and the problem of a call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tuner import ops
from tuner.errors import UsageError
from tuner.launching import calls

F8 = torch.float8_e4m3fn
A, B = torch.empty(3, 260, dtype=F8), torch.empty(144, 260, dtype=F8).t()
ONE = torch.ones(())
BLOCKS = torch.ones(3, 3), torch.ones(3, 2)


def multiplied(a: Tensor = A, b: Tensor = B, scale_a: Tensor = ONE, scale_b: Tensor = ONE, **more: Any) -> Tensor:
    return ops.scaled_gemm(a, b, scale_a, scale_b, **more)


REFUSED: list[tuple[Callable[[], object], str]] = [
    (multiplied, "scaled_gemm runs on a GPU, and its tensors are on cpu; move them with .cuda()"),
    (lambda: multiplied(A[0]), "scaled_gemm takes matrices, and a has shape (260,)"),
    (lambda: multiplied(b=B.t()), "scaled_gemm multiplies a (M, K) by b (K, N), not (3, 260) by (144, 260)"),
    (lambda: multiplied(A.half()), "scaled_gemm takes tensors of one dtype, and a is torch.float16 but b is torch.f"),
    (lambda: multiplied(A.half(), B.half()), "scaled_gemm takes fp8e4m3, and a is torch.float16; convert it"),
    (lambda: multiplied(scale_a=ONE.half()), "scaled_gemm's scale_a is fp32, not torch.float16; convert it"),
    (lambda: multiplied(out_dtype=torch.float32), "scaled_gemm's out is bf16 or fp16, not torch.float32; convert it"),
    (lambda: multiplied(accumulate="slow"), "scaled_gemm's accumulate is one of fp32, fast, not 'slow'"),
    (
        lambda: multiplied(scale_a=BLOCKS[0]),
        "scaled_gemm takes one scale for a and one for b, or those of blocks of 128, "
        "and scale_b of shape (3, 2) here, not (); it can be transposed with .t()",
    ),
    (lambda: multiplied(scale_a=BLOCKS[0], scale_b=BLOCKS[1].t()), "and scale_b of shape (3, 2) here, not (2, 3)"),
    (
        lambda: multiplied(scale_b=ONE.to("meta")),
        "on one device, and a is on cpu but scale_b is on meta; move one of them",
    ),
    (lambda: multiplied(out=torch.empty(144, 3).half()), "scaled_gemm writes to an out of shape (3, 144) here"),
    (lambda: multiplied(scale_a=ONE.clone().requires_grad_()), "tuner.ops has no backward pass, and a tensor requires"),
]


@pytest.mark.parametrize(("call", "message"), REFUSED, ids=[message[:60] for _, message in REFUSED])
def test_a_call_that_does_not_fit_is_refused_with_the_rule_the_value_and_the_way_out(
    call: Callable[[], object], message: str
) -> None:
    with pytest.raises(UsageError) as refused:
        call()
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_results_have_shape_dtype_and_device() -> None:
    with FakeTensorMode():
        a, b = (torch.empty(size, dtype=F8, device="cuda:1") for size in ((3, 64), (64, 7)))
        one = torch.ones(1, device="cuda:1")
        results = [ops.scaled_gemm(a, b, one, one), ops.scaled_gemm(a, b, one, one, out_dtype=torch.float16)]
        with pytest.raises(UsageError, match="scaled_gemm multiplies"):
            ops.scaled_gemm(a, a, one, one)
    assert [(tuple(x.shape), x.dtype, str(x.device)) for x in results] == [
        ((3, 7), torch.bfloat16, "cuda:1"),
        ((3, 7), torch.float16, "cuda:1"),
    ]


def test_a_model_is_one_graph_with_the_op_in_it() -> None:
    found: list[str] = []

    def backend(module: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        found.extend(str(node.target) for node in module.graph.nodes if node.op == "call_function")
        return module.forward  # type: ignore[no-any-return]

    inputs = (x.to("meta") for x in (A, B, ONE, ONE))
    torch.compile(lambda a, b, x, y: ops.scaled_gemm(a, b, x, y) + 1, backend=backend, fullgraph=True)(*inputs)
    assert "tuner.scaled_gemm.default" in found


@pytest.mark.parametrize(
    ("scales", "dtype", "accumulate", "stated"),
    [
        ((ONE, ONE[None]), torch.bfloat16, "fp32", ""),
        ((ONE[None, None], ONE), torch.float16, "fast", " accumulate=fast out_dtype=fp16"),
        (BLOCKS, torch.bfloat16, "fp32", " scales=block"),
    ],
)
def test_a_call_is_a_problem(scales: tuple[Tensor, Tensor], dtype: torch.dtype, accumulate: str, stated: str) -> None:
    tensors = {"a": A, "b": B, "scale_a": scales[0], "scale_b": scales[1], "out": torch.empty(3, 144, dtype=dtype)}
    call = calls.load("scaled_gemm")
    call.check(tensors, accumulate=accumulate)
    text = call.problem(tensors, accumulate=accumulate).text
    assert text == f"scaled_gemm M=3 N=144 K=260 dtype=fp8e4m3{stated}"


def test_a_factor_with_gaps_along_k_is_copied_into_the_layout_of_the_kernel() -> None:
    call = calls.load("scaled_gemm")
    for name, accepted, refused in (("a", A, A[:, ::2]), ("b", B, B.t().contiguous().t().contiguous())):
        assert call.accepts(name, accepted)
        assert not call.accepts(name, refused)
        copy = call.laid_out(name, refused)
        assert call.accepts(name, copy)
        assert torch.equal(copy.view(torch.int8), refused.view(torch.int8))
    assert call.accepts("scale_b", BLOCKS[1].t())
