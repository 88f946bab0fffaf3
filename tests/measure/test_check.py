"""The comparison with a reference: what passes, what fails, and the tolerance."""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

import pytest
import torch
from helpers import toy

from tuner import catalog
from tuner.kernels.spec import Kernel, Operand, Problem
from tuner.measure import check, tensors
from tuner.measure.check import CheckSettings
from tuner.measure.tolerance import tolerances

Tensors = dict[str, torch.Tensor]


@pytest.fixture
def double() -> tuple[Kernel, Problem, Tensors]:
    """Return out = 2 x with drawn tensors and a correct output."""
    kernel = catalog.resolve(toy("double"))
    problem = kernel.signature.problem({"N": 1000})
    operands = kernel.operands(problem)
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=1)
    values["out"].copy_(values["x"] * 2)
    return kernel, problem, values


def _error(kernel: Kernel, problem: Problem, values: Tensors) -> float:
    return check.error(kernel, problem, values, {"out": values["out"]})


def test_a_correct_output_has_no_error(double: tuple[Kernel, Problem, Tensors]) -> None:
    assert _error(*double) == 0


def test_the_error_is_relative_to_the_largest_value(double: tuple[Kernel, Problem, Tensors]) -> None:
    kernel, problem, values = double
    largest = float(values["out"].abs().max())
    values["out"][17] += 0.01 * largest
    assert _error(kernel, problem, values) == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("stray", [float("nan"), inf, -inf])
def test_one_unwritten_element_is_wrong(double: tuple[Kernel, Problem, Tensors], stray: float) -> None:
    kernel, problem, values = double
    values["out"][999] = stray
    assert _error(kernel, problem, values) == inf


def test_nan_and_infinities_must_match_the_reference(double: tuple[Kernel, Problem, Tensors]) -> None:
    kernel, problem, values = double
    values["x"][:3] = torch.tensor([float("nan"), inf, -inf])
    values["out"].copy_(values["x"] * 2)
    assert _error(kernel, problem, values) == 0
    values["out"][1] = -inf
    assert _error(kernel, problem, values) == inf


def test_blocks_of_rows_cover_each_row(double: tuple[Kernel, Problem, Tensors]) -> None:
    kernel, problem, values = double
    values["out"][999] += 1
    settings = CheckSettings(block_elements=64)
    assert check.error(kernel, problem, values, {"out": values["out"]}, settings) > 0.01


def test_a_zeroed_tile_is_wrong_and_rounding_is_not() -> None:
    """At K = 32768 an error beyond a common fixed tolerance passes, and one tile of zeros fails."""
    kernel = catalog.load("gemm")
    problem = kernel.signature.problem({"M": 64, "N": 64, "K": 32768, "dtype": "fp16"})
    operands = kernel.operands(problem)
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=1)
    exact = values["a"].double() @ values["b"].double()
    values["out"].copy_(exact)
    allowed = tolerances(kernel, problem)["out"].allowed
    assert check.error(kernel, problem, values, {"out": values["out"]}) <= allowed
    assert float((values["out"].double() - exact).abs().max()) > 0.05  # a common absolute tolerance
    for splits in (4, 16):
        values["out"].copy_(_in_splits(values["a"], values["b"], splits))
        assert check.error(kernel, problem, values, {"out": values["out"]}) <= allowed
    values["out"][:16, :16] = 0
    assert check.error(kernel, problem, values, {"out": values["out"]}) > 100 * allowed


def _in_splits(a: torch.Tensor, b: torch.Tensor, splits: int) -> torch.Tensor:
    """Return a product computed in parts of its depth, summed in fp32, as split-K does."""
    parts = zip(a.float().chunk(splits, dim=1), b.float().chunk(splits, dim=0), strict=True)
    return torch.stack([left @ right for left, right in parts]).sum(dim=0)


def _kernel(reference: Any, operands: dict[str, Operand], **fields: Any) -> tuple[Kernel, Problem]:
    """Return the toy `double` with other operands and another reference, and a problem."""
    kernel = replace(catalog.resolve(toy("double")), operands=lambda problem: operands, reference=reference, **fields)
    return kernel, kernel.signature.problem({"N": 4})


def _pair(dtypes: tuple[str, str], sizes: tuple[int, int]) -> dict[str, Operand]:
    return {
        "x": Operand((8, 64), dtypes[0]),
        "out": Operand((sizes[0], 64), dtypes[0], "out"),
        "other": Operand((sizes[1],), dtypes[1], "out"),
    }


def test_each_output_is_compared_relative_to_its_own_size() -> None:
    """A wrong small output fails beside a correct large one."""
    kernel, problem = _kernel(
        lambda problem, inputs, rows: {"out": inputs["x"][rows] * 1e9, "other": inputs["x"][:, 0][rows]},
        _pair(("fp32", "fp32"), (8, 8)),
    )
    x = torch.randn(8, 64, generator=torch.Generator().manual_seed(1))
    assert check.error(kernel, problem, {"x": x}, {"out": x * 1e9, "other": x[:, 0]}) == 0
    assert check.error(kernel, problem, {"x": x}, {"out": x * 1e9, "other": -x[:, 0]}) == pytest.approx(2)


def test_an_exact_kernel_must_match_bit_for_bit() -> None:
    kernel = catalog.load("transpose")
    problem = kernel.signature.problem({"M": 5, "N": 3})
    operands = kernel.operands(problem)
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=1)
    values["x"][0, 0] = float("nan")
    values["x"][1, 1] = 0.0
    values["out"].copy_(values["x"].t())
    assert check.error(kernel, problem, values, {"out": values["out"]}) == 0
    values["out"].view(torch.int32)[0, 0] = 0x7FFFFFFF  # the NaN of max.NaN.f32, where torch has 0x7FC00000
    assert values["x"].view(torch.int32)[0, 0] == 0x7FC00000
    assert check.error(kernel, problem, values, {"out": values["out"]}) == 0
    values["out"][1, 1] = -0.0
    assert check.error(kernel, problem, values, {"out": values["out"]}) == inf
    values["out"][1, 1] = 0.0
    values["out"][0, 1] = float("nan")  # where the reference has a number
    assert check.error(kernel, problem, values, {"out": values["out"]}) == inf
    assert tolerances(kernel, problem)["out"].beside(1.0).allowed == 0


def test_tolerance_follows_the_vendor_the_dtype_and_the_products() -> None:
    kernel = catalog.load("gemm")

    def allowed(vendor_error: float, **given: object) -> float:
        problem = kernel.signature.problem({"M": 64, **given})
        return tolerances(kernel, problem)["out"].beside(vendor_error).allowed

    assert allowed(0.0, dtype="bf16") == 2 * 2.0**-7
    assert allowed(0.0, dtype="fp16") == 2 * 2.0**-10
    assert allowed(0.0, dtype="fp32", K=1) == 2 * 2.0**-23
    assert allowed(0.0, dtype="fp32", K=64) == 2 * 64**0.5 * 2.0**-24
    assert allowed(0.0, dtype="fp32", precision="tf32") == 2 * 2.0**-10
    assert allowed(5e-6, dtype="fp32") == 2e-5


def test_integers_not_declared_exact_have_the_vendors_tolerance() -> None:
    kernel = replace(catalog.load("transpose"), exact=False)
    problem = kernel.signature.problem({"M": 8, "dtype": "int32"})
    assert tolerances(kernel, problem)["out"].allowed == 0


def test_outputs_are_poisoned_by_dtype() -> None:
    kernel = catalog.load("transpose")
    for dtype in kernel.signature.dtypes:
        problem = kernel.signature.problem({"M": 4, "dtype": dtype})
        operands = kernel.operands(problem)
        values = tensors.allocate(operands, "cpu")
        tensors.draw(operands, values, seed=3)
        tensors.poison(operands, values)
        out = values["out"]
        assert bool(out.isnan().all()) if out.is_floating_point() else bool((out == out[0, 0]).all())
        assert check.error(kernel, problem, values, {"out": out}) == inf


def test_only_operands_written_in_place_are_restored() -> None:
    kernel = catalog.resolve(toy("halve"))
    problem = kernel.signature.problem({"N": 100})
    operands = kernel.operands(problem)
    values = tensors.allocate(operands, "cpu")
    tensors.draw(operands, values, seed=1)
    before = values["x"].clone()
    restore = tensors.restorer(operands, values)
    values["x"].zero_()
    assert restore is not None
    restore()
    assert torch.equal(values["x"], before)
    double = catalog.resolve(toy("double"))
    other = double.operands(double.signature.problem({"N": 4}))
    assert tensors.restorer(other, tensors.allocate(other, "cpu")) is None
