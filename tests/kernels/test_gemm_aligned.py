"""Products whose rows are not aligned to 16 bytes: operands are copied to rows that are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from compiled_gemm import of_variant, problem
from helpers import A100, B200, H200, wrongness

from tuner.kernels.gemm import KERNEL
from tuner.kernels.gemm.estimate import estimate
from tuner.kernels.gemm.space import DESCRIBED, padded, unaligned
from tuner.kernels.shared.aligned_rows import aligned_operand, copied
from tuner.measure.stand_ins import StandIn
from tuner.search.space import feasible

PERSISTENT = {"VARIANT": "persistent", "BLOCK_M": 32, "BLOCK_N": 64, "BLOCK_K": 64, "GROUP_M": 1,
              "num_warps": 4, "num_stages": 3, "ALIGN": True}  # fmt: skip


@pytest.mark.parametrize(
    "values",
    [
        {"M": 67, "N": 131, "K": 77, "layout": "nn", "bias": True, "activation": "gelu"},
        {"M": 67, "N": 131, "K": 77, "layout": "nt", "bias": True},
        {"M": 67, "N": 131, "K": 77, "layout": "tn", "activation": "silu"},
        {"M": 67, "N": 131, "K": 77, "layout": "tt"},
        {"M": 67, "N": 131, "K": 77, "layout": "tt", "dtype": "fp32", "precision": "tf32"},
        {"M": 82, "N": 64, "K": 72, "layout": "tn"},  # only a
        {"M": 40, "N": 65, "K": 64, "layout": "nt"},  # only out
    ],
)
def test_products_of_copied_operands_are_right(values: dict[str, object]) -> None:
    asked = problem(**{"dtype": "fp16", **values})
    error, allowed = wrongness(KERNEL, asked, KERNEL.signature.config(PERSISTENT), "cpu", B200.limits)
    assert error <= allowed


def launches(asked: Any, config: Any, **strides: tuple[int, int]) -> list[str]:
    """Return the names of the functions that are launched with tensors of these strides."""
    full = KERNEL.signature.config(config)
    operands = dict(KERNEL.tensors(asked, full, B200.limits))
    operands |= {name: replace(operands[name], strides=of) for name, of in strides.items()}
    stand_ins = {name: StandIn(operand) for name, operand in operands.items()}
    return [launch.fn.fn.__name__ for launch in KERNEL.launch(asked, full, stand_ins)]


def test_only_what_is_not_aligned_is_copied() -> None:
    odd = problem(M=67, N=131, K=77)
    assert unaligned(odd) == ("a", "b", "out")
    assert launches(odd, PERSISTENT) == ["copy_rows", "gemm_persistent", "copy_rows"]
    assert launches(odd, PERSISTENT, out=(136, 1)) == ["copy_rows", "gemm_persistent"]
    padded = {"a": (80, 1), "b": (136, 1), "out": (136, 1)}
    assert launches(odd, PERSISTENT, **padded) == ["gemm_persistent"]
    tn = problem(M=82, N=64, K=72, layout="tn")
    assert unaligned(tn) == ("a",)
    assert launches(tn, PERSISTENT) == ["copy_rows", "gemm_persistent"]
    assert launches(tn, PERSISTENT, b=(65, 1)) == ["gemm_tiles"]  # has no room in the workspace


@pytest.mark.parametrize("is_t", [False, True])
@pytest.mark.parametrize(("rows", "columns", "stride", "step"), [
    (5, 8447, 8447, 1), (300, 3, 3, 1), (67, 82, 82, 1), (33, 20, 68, 1), (70, 41, 90, 2), (1, 2047, 2049, 1),
])  # fmt: skip
def test_each_element_is_copied_there_and_back(rows: int, columns: int, stride: int, step: int, is_t: bool) -> None:
    def loose(fill: float) -> torch.Tensor:
        memory = torch.full((rows * stride,), fill, dtype=torch.float16)
        matrix = memory.as_strided((rows, columns), (stride, step))
        return matrix.t() if is_t else matrix

    a, other = loose(-1), loose(-1)
    a.copy_(torch.arange(rows * columns).remainder(2048).reshape(a.shape))
    operands = [aligned_operand(rows, columns, "fp16", is_t), aligned_operand(7, 9, "fp16")]
    work, work_b = (torch.empty_strided(o.shape, o.element_strides, dtype=torch.float16).fill_(-1) for o in operands)
    b = torch.arange(63).to(torch.float16).reshape(7, 9)
    copied([(a, work, is_t), (b, work_b, False)])()
    assert torch.equal(work[: a.shape[0], : a.shape[1]], a)
    assert torch.equal(work_b[:7, :9], b)
    copied([(other, work, is_t)], back=True)()
    assert torch.equal(other, a)
    assert int((other.as_strided((rows * stride,), (1,)) != -1).sum()) == rows * columns  # nothing beside it


def test_only_unaligned_problems_have_the_choice_and_only_through_descriptors() -> None:
    aligned, odd = problem(M=512), problem(M=511)
    assert not any(config["ALIGN"] for config in feasible(KERNEL, aligned, H200.limits))
    assert not any(config["ALIGN"] for config in feasible(KERNEL, odd, A100.limits))
    for config in feasible(KERNEL, odd, H200.limits):
        assert config["ALIGN"] is (config["VARIANT"] in DESCRIBED)
    for variant in DESCRIBED[:3]:
        count = len(of_variant(variant, odd, H200.limits))
        assert count == len(of_variant(variant, aligned, H200.limits)) > 0


@pytest.mark.parametrize(
    "values",
    [
        {"M": 82, "N": 4608, "K": 8448, "layout": "tn"},
        {"M": 22208, "N": 151, "K": 604, "layout": "tn"},
        {"M": 4097},
        {"M": 1311, "N": 4352, "K": 2049},
        {"M": 40, "N": 3001, "K": 2049, "layout": "nt"},
    ],
)
def test_the_default_of_large_unaligned_products_is_that_of_aligned_ones(values: dict[str, object]) -> None:
    asked = problem(**values)
    default = KERNEL.default_config(asked, H200.limits)
    assert default["ALIGN"]
    assert KERNEL.valid(asked, default, H200.limits)
    assert {**default, "ALIGN": False} == {**KERNEL.default(padded(asked), H200.limits)}
    cost = estimate(asked, default, H200.limits)
    assert 0 < cost.parts["copies"] < cost.us
    assert cost.us > estimate(padded(asked), {**default, "ALIGN": False}, H200.limits).us


@pytest.mark.parametrize("values", [{"M": 33}, {"M": 1, "N": 4097, "K": 4095}, {"M": 4097, "dtype": "fp32"}])
def test_small_products_and_those_without_tensor_cores_are_computed_as_they_lie(values: dict[str, object]) -> None:
    assert not KERNEL.default_config(problem(**values), H200.limits)["ALIGN"]
