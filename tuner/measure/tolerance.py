"""The largest error of each output that is rounding: by its dtype, the length of its sums, and the vendor's error.

A result is rounded to its dtype a few times, and its sums are rounded in fp32. Both give a ceiling that no vendor's
error raises, so a wrong vendor or a wrong reference is found, and zeros never pass. A vendor may compute in the
dtype of its inputs, such as the mean of fp16 rows in fp16; a config may not, unless the kernel states `rounding`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import inf, prod, sqrt

import torch

from tuner.kernels.spec import Kernel, Operand, Problem
from tuner.measure.tensors import dtype_of


@dataclass(frozen=True)
class ToleranceSettings:
    """Extent of rounding. A step is the epsilon of the dtype, or the kernel's `rounding` if that is coarser."""

    least_steps: float = 2.0
    """Steps that pass whatever the vendor's error is. Source: chosen."""
    over_vendor: float = 4.0
    """Tolerance over the vendor's error. Source: chosen."""
    ceiling_steps: float = 4.0
    """Steps at the ceiling, without sums. Source: chosen; four intermediate results rounded to the dtype have two."""
    partial_sums: float = 1 / 32
    """Further steps for each square root of a sum's length. Source: chosen, for partial sums kept in 16 bits."""
    mean_steps: float = 1.2
    """Steps of the root mean square at its ceiling. Source: one rounding has 0.2; a factor of 1.01 in bf16 is 1.3."""
    mean_spread: float = 3.0
    """Spread of the root mean square of n elements: its ceiling is wider by this over the square root of n."""
    sum_roundings: float = 16.0
    """Error of a sum at the ceiling, in roundings for the square root of its length. Source: chosen; usual are 3."""
    shortest_sum: int = 1024
    """Length that sums have at least. Source: chosen; exp(40) in fp32 is as far off as a sum of this length."""
    fp8_sum: float = 2.0**-16
    """Rounding of a sum of 8-bit products. Source: Hopper keeps 14 bits of such sums."""
    highest: float = 0.5
    """Highest ceiling. Source: zeros are off by 1."""
    integer_share: float = 1 / 8
    """Part of a quantized output that may be off by one. Source: chosen; 8 bits computed in bf16 have 0.05, floor for
    round has 0.5."""
    largest_term: float = 8.0
    """Factor by which terms enlarge the error of an intermediate result. Source: normal inputs stay below."""


SETTINGS = ToleranceSettings()


@dataclass(frozen=True)
class Tolerance:
    """Limits of one output's error. The error of a row is relative to the row's largest value."""

    allowed: float
    """Largest error of a row that passes."""
    ceiling: float
    """Largest error of a row that is rounding; `allowed` is never above."""
    mean: float = 0.0
    """Largest root mean square of all errors, over that of all values, if there are many; for integers, the largest
    part of all values that may be off."""
    cancelled: float = 1.0
    """Part of the output's largest value below which a row's own largest value does not count as its scale: a row whose
    terms cancel is as far off as another."""
    smallest: float = 0.0
    """Value from which errors are relative: below the smallest normal number, they are absolute."""
    is_exact: bool = False
    """True if results match bit for bit."""
    is_absolute: bool = False
    """True for integers: errors are differences."""

    def mean_of(self, elements: int, settings: ToleranceSettings = SETTINGS) -> float:
        """Return the largest root mean square, or part that may be off, of this number of elements."""
        if self.is_absolute:
            return max(self.mean, 1 / max(1, elements))
        return min(settings.highest, self.mean * (1 + settings.mean_spread / sqrt(max(1, elements))))

    def beside(self, vendor_error: float, settings: ToleranceSettings = SETTINGS) -> Tolerance:
        """Return the tolerance beside a vendor with this error on the same inputs."""
        return replace(self, allowed=min(self.ceiling, max(settings.over_vendor * vendor_error, self.allowed)))

    def at_ceiling(self) -> Tolerance:
        """Return the tolerance of a vendor: all that is rounding."""
        return replace(self, allowed=self.ceiling)

    def between_two(self, settings: ToleranceSettings = SETTINGS) -> Tolerance:
        """Return the tolerance between two results that may each be off by this one."""
        highest = inf if self.is_absolute else 1.5 * settings.highest
        return replace(self, allowed=min(highest, 2 * self.allowed), mean=min(highest, 2 * self.mean))

    def without_vendor(self) -> Tolerance:
        """Return the tolerance if there is no vendor: half the ceiling; for integers all of it."""
        return replace(self, allowed=self.ceiling if self.is_absolute else self.ceiling / 2)


def tolerances(kernel: Kernel, problem: Problem, settings: ToleranceSettings = SETTINGS) -> dict[str, Tolerance]:
    """Return the tolerance of each written operand beside a vendor without error."""
    return _tolerances(kernel, problem, kernel.rounding(problem), settings)


def vendor_tolerances(kernel: Kernel, problem: Problem, settings: ToleranceSettings = SETTINGS) -> dict[str, Tolerance]:
    """Return the tolerance of each written operand of the vendor, which may compute in the dtype of its inputs."""
    dtypes = _wide_floats(kernel.operands(problem).values())
    coarsest = max((torch.finfo(dtype).eps for dtype in dtypes), default=0.0)
    limits = _tolerances(kernel, problem, max(coarsest, kernel.rounding(problem)), settings)
    return {name: limit.at_ceiling() for name, limit in limits.items()}


def _tolerances(kernel: Kernel, problem: Problem, coarsest: float, settings: ToleranceSettings) -> dict[str, Tolerance]:
    operands = kernel.operands(problem)
    return {
        name: _tolerance(kernel, problem, operands, name, coarsest, settings)
        for name, operand in operands.items()
        if operand.role != "in"
    }


def _tolerance(
    kernel: Kernel,
    problem: Problem,
    operands: Mapping[str, Operand],
    name: str,
    coarsest: float,
    settings: ToleranceSettings,
) -> Tolerance:
    dtype = dtype_of(operands[name].dtype)
    if kernel.exact:
        return Tolerance(0.0, 0.0, is_exact=True)
    if not dtype.is_floating_point:
        is_quantized = kernel.rounding(problem) > 0 and dtype.itemsize <= 2 and dtype != torch.bool
        return Tolerance(float(is_quantized), float(is_quantized), settings.integer_share, is_absolute=True)
    info = torch.finfo(dtype)
    if coarsest <= info.eps:
        coarsest = kernel.rounding(problem)
    step = max(info.eps, coarsest)
    root = sqrt(max(sum_length(kernel, problem, operands, name), settings.shortest_sum))
    fp32 = 2.0**-53 if dtype == torch.float64 else 2.0**-24
    reads_fp8 = any(operand.dtype.startswith("fp8") for operand in operands.values() if operand.role != "out")
    in_sums = settings.sum_roundings * root * (settings.fp8_sum if reads_fp8 else fp32)
    ceiling = min(settings.highest, step * (settings.ceiling_steps + settings.partial_sums * root) + in_sums)
    smallest = info.tiny
    if coarsest > info.eps:  # intermediate results in the dtype of an input have its smallest normal number
        tiny = max(torch.finfo(dtype).tiny for dtype in (dtype, *_wide_floats(operands.values())))
        smallest = max(smallest, settings.largest_term * tiny)
    return Tolerance(
        allowed=min(ceiling, settings.least_steps * step),
        ceiling=ceiling,
        mean=settings.mean_steps * step + in_sums,
        cancelled=min(1.0, max(settings.sum_roundings * root * fp32, coarsest) / step),
        smallest=smallest,
    )


def _wide_floats(operands: Iterable[Operand]) -> list[torch.dtype]:
    """Return the dtypes of 16 bits or more in which a vendor may compute."""
    dtypes = [dtype_of(operand.dtype) for operand in operands]
    return [dtype for dtype in dtypes if dtype.is_floating_point and dtype.itemsize > 1]


def sum_length(kernel: Kernel, problem: Problem, operands: Mapping[str, Operand], name: str) -> float:
    """Return a bound of the number of terms in a sum of one output, from what the kernel states.

    It is the largest of the operations for each result, the elements read for each result, and the longest side that is
    read: K of a matrix product, N of a softmax, the number of keys of attention.
    """
    results = sum(prod(operand.shape) for operand in operands.values() if operand.role != "in")
    read = [operand.shape for operand in operands.values() if operand.role != "out"]
    multiplications = kernel.flops(problem) / (2 * max(1, results))
    elements = sum(map(prod, read)) / max(1, prod(operands[name].shape))
    return max(1.0, multiplications, elements, *(side for shape in read for side in shape))
