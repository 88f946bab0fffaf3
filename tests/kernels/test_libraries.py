"""The libraries that ops are compared with: what their functions are given, and which problems they do not take.

Stand-ins have the signatures of liger-kernel 0.8.5 and flashinfer 0.7.4, and compute with torch.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.nn import functional

from tuner import catalog
from tuner.kernels.spec import Problem
from tuner.measure import check, tensors
from tuner.measure.vendors import run_vendor, vendor_function

SIZES = {"M": 5, "N": 129, "B": 2}


class RMSNorm:
    @staticmethod
    def apply(X: Any, W: Any, eps: float, offset: float, casting_mode: str, in_place: bool) -> Any:
        assert (offset, casting_mode, in_place) == (0.0, "llama", False)
        return functional.rms_norm(X, X.shape[1:], W, eps)


class FusedAddRMSNorm:
    @staticmethod
    def apply(X: Any, R: Any, W: Any, eps: float, *settings: object) -> Any:
        return RMSNorm.apply(X + R, W, eps, *settings), X + R  # type: ignore[arg-type]


class LayerNorm:
    @staticmethod
    def apply(X: Any, W: Any, B: Any, eps: float) -> Any:
        return functional.layer_norm(X, X.shape[1:], W, B, eps)


class SiLUMul:
    @staticmethod
    def apply(a: Any, b: Any) -> Any:
        return functional.silu(a) * b


class FusedGateUpSiLUMul:
    @staticmethod
    def apply(y: Any) -> Any:
        return SiLUMul.apply(*y.chunk(2, dim=1))


def layer_norm_forward(X: Any, W: Any, B: Any, eps: float) -> Any:
    out, mean, rstd = torch.native_layer_norm(X, X.shape[1:], W, B, eps)
    return out, X, mean.view(-1), rstd.view(-1), 1024, 4


def rmsnorm(input: Any, weight: Any, eps: float = 1e-6, out: Any = None, enable_pdl: bool | None = None) -> Any:
    return out.copy_(functional.rms_norm(input, input.shape[1:], weight, eps))


def silu_and_mul(input: Any, out: Any = None, enable_pdl: bool | None = None) -> Any:
    return out.copy_(FusedGateUpSiLUMul.apply(input))


class BatchDecode:
    """Decoding over pages: q (B, H, D), keys and values in pages (pages, page, heads, D)."""

    def __init__(self, float_workspace_buffer: Any, kv_layout: str = "NHD", *, use_tensor_cores: bool = False) -> None:
        assert float_workspace_buffer.numel() == 2**27

    def plan(
        self, indptr: Any, indices: Any, last_page_len: Any, *sizes: int, q_data_type: Any, sm_scale: float
    ) -> None:
        self.bounds, self.last, self.sizes, self.scale = indptr.tolist(), last_page_len.tolist(), sizes, sm_scale
        self.indices = indices.long()

    def run(self, q: Any, paged_kv_cache: tuple[Any, Any], out: Any) -> None:
        heads, groups, width, page = self.sizes
        for b, last in enumerate(self.last):
            pages = self.indices[self.bounds[b] : self.bounds[b + 1]]
            k, v = (
                each[pages].flatten(0, 1)[: (len(pages) - 1) * page + last].repeat_interleave(heads // groups, 1)
                for each in paged_kv_cache
            )
            scores = torch.einsum("hd,nhd->hn", q[b].float(), k.float()) * self.scale
            out[b] = torch.einsum("hn,nhd->hd", scores.softmax(1), v.float())
        assert k.shape[2] == width


STAND_INS: Mapping[str, Mapping[str, object]] = {
    "liger_kernel": {},
    "liger_kernel.ops": {
        "LigerRMSNormFunction": RMSNorm,
        "LigerFusedAddRMSNormFunction": FusedAddRMSNorm,
        "LigerLayerNormFunction": LayerNorm,
        "LigerSiLUMulFunction": SiLUMul,
    },
    "liger_kernel.ops.layer_norm": {"layer_norm_forward": layer_norm_forward},
    "liger_kernel.ops.swiglu": {"LigerFusedGateUpSiLUMulFunction": FusedGateUpSiLUMul},
    "flashinfer": {"BatchDecodeWithPagedKVCacheWrapper": BatchDecode},
    "flashinfer.norm": {"rmsnorm": rmsnorm},
    "flashinfer.activation": {"silu_and_mul": silu_and_mul},
}
TAKEN: list[tuple[str, str, dict[str, object]]] = [
    ("rms_norm", "liger", {}),
    ("rms_norm", "liger", {"weight": False}),
    ("rms_norm", "liger", {"residual": True}),
    ("rms_norm", "flashinfer", {}),
    ("layer_norm", "liger", {}),
    ("layer_norm", "liger", {"stats": True}),
    ("silu_mul", "liger", {}),
    ("silu_mul", "liger", {"packed": True}),
    ("silu_mul", "flashinfer", {"packed": True}),
    ("attention", "flashinfer", {"B": 3, "H": 4, "G": 2, "M": 1, "N": 77, "D": 64, "page": 16, "dtype": "fp16"}),
]
REFUSED: list[tuple[str, str, dict[str, object], str]] = [
    ("rms_norm", "liger", {"residual": True, "weight": False}, "liger adds a residual only with a weight"),
    ("rms_norm", "flashinfer", {"weight": False}, "flashinfer has no rmsnorm without a weight"),
    ("rms_norm", "flashinfer", {"residual": True}, "and adds a residual in place only"),
    ("layer_norm", "liger", {"bias": False}, "liger has no layer norm without a weight and a bias"),
    ("silu_mul", "flashinfer", {}, "flashinfer reads gate and up as the halves of one tensor only"),
    (
        "attention",
        "flashinfer",
        {"H": 4, "M": 2, "N": 77, "page": 16, "dtype": "fp16"},
        "one row over pages, without a",
    ),
    ("attention", "flashinfer", {"H": 4, "M": 1, "N": 77, "dtype": "fp16"}, "one row over pages, without a cap"),
]


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, members in STAND_INS.items():
        made = ModuleType(name)
        vars(made).update(members)
        monkeypatch.setitem(sys.modules, name, made)


def run(op: str, name: str, attributes: Mapping[str, object]) -> tuple[Problem, dict[str, torch.Tensor]]:
    kernel = catalog.load(op)
    sizes = {dim.name: SIZES[dim.name] for dim in kernel.signature.dims if dim.name in SIZES}
    problem = kernel.signature.problem({**sizes, "dtype": "fp32", **attributes})
    operands = kernel.operands(problem)
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=1)
    tensors.poison(operands, values)
    run_vendor(vendor_function(kernel, name, problem), problem, operands, values)
    return problem, values


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("op", "name", "attributes"), TAKEN)
def test_a_library_gives_each_output(op: str, name: str, attributes: dict[str, object]) -> None:
    problem, values = run(op, name, attributes)
    kernel = catalog.load(op)
    outputs = tensors.written(kernel.operands(problem), values)
    found = check.differences(kernel, problem, values, outputs)
    assert found.keys() == outputs.keys()
    assert all(difference.passes for difference in found.values())


@pytest.mark.usefixtures("installed")
def test_pages_are_planned_again_once_a_table_is_written() -> None:
    """Inputs are drawn again, into the same tensors, before each comparison."""
    op, name, attributes = TAKEN[-1]
    kernel, (problem, values) = catalog.load(op), run(op, name, attributes)
    operands = kernel.operands(problem)
    tensors.draw(operands, values, seed=2)
    run_vendor(vendor_function(kernel, name, problem), problem, operands, values)
    found = check.differences(kernel, problem, values, tensors.written(operands, values))
    assert all(difference.passes for difference in found.values())


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize(("op", "name", "attributes", "reason"), REFUSED)
def test_a_problem_that_a_library_does_not_take_is_refused_with_the_reason(
    op: str, name: str, attributes: dict[str, object], reason: str
) -> None:
    with pytest.raises(NotImplementedError, match=reason):
        run(op, name, attributes)


@pytest.mark.parametrize(("op", "name", "attributes"), TAKEN)
def test_a_library_that_is_not_installed_is_an_import_error(
    op: str, name: str, attributes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in STAND_INS:
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError):
        run(op, name, attributes)
