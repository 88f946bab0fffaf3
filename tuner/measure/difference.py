"""Difference of one output from what is expected of it: by rows, and on the whole."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import inf, isfinite, prod

import torch

from tuner.kernels.spec import cdiv
from tuner.measure.tensors import bits
from tuner.measure.tolerance import Tolerance

COARSE_ERROR = 0.1
"""Error below which a message names coarser rounding. Source: intermediate results in bf16 are off by up to 0.03."""


@dataclass(frozen=True)
class Block:
    """Deviations of some rows of an output.

    `deviations` and `values` hold the largest deviation and the largest finite value of each row, where rows are along
    the last dim, and short ones are taken together.
    """

    rows: slice
    deviations: torch.Tensor
    values: torch.Tensor
    norms: torch.Tensor
    """Root of the sum of the squares of all deviations, and of all values, of those that are finite."""
    has_finite: bool


@dataclass(frozen=True)
class Difference:
    """Difference of one output from what is expected of it."""

    name: str
    tolerance: Tolerance
    shape: tuple[int, ...]
    blocks: tuple[Block, ...]

    @cached_property
    def scales(self) -> torch.Tensor:
        """Value to which each row's error is relative; 1 for integers."""
        values = torch.cat([block.values for block in self.blocks])
        if self.tolerance.is_absolute:
            return torch.ones_like(values)
        least = (self.tolerance.cancelled * values.amax()).clamp(min=self.tolerance.smallest)
        return torch.maximum(values, least)

    @cached_property
    def deviations(self) -> torch.Tensor:
        """Largest deviation of each row: NaN or infinite if it is not finite where the other is."""
        return torch.cat([block.deviations for block in self.blocks])

    @cached_property
    def error(self) -> float:
        """Largest error of a row; 0 for a match, and infinite if NaN or infinities differ."""
        if not self.blocks:
            return 0.0
        worst = self.deviations
        error = float(torch.where(worst == 0, 0, worst / self.scales).amax())
        return error if isfinite(error) else inf

    @property
    def mean(self) -> float:
        """Root mean square of all deviations over that of all values; for integers, the part of all that are off."""
        deviation, value = self._norms
        count = max(1, prod(self.shape))
        if self.tolerance.is_absolute:
            return deviation**2 / count
        scale = max(value, self.tolerance.smallest * count**0.5)
        return deviation / scale if deviation and scale else 0.0

    @property
    def has_finite(self) -> bool:
        """True if a value that is expected is finite, or there is none."""
        return not self.blocks or any(block.has_finite for block in self.blocks)

    @property
    def hides_zeros(self) -> bool:
        """True if values are not zero, and zeros would pass in their place."""
        if not self.blocks or self.tolerance.is_absolute or self.tolerance.is_exact:
            return False
        largest = max(float(block.values.amax()) for block in self.blocks)
        return 0 < largest <= self.tolerance.allowed * self.tolerance.smallest

    @property
    def may_be_rounding(self) -> bool:
        """True if the error of a float is as small as that of 16 bits."""
        return not (self.tolerance.is_absolute or self.tolerance.is_exact) and self.error < COARSE_ERROR

    @property
    def may_be_quantized(self) -> bool:
        """True if no integer is off by more than one, and some were not allowed to be."""
        return self.tolerance.is_absolute and not self.tolerance.allowed and self.error <= 1

    @property
    def passes(self) -> bool:
        """True if no error is above its limit."""
        return self._rows_pass and self._mean_passes

    @property
    def excess(self) -> tuple[float, float]:
        """The error that is above its limit, and the limit; else the largest error of a row and its limit."""
        if self._rows_pass and not self._mean_passes:
            return self.mean, self.tolerance.mean_of(prod(self.shape))
        return self.error, self.tolerance.allowed

    @property
    def text(self) -> str:
        """Text such as `by 0.5 of a row's largest value; 0.002 is allowed`."""
        error, limit = self.excess
        what = "" if self.tolerance.is_absolute or self.tolerance.is_exact else " of a row's largest value"
        if self._rows_pass:
            what = " of all values, as a root mean square"
            if self.tolerance.is_absolute:
                return f"by one in {error:.3g} of all values; {limit:.3g} is allowed"
        return f"by {error:.3g}{what}; {limit:.3g} is allowed"

    @property
    def deviation_limits(self) -> torch.Tensor:
        """Deviation that each row may have; if only the root mean square is too large, that."""
        if not self._rows_pass:
            return self.tolerance.allowed * self.scales
        mean = self._norms[0] / prod(self.shape) ** 0.5
        return torch.full_like(self.scales, mean * (1 - 1e-6))

    @cached_property
    def _norms(self) -> tuple[float, float]:
        if not self.blocks:
            return 0.0, 0.0
        norms = torch.stack([block.norms for block in self.blocks])
        deviation, value = torch.linalg.vector_norm(norms, dim=0).tolist()
        return deviation, value

    @property
    def _rows_pass(self) -> bool:
        return self.error <= self.tolerance.allowed

    @property
    def _mean_passes(self) -> bool:
        return self.tolerance.is_exact or self.mean <= self.tolerance.mean_of(prod(self.shape))


@dataclass(frozen=True)
class Element:
    """One element of an output that differs."""

    place: str
    """As `out[3, 17]`."""
    got: float
    expected: float

    @property
    def shown(self) -> str:
        """Text of both values."""
        return f"{self.got:.7g}, not {self.expected:.7g}"

    @property
    def is_unwritten(self) -> bool:
        """True if it is NaN, as an output that is not written."""
        return self.got != self.got and self.expected == self.expected


def rows_of(output: torch.Tensor, rows: slice) -> torch.Tensor:
    """Return rows of an output; an output without dims is one row."""
    return output[rows] if output.ndim else output


def first_above(
    output: torch.Tensor,
    expected: Callable[[slice], torch.Tensor],
    found: Difference,
    least: int,
) -> Element:
    """Return the first element, by its index, that differs by more than is allowed.

    Args:
        expected: returns rows of what is expected.
        least: as for `block_of`.
    """
    limits = found.deviation_limits
    number = _first_true(~(found.deviations <= limits))
    limit = float(limits[number])
    for block in found.blocks:
        if number < len(block.deviations):
            break
        number -= len(block.deviations)
    got, want = rows_of(output, block.rows), expected(block.rows)
    deviation = _deviations(got, want, found.tolerance).reshape(-1)
    width, together = _rows(got, least)
    start = number * width * together
    flat = start + _first_true(~(deviation[start:] <= limit))
    place = [int(index) for index in torch.unravel_index(torch.tensor(flat), got.shape)] if got.ndim else []
    index = [*(block.rows.start + row for row in place[:1]), *place[1:]]
    values = [float(_comparable(side).reshape(-1)[flat]) for side in (got, want)]
    return Element(f"{found.name}[{', '.join(map(str, index))}]" if index else found.name, values[0], values[1])


def _first_true(mask: torch.Tensor) -> int:
    return int(mask.view(torch.uint8).argmax())


def block_of(rows: slice, got: torch.Tensor, want: torch.Tensor, limit: Tolerance, least: int) -> Block:
    """Return the deviations of some rows.

    Args:
        least: fewest elements that share a scale.
    """
    deviation = _raw_deviations(got, want, limit)
    value = _comparable(want).to(deviation.dtype).abs()
    worst, largest = _largest_of_rows(deviation, least), _largest_of_rows(value, least)
    has_finite = True
    if not bool((worst + largest).isfinite().all()):  # rare, and several more passes over memory
        deviation = _settled(deviation, got, want, limit)
        finite = value.isfinite()
        has_finite = bool(finite.any())
        value = value.masked_fill(~finite, 0)
        worst, largest = _largest_of_rows(deviation, least), _largest_of_rows(value, least)
        deviation = deviation.masked_fill(~deviation.isfinite(), 0)
    norms = [torch.linalg.vector_norm(each.flatten(), dtype=torch.float64) for each in (deviation, value)]
    return Block(rows, worst, largest, torch.stack(norms), has_finite)


def _deviations(got: torch.Tensor, want: torch.Tensor, limit: Tolerance) -> torch.Tensor:
    """Return the absolute deviation of each element. For an exact kernel it is infinite if bits differ, but for NaN."""
    return _settled(_raw_deviations(got, want, limit), got, want, limit)


def _raw_deviations(got: torch.Tensor, want: torch.Tensor, limit: Tolerance) -> torch.Tensor:
    """Return the absolute deviation of each element; NaN or infinite if either is not finite."""
    if limit.is_exact:
        return torch.where(bits(got) != bits(want.to(got.dtype)), inf, 0.0)
    got, want = _comparable(got), _comparable(want)
    if not (want.is_floating_point() and got.is_floating_point()):
        return (got.double() - want.double()).abs_().clamp_(min=1.0).masked_fill_(got == want, 0)
    common = torch.promote_types(got.dtype, want.dtype)
    return (got.to(common) - want.to(common)).abs_()


def _settled(deviation: torch.Tensor, got: torch.Tensor, want: torch.Tensor, limit: Tolerance) -> torch.Tensor:
    """Return deviations that are 0 if both elements are NaN, or as infinite as the dtype makes them.

    Any NaN equals another, also for an exact kernel: instructions such as max.NaN return a NaN of their own.
    """
    if not (got.is_floating_point() and want.is_floating_point()):
        return deviation
    if limit.is_exact:
        return deviation.masked_fill(got.isnan() & want.isnan(), 0)
    rounded, got, want = _comparable(want.to(got.dtype)), _comparable(got), _comparable(want)
    same = _same(got, want) | (_same(got, rounded) & ~deviation.isfinite())
    return deviation.masked_fill(same, 0)


def _same(got: torch.Tensor, want: torch.Tensor) -> torch.Tensor:
    return (got == want) | (got.isnan() & want.isnan())


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in a dtype that can be compared: booleans as bytes, short floats in fp32."""
    if tensor.dtype == torch.bool:
        return tensor.view(torch.uint8)
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor


def _rows(output: torch.Tensor, least: int) -> tuple[int, int]:
    """Return the number of elements of a row along the last dim, and the number of rows taken together."""
    width = output.shape[-1] if output.ndim > 1 else 1
    return width, cdiv(least, width)


def _largest_of_rows(values: torch.Tensor, least: int) -> torch.Tensor:
    """Return the largest of each row, where rows too short are taken together; the last take the rest."""
    width, together = _rows(values, least)
    each = values.reshape(-1, width).amax(1)
    if together == 1:
        return each.double()
    count = max(1, len(each) // together)
    whole, rest = each[: count * together], each[count * together :]
    largest = whole.reshape(count, -1).amax(1)
    if len(rest):
        largest[-1] = torch.maximum(largest[-1], rest.amax())
    return largest.double()
