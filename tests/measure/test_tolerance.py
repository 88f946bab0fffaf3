"""What passes as rounding: by output, by row, by dtype and by the length of sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest
import torch
from helpers import toy
from torch.utils._python_dispatch import TorchDispatchMode

from tuner import catalog
from tuner.errors import KernelFault
from tuner.kernels.spec import Kernel, Operand, Problem
from tuner.measure import check, tensors
from tuner.measure.check import CHECK_SETTINGS, CheckSettings
from tuner.measure.correctness import BelowRounding, calibrated, rounding_hint
from tuner.measure.difference import Difference
from tuner.measure.tolerance import sum_length, tolerances

Values = dict[str, torch.Tensor]
Results = Callable[[torch.Tensor], Values]


class Made:
    """A kernel with these operands whose reference is a function of x (in fp64), and its drawn tensors."""

    def __init__(self, results: Results, operands: dict[str, Operand], vendor: Results | None = None) -> None:
        def reference(problem: Problem, inputs: Any, rows: slice) -> Values:
            return {name: value[rows] if value.ndim else value for name, value in results(inputs["x"].double()).items()}

        def write(problem: Problem, values: Any) -> None:
            for name, value in (vendor or results)(values["x"].float()).items():
                values[name].copy_(value)

        self.kernel: Kernel = replace(
            catalog.resolve(toy("double")), operands=lambda problem: operands, reference=reference, vendor=write
        )
        self.problem = self.kernel.signature.problem({"N": 4})
        self.operands = operands
        self.values = tensors.allocate(operands, "cpu")
        tensors.draw(operands, self.values, seed=1)

    def found(self, outputs: Values, settings: CheckSettings = CHECK_SETTINGS) -> dict[str, Difference]:
        """Return the differences of these outputs, rounded to their dtypes, beside the vendor."""
        allowed = calibrated(self.kernel, self.problem, self.operands, self.values)
        for name, value in outputs.items():
            self.values[name].copy_(value)
        written = tensors.written(self.operands, self.values)
        return check.differences(self.kernel, self.problem, self.values, written, settings, allowed)

    def failed(self, outputs: Values, settings: CheckSettings = CHECK_SETTINGS) -> dict[str, str]:
        """Return the outputs that fail, each with its first wrong element."""
        written = tensors.written(self.operands, self.values)
        return {
            name: check.first_element(self.kernel, self.problem, self.values, written[name], found, settings).place
            for name, found in self.found(outputs, settings).items()
            if not found.passes
        }


def norm(x: torch.Tensor) -> Values:
    """Return results of different first dims: y (M, N), column sums dw (N,) and a sum of all."""
    return {"y": x.tanh(), "dw": x.sum(0), "all": x.abs().sum()}


def norm_operands(M: int, N: int, dtype: str = "fp16") -> dict[str, Operand]:
    return {
        "x": Operand((M, N), dtype),
        "y": Operand((M, N), dtype, "out"),
        "dw": Operand((N,), "fp32", "out"),
        "all": Operand((), "fp32", "out"),
    }


class TestEachOutputHasItsOwnRows:
    @pytest.mark.parametrize("block_elements", [2**25, 64])
    @pytest.mark.parametrize(("M", "N"), [(4, 64), (64, 4), (1, 1), (7, 129)])
    def test_outputs_of_different_first_dims_are_compared_in_full(self, M: int, N: int, block_elements: int) -> None:
        made, settings = Made(norm, norm_operands(M, N)), CheckSettings(block_elements)
        right = norm(made.values["x"].double())
        assert not made.failed(right, settings)
        for name, value in right.items():
            wrong = value.clone()
            wrong.view(-1)[-1] += 1
            place = ", ".join(str(size - 1) for size in value.shape)
            assert made.failed({**right, name: wrong}, settings) == {name: f"{name}[{place}]" if place else name}

    def test_a_wrong_tail_of_a_second_output_is_found(self) -> None:
        made = Made(norm, norm_operands(4, 64))
        right = norm(made.values["x"].double())
        assert made.failed({**right, "dw": right["dw"].index_fill(0, torch.arange(4, 64), 0.0)}) == {"dw": "dw[4]"}

    def test_many_rows_beside_few(self) -> None:
        """The second output has fewer rows than one block of the first."""
        made = Made(norm, norm_operands(700, 1024, "fp32"))
        right, settings = norm(made.values["x"].double()), CheckSettings(block_elements=2**15)
        assert not made.failed(right, settings)
        right["dw"][1023] += 1
        assert made.failed(right, settings) == {"dw": "dw[1023]"}

    def test_an_fp32_statistic_beside_an_fp16_result_has_the_tolerance_of_fp32(self) -> None:
        made = Made(norm, norm_operands(64, 64))
        right = norm(made.values["x"].double())
        assert made.found(right)["y"].tolerance.allowed > 1e-3
        assert made.found(right)["dw"].tolerance.allowed < 1e-6
        assert set(made.failed({**right, "dw": right["dw"] * (1 + 1e-3)})) == {"dw"}
        assert not made.failed({**right, "y": right["y"] * (1 + 5e-4)})

    @pytest.mark.parametrize("shape", [(64, 1), (1, 64), (1,), (64, 64), ()])
    def test_shapes_never_broadcast(self, shape: tuple[int, ...]) -> None:
        operands = {"x": Operand((64, 64), "fp32"), "out": Operand((64,), "fp32", "out")}
        made = Made(lambda x: {"out": x.new_zeros(shape)}, operands, lambda x: {"out": x.sum(1)})
        with pytest.raises(KernelFault, match=r"reference returns the rows of out in shape \(64,\), not \("):
            made.found({"out": torch.zeros(64)})


def rows_by(scale: torch.Tensor) -> Made:
    """Return a kernel whose rows have these magnitudes, as the late rows of causal attention are small."""
    M = len(scale)
    operands = {"x": Operand((M, 64), "bf16"), "out": Operand((M, 64), "bf16", "out")}
    return Made(lambda x: {"out": x * scale.to(x)[:, None]}, operands)


class TestEachRowHasItsOwnScale:
    def test_a_stale_row_of_small_values_does_not_hide_beside_large_ones(self) -> None:
        scale = torch.logspace(0, -2.5, 64)
        made = rows_by(scale)
        right = made.values["x"].double() * scale[:, None]
        assert not made.failed({"out": right})
        stale = right.clone()
        stale[63] = right[62]
        assert float((stale - right).abs().max()) < 2 * 2**-7 * float(right.abs().max())  # of the largest value
        assert made.failed({"out": stale}) == {"out": "out[63, 0]"}

    def test_a_vendor_with_a_stale_row_of_small_values_is_refused(self) -> None:
        scale = torch.logspace(0, -2.5, 64)

        def stale(x: torch.Tensor) -> Values:
            out = x * scale[:, None]
            out[63] = out[62]
            return {"out": out}

        made = rows_by(scale)
        other = Made(lambda x: {"out": x * scale.to(x)[:, None]}, made.operands, stale)
        with pytest.raises(KernelFault, match=r"differ by more than rounding: out\[63, 0\] is "):
            other.found({})

    def test_rows_whose_terms_cancel_are_as_far_off_as_others(self) -> None:
        """x + 1000 - 1000 in fp32 is off by 3e-5; in every fourth row that is a tenth of the largest value."""
        scale = torch.where(torch.arange(64) % 4 == 0, 1e-4, 1.0)

        def through_1000(x: torch.Tensor) -> Values:
            return {"out": x * scale.to(x)[:, None] + 1000 - 1000}

        made = Made(through_1000, {"x": Operand((64, 64), "fp16"), "out": Operand((64, 64), "fp16", "out")})
        x = made.values["x"]
        off = (through_1000(x.float())["out"] - through_1000(x.double())["out"]).abs().amax(1)
        assert float(off[0]) > 0.05 * float(through_1000(x.double())["out"][0].abs().max())
        assert not made.failed(through_1000(x.float()))

    def test_short_rows_share_a_scale(self) -> None:
        """Sums of single elements cancel at times: of 4,096, one is 10,000 times smaller than the largest."""
        made = Made(
            lambda x: {"out": x.sum(1, keepdim=True)},
            {"x": Operand((4096, 256), "fp16"), "out": Operand((4096, 1), "fp32", "out")},
        )
        in_parts = made.values["x"].float().reshape(4096, 4, 64).sum(2).sum(1, keepdim=True)
        right = made.values["x"].double().sum(1, keepdim=True)
        assert float(right.abs().min()) < 1e-4 * float(right.abs().max())
        assert not made.failed({"out": in_parts})
        wrong = right.clone()
        wrong[right.abs().argmin()] += 0.01
        assert made.failed({"out": wrong}) == {"out": f"out[{int(right.abs().argmin())}, 0]"}

    def test_values_below_the_smallest_normal_number_are_rounded_coarsely(self) -> None:
        made = Made(
            lambda x: {"out": x * 1e-7}, {"x": Operand((8, 64), "fp16"), "out": Operand((8, 64), "fp16", "out")}
        )
        assert not made.failed({"out": made.values["x"].double() * 1e-7})
        assert set(made.failed({"out": torch.zeros(8, 64)})) == {"out"}

    @pytest.mark.parametrize("stray", [nan, inf, -inf])
    def test_a_stray_value_is_found_at_its_place(self, stray: float) -> None:
        made = Made(norm, norm_operands(7, 129))
        right = norm(made.values["x"].double())
        right["y"][5, 128] = stray
        assert made.failed(right, CheckSettings(block_elements=300)) == {"y": "y[5, 128]"}

    @pytest.mark.parametrize(("dtype", "largest"), [("fp16", 65504.0), ("fp8e5m2", 57344.0), ("bf16", 3.39e38)])
    def test_what_a_dtype_cannot_hold_is_infinite(self, dtype: str, largest: float) -> None:
        operands = {"x": Operand((8, 64), "fp32"), "out": Operand((8, 64), dtype, "out")}
        made = Made(lambda x: {"out": x * largest}, operands)
        right = made.values["x"].double() * largest
        assert not made.failed({"out": right})
        assert bool(made.values["out"].float().isinf().any())
        assert set(made.failed({"out": right.where(right.abs() < largest, nan)})) == {"out"}
        assert set(made.failed({"out": right.where(right.abs() < largest, -inf)})) == {"out"}


class TestCeiling:
    def allowed(self, op: str, **given: object) -> tuple[float, float]:
        """Return tolerance and ceiling of a shipped op, for a vendor that is as wrong as can be."""
        kernel = catalog.load(op)
        (limit,) = tolerances(kernel, kernel.signature.problem(given)).values()
        return limit.beside(inf).allowed, limit.ceiling

    @pytest.mark.parametrize(
        ("op", "given", "least", "most"),
        [
            ("gemm", {"M": 4096, "K": 16384, "dtype": "bf16"}, 4 * 2**-7, 0.1),
            ("gemm", {"M": 4096, "K": 16384, "dtype": "fp16"}, 4 * 2**-10, 0.01),
            ("gemm", {"M": 4096, "K": 16384, "dtype": "fp32"}, 4 * 128 * 2**-24, 1e-3),
            ("gemm", {"M": 4096, "K": 16384, "dtype": "fp32", "precision": "tf32"}, 4 * 2**-10, 0.01),
            ("gemm", {"M": 1, "N": 1, "K": 1, "dtype": "bf16"}, 4 * 2**-7, 0.05),
            ("scaled_gemm", {"M": 4096, "K": 16384, "accumulate": "fast"}, 0.02, 0.15),
            ("softmax", {"M": 64, "N": 151_936, "dtype": "fp32"}, 1e-5, 1e-3),
            ("softmax", {"M": 8192, "dtype": "bf16"}, 4 * 2**-7, 0.1),
        ],
    )
    def test_no_vendor_raises_the_tolerance_above_rounding(
        self, op: str, given: dict[str, object], least: float, most: float
    ) -> None:
        allowed, ceiling = self.allowed(op, **given)
        assert least <= allowed == ceiling < most

    def test_a_copy_has_none(self) -> None:
        assert self.allowed("transpose", M=64, dtype="bf16") == (0.0, 0.0)

    @pytest.mark.parametrize("dtype", ["fp8e4m3", "fp8e5m2", "bf16", "fp16", "fp32", "fp64", "int8", "bool"])
    def test_zeros_never_pass(self, dtype: str) -> None:
        """Not even beside a vendor as far off as rounding can be."""
        operands = {"x": Operand((64, 64), "fp32"), "out": Operand((64, 64), dtype, "out")}
        factor = 1 if dtype == "bool" else 20
        made = Made(lambda x: {"out": (x * factor > 0 if dtype == "bool" else (x * factor).trunc())}, operands)
        written = {"out": torch.zeros(64, 64).to(made.values["out"].dtype)}
        allowed = {name: limit.beside(inf) for name, limit in tolerances(made.kernel, made.problem).items()}
        found = check.differences(made.kernel, made.problem, made.values, written, allowed=allowed)
        assert not found["out"].passes

    def test_a_single_element_may_be_rounded_to_zero_by_no_dtype(self) -> None:
        operands = {"x": Operand((1, 1), "fp32"), "out": Operand((1, 1), "fp8e5m2", "out")}
        made = Made(lambda x: {"out": x}, operands)
        assert made.failed({"out": torch.zeros(1, 1)}) == {"out": "out[0, 0]"}

    def test_the_length_of_sums_is_at_least_that_of_the_longest_side_read(self) -> None:
        def length(op: str, **given: object) -> float:
            kernel = catalog.load(op)
            problem = kernel.signature.problem(given)
            return sum_length(kernel, problem, kernel.operands(problem), "out")

        assert length("gemm", M=16, N=32, K=4096, dtype="bf16") == 4096
        assert length("softmax", M=16, N=4096, dtype="fp16") == 4096
        made = Made(norm, norm_operands(700, 1024))
        assert sum_length(made.kernel, made.problem, made.operands, "all") == 700 * 1024

    def test_quantized_integers_may_be_off_by_one_if_the_kernel_states_rounding(self) -> None:
        operands = {"x": Operand((64, 64), "fp32"), "out": Operand((64, 64), "int8", "out")}

        def quantized(x: torch.Tensor) -> Values:
            return {"out": (x * 30).round().clamp(-127, 127)}

        def up(x: torch.Tensor) -> Values:
            return {"out": quantized(x)["out"] + (torch.arange(64) == 9)}

        made, beside = Made(quantized, operands), Made(quantized, operands, up)
        right = quantized(made.values["x"].double())["out"]
        one = right.clone()
        one[3, 9] += 1
        assert made.failed({"out": one}) == {"out": "out[3, 9]"}
        with pytest.raises(
            KernelFault, match=r"out\[0, 9\] is .* \(off by 1; 0 is allowed\); .*`rounding` if off by one"
        ):
            beside.found({})
        for each in (made, beside):
            each.kernel = replace(each.kernel, rounding=lambda problem: 2.0**-24)
        assert not made.failed({"out": one})
        assert not beside.failed({"out": one})
        down = quantized(made.values["x"].double() - 0.5 / 30)["out"]
        assert "by one in 0." in made.found({"out": down})["out"].text
        for wrong in (down, right + 1, -right, right + 2 * (torch.arange(64) == 5)):
            assert set(made.failed({"out": wrong})) == {"out"}

    @pytest.mark.parametrize("dtype", ["bool", "int32", "int64"])
    def test_masks_indices_and_exact_sums_are_never_rounded(self, dtype: str) -> None:
        operands = {"x": Operand((64, 64), "fp32"), "out": Operand((64,), dtype, "out")}
        made = Made(lambda x: {"out": (x.argmax(1) > 31) if dtype == "bool" else x.argmax(1)}, operands)
        made.kernel = replace(made.kernel, rounding=lambda problem: 2.0**-10)
        right = made.values["x"].argmax(1)
        if dtype == "bool":
            right = right > 31
        assert not made.failed({"out": right})
        wrong = right.clone()
        wrong[7] = ~right[7] if dtype == "bool" else right[7] + 1
        assert made.failed({"out": wrong}) == {"out": "out[7]"}

    def test_large_integers_are_compared_exactly(self) -> None:
        operands = {"x": Operand((64, 64), "fp32"), "out": Operand((64,), "int64", "out")}
        made = Made(lambda x: {"out": torch.arange(64) + 2**60}, operands)
        assert not made.failed({"out": torch.arange(64) + 2**60})
        assert made.failed({"out": torch.arange(64) + 2**60 + (torch.arange(64) == 7)}) == {"out": "out[7]"}


class TestVendorAndReference:
    @pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
    def test_a_factor_shows_in_the_root_mean_square(self, dtype: str) -> None:
        """No element of bf16 is off by more than two steps."""
        operands = {"x": Operand((512, 512), dtype), "out": Operand((512, 512), dtype, "out")}
        made = Made(lambda x: {"out": x}, operands, lambda x: {"out": x * 1.01})
        with pytest.raises(KernelFault, match=r"differ by more than rounding: out\[0, \d+\] is .* \(off by 0\.0"):
            made.found({})
        right = Made(lambda x: {"out": x}, operands)
        assert set(right.failed({"out": right.values["x"].double() * 1.01})) == {"out"}

    def test_a_vendor_in_fp16_of_an_fp32_result_is_refused_unless_the_kernel_says_so(self) -> None:
        def coarse(x: torch.Tensor) -> Values:
            return {"out": x.half().float()}

        made = Made(
            lambda x: {"out": x}, {"x": Operand((64, 64), "fp32"), "out": Operand((64, 64), "fp32", "out")}, coarse
        )
        with pytest.raises(KernelFault, match=r"or state `rounding` if one rounds more coarsely$"):
            made.found({})
        made.kernel = replace(made.kernel, rounding=lambda problem: 2.0**-10)
        assert not made.failed({"out": made.values["x"].half().float()})

    @pytest.mark.parametrize("dtype", ["fp16", "bf16"])
    def test_a_vendor_may_compute_an_fp32_statistic_in_the_dtype_of_its_inputs(self, dtype: str) -> None:
        """Configs may not, and a wrong vendor is found all the same."""
        operands = {"x": Operand((64, 256), dtype), "mean": Operand((64,), "fp32", "out")}

        def mean(x: torch.Tensor) -> Values:
            return {"mean": x.mean(1)}

        def coarse(x: torch.Tensor) -> Values:
            return {"mean": x.mean(1).to(tensors.dtype_of(dtype))}

        made = Made(mean, operands, coarse)
        assert not made.failed(mean(made.values["x"].float()))
        rounded = made.found(coarse(made.values["x"].float()))["mean"]
        assert not rounded.passes
        assert rounding_hint(rounded) == "; if the kernel rounds more coarsely, state `rounding`"
        for wrong in (lambda x: {"mean": x.mean(1) * 1.02}, lambda x: {"mean": x.mean(1).roll(1)}):
            with pytest.raises(KernelFault, match="differ by more than rounding: mean"):
                Made(mean, operands, wrong).found({})

    def test_intermediate_results_below_the_smallest_normal_number_are_rounded_coarsely(self) -> None:
        """Products of fp16 numbers of about 1e-6 are off by a hundredth."""
        operands = {"x": Operand((64, 64), "fp16"), "out": Operand((64, 64), "fp32", "out")}

        def small(x: torch.Tensor) -> Values:
            return {"out": (x * 2e-6) * 3}

        def in_fp16(x: torch.Tensor) -> Values:
            return {"out": (x * 2e-6).half().float() * 3}

        made = Made(small, operands)
        assert made.failed(in_fp16(made.values["x"].float()))
        made.kernel = replace(made.kernel, rounding=lambda problem: 2.0**-10)
        assert not made.failed(in_fp16(made.values["x"].float()))
        right = small(made.values["x"].double())["out"]
        for wrong in (torch.zeros(64, 64), right.roll(1, 0), right * 1.5):
            assert set(made.failed({"out": wrong})) == {"out"}

    def test_results_so_small_that_zeros_would_pass_are_refused(self) -> None:
        operands = {"x": Operand((64, 64), "fp32"), "out": Operand((64, 64), "fp16", "out")}
        made = Made(lambda x: {"out": x * 1e-8}, operands)
        with pytest.raises(BelowRounding, match=r"reference has values above rounding, and none in out; let `fill`"):
            made.found({})
        assert not Made(lambda x: {"out": x * 0}, operands).failed({"out": torch.zeros(64, 64)})

    @pytest.mark.parametrize("which", ["vendor", "reference"])
    def test_neither_may_change_what_is_only_read(self, which: str) -> None:
        operands = {"x": Operand((64, 64), "fp32"), "out": Operand((64, 64), "fp32", "out")}

        def sorts(x: torch.Tensor) -> Values:
            return {"out": x.copy_(x.sort(1).values)}

        made = Made(lambda x: {"out": x.sort(1).values}, operands, sorts)
        if which == "reference":
            made = Made(lambda x: {"out": x.sort(1).values}, operands)
            made.kernel = replace(
                made.kernel, reference=lambda problem, inputs, rows: {"out": sorts(inputs["x"])["out"][rows].double()}
            )
        with pytest.raises(KernelFault, match=r"vendor and reference only read x, and one of them changes it; copy"):
            made.found({})

    def test_a_reference_without_a_finite_value_is_refused(self) -> None:
        """Outputs that are not written are NaN too."""
        made = Made(lambda x: {"out": x * nan}, {"x": Operand((8, 8), "fp32"), "out": Operand((8, 8), "fp32", "out")})
        with pytest.raises(KernelFault, match=r"reference has finite values, and none in out; correct it"):
            made.found({})


class _Waits(TorchDispatchMode):  # type: ignore[misc]
    """Counts the values that are read from the device."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func is torch.ops.aten._local_scalar_dense.default
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("blocks", [1, 8])
def test_a_check_waits_for_the_device_once_a_block(blocks: int) -> None:
    operands = {"x": Operand((64, 64), "fp16"), "out": Operand((64, 64), "fp16", "out")}
    made = Made(lambda x: {"out": x}, operands)
    assert not made.failed({"out": made.values["x"]})
    settings = CheckSettings(block_elements=64 * 64 // blocks)
    with _Waits() as waits:
        found = check.differences(made.kernel, made.problem, made.values, {"out": made.values["out"]}, settings)
        assert found["out"].passes
    assert waits.count <= blocks + 2
