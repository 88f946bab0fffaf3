"""The rounding that is usual for each kind of operation passes, and what is wrong does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest
import torch
from helpers import toy

from tuner import catalog
from tuner.kernels.spec import Kernel, Problem
from tuner.measure import check, tensors
from tuner.measure.correctness import calibrated
from tuner.measure.difference import Difference

KINDS = run_path(str(Path(__file__).parents[1] / "toys" / "kinds.py"))["kinds"]
NAMES = tuple(KINDS("bf16"))
Values = dict[str, torch.Tensor]


class Case:
    """A kind's kernel, beside a vendor in eager mode, with drawn inputs."""

    def __init__(self, name: str, dtype: str, seed: int = 1) -> None:
        self.kind = kind = KINDS(dtype)[name]
        eager = tensors.dtype_of(dtype)

        def reference(problem: Problem, inputs: Any, rows: slice) -> Values:
            return {name: value[rows] for name, value in self.results(inputs, torch.float64).items()}

        def vendor(problem: Problem, values: Any) -> None:
            for name, value in self.results(values, eager).items():
                values[name].copy_(value)

        self.kernel: Kernel = replace(
            catalog.resolve(toy("double")),
            operands=lambda problem: kind.operands,
            reference=reference,
            vendor=vendor,
            rounding=lambda problem: kind.rounding,
        )
        self.problem = self.kernel.signature.problem({"N": 4})
        self.values = tensors.allocate(kind.operands, "cpu")
        tensors.draw(kind.operands, self.values, seed)
        self.allowed = calibrated(self.kernel, self.problem, kind.operands, self.values)

    def results(self, inputs: Any, intermediate: torch.dtype) -> Values:
        """Return the results with intermediate results rounded to a dtype."""
        wide = torch.float32 if intermediate == torch.float32 else torch.float64
        given = {
            name: value.to(wide) if value.is_floating_point() else value
            for name, value in inputs.items()
            if self.kind.operands[name].role == "in"
        }
        found: Values = self.kind.compute(given, lambda value: value.to(intermediate).to(wide))
        return found

    def found(self, outputs: Values) -> dict[str, Difference]:
        """Return the differences of these outputs."""
        for name, value in outputs.items():
            self.values[name].copy_(value)
        written = tensors.written(self.kind.operands, self.values)
        return check.differences(self.kernel, self.problem, self.values, written, allowed=self.allowed)

    def failed(self, outputs: Values) -> dict[str, str]:
        """Return the outputs that fail, with the reason."""
        return {name: found.text for name, found in self.found(outputs).items() if not found.passes}


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("name", NAMES)
class TestKinds:
    @pytest.mark.parametrize("seed", range(3))
    def test_a_right_kernel_passes_beside_an_eager_vendor(self, name: str, dtype: str, seed: int) -> None:
        case = Case(name, dtype, seed)
        assert not case.failed(case.results(case.values, torch.float32))

    def test_a_right_kernel_passes_in_the_dtype_that_it_states(self, name: str, dtype: str) -> None:
        case = Case(name, dtype)
        own = {out for out, operand in case.kind.operands.items() if operand.role == "out" and operand.dtype == dtype}
        stated = case.kind.rounding > 0
        failed = case.failed(case.results(case.values, tensors.dtype_of(dtype)))
        assert not (failed if stated else {out: text for out, text in failed.items() if out in own})

    @pytest.mark.parametrize("fault", ["zeros", "stale row", "factor", "shifted"])
    def test_a_wrong_output_does_not(self, name: str, dtype: str, fault: str) -> None:
        case = Case(name, dtype)
        right = case.results(case.values, torch.float32)
        for output, value in right.items():
            if fault == "factor" and (output in case.kind.coarse or value.dtype == torch.bool):
                continue
            wrong = value.clone()
            if fault == "zeros":
                wrong.zero_()
            elif fault == "stale row":
                wrong[-1] = wrong[-2]
            elif fault == "factor":
                wrong = wrong * 1.02 if wrong.is_floating_point() else wrong + 1
            else:
                wrong = wrong.roll(1, 0)
            assert set(case.failed({**right, output: wrong})) == {output}
