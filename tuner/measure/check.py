"""Correctness of a kernel's outputs, by comparison with a reference that depends on no config.

Each output is compared over its own rows and by its own tolerance (`tolerance.py`). A row's error is its largest
deviation over its largest value, so it scales with the depth of a sum and with the dtype, and a wrong row of small
values does not hide beside large ones. The root mean square of all errors is limited too: it shows a factor that no
single element does. NaN and infinities stand where the reference has them. Kernels declared exact match bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, isfinite, prod

import torch

from tuner.errors import KernelFault
from tuner.kernels.spec import Kernel, Operand, Problem, cdiv
from tuner.measure import tensors
from tuner.measure.tensors import bits
from tuner.measure.tolerance import Tolerance, tolerances

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class CheckSettings:
    """Extent of the correctness checks."""

    block_elements: int = 2**25
    """Number of elements of the reference held at once. Source: 256 MB in fp64."""
    row_elements: int = 16
    """Fewest elements that share a scale; shorter rows share one with those that follow. Source: chosen; the largest of
    16 random sums is below 1/16 of what is usual once in 10^20 rows."""
    inputs: tuple[str, ...] = ("normal", "normal", "special")
    """Kinds of inputs of a recheck. Source: the second set runs with its outputs at another address."""
    repeats: int = 16
    """Number of repeated launches on each set. Source: 51 launches miss one wrong launch in five once in 90,000."""
    alignment: int = 16
    """Alignment of the relocated outputs, in bytes. Source: the alignment that launches assume by default."""


CHECK_SETTINGS = CheckSettings()


@dataclass(frozen=True)
class Block:
    """Deviations of some rows of an output.

    `deviations` and `values` hold the largest deviation and the largest finite value of each row, where rows are along
    the last dim, and short ones are taken together.
    """

    rows: slice
    deviations: torch.Tensor
    values: torch.Tensor
    squares: tuple[float, float]
    """Root of the sum of the squares of all deviations, and of all values."""
    has_finite: bool


@dataclass(frozen=True)
class Difference:
    """Difference of one output from what is expected of it."""

    name: str
    tolerance: Tolerance
    shape: tuple[int, ...]
    blocks: tuple[Block, ...]

    @property
    def scales(self) -> torch.Tensor:
        """Value to which each row's error is relative; 1 for integers."""
        values = torch.cat([block.values for block in self.blocks])
        if self.tolerance.is_absolute:
            return torch.ones_like(values)
        least = self.tolerance.cancelled * float(values.amax())
        return values.clamp(min=max(least, self.tolerance.smallest))

    @property
    def deviations(self) -> torch.Tensor:
        """Largest deviation of each row: NaN or infinite if it is not finite where the other is."""
        return torch.cat([block.deviations for block in self.blocks])

    @property
    def error(self) -> float:
        """Largest error of a row; 0 for a match, and infinite if NaN or infinities differ."""
        if not self.blocks:
            return 0.0
        worst = self.deviations
        error = float(torch.where(worst == 0, 0, worst / self.scales).amax())
        return error if isfinite(error) else inf

    @property
    def mean(self) -> float:
        """Root mean square of all deviations over that of all values."""
        deviation, value = (sum(block.squares[index] ** 2 for block in self.blocks) ** 0.5 for index in (0, 1))
        scale = max(value, self.tolerance.smallest * prod(self.shape) ** 0.5)
        mean = deviation / scale if deviation and scale else 0.0
        return mean if isfinite(mean) else 0.0

    @property
    def has_finite(self) -> bool:
        """True if a value that is expected is finite, or there is none."""
        return not self.blocks or any(block.has_finite for block in self.blocks)

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
        what = "" if self.tolerance.is_absolute else " of a row's largest value"
        if self._rows_pass:
            what = " of all values, as a root mean square"
        return f"by {error:.3g}{what}; {limit:.3g} is allowed"

    @property
    def deviation_limits(self) -> torch.Tensor:
        """Deviation that each row may have; if only the root mean square is too large, that."""
        if not self._rows_pass:
            return self.tolerance.allowed * self.scales
        mean = sum(block.squares[0] ** 2 for block in self.blocks) ** 0.5 / prod(self.shape) ** 0.5
        return torch.full_like(self.scales, mean * (1 - 1e-6))

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


def differences(
    kernel: Kernel,
    problem: Problem,
    inputs: Tensors,
    outputs: Tensors,
    settings: CheckSettings = CHECK_SETTINGS,
    limits: Mapping[str, Tolerance] | None = None,
) -> dict[str, Difference]:
    """Return the difference of each output from the reference of `inputs`.

    The reference runs in blocks of rows to limit its memory, for outputs of different first dims one after the other.

    Args:
        limits: None are those beside a vendor without error.

    Raises:
        KernelFault: the reference returns no tensor for an output, or one of another shape.
    """
    limits = tolerances(kernel, problem) if limits is None else limits
    found: dict[str, list[Block]] = {name: [] for name in outputs}
    for rows, names in _blocks(outputs, settings.block_elements):
        expected = kernel.reference(problem, inputs, rows)
        for name in names:
            got = rows_of(outputs[name], rows)
            want = _stated(kernel, expected, name, got)
            found[name].append(_block(rows, got, want, limits[name], settings))
    return {
        name: Difference(name, limits[name], tuple(outputs[name].shape), tuple(blocks))
        for name, blocks in found.items()
    }


def repeated(
    outputs: Tensors, first: Tensors, limits: Mapping[str, Tolerance], settings: CheckSettings = CHECK_SETTINGS
) -> dict[str, Difference]:
    """Return the difference of each output from the first result of the same inputs; twice the limits are allowed."""
    limits = {name: limit.between_two() for name, limit in limits.items()}
    found = {}
    for name, output in outputs.items():
        blocks: list[Block] = []
        if not torch.equal(bits(output), bits(first[name])):
            for rows, _ in _blocks({name: output}, settings.block_elements):
                got, want = rows_of(output, rows), rows_of(first[name], rows)
                blocks.append(_block(rows, got, want, limits[name], settings))
        found[name] = Difference(name, limits[name], tuple(output.shape), tuple(blocks))
    return found


def differences_after(
    kernel: Kernel,
    problem: Problem,
    operands: Mapping[str, Operand],
    values: Tensors,
    run: Callable[[], object],
    settings: CheckSettings = CHECK_SETTINGS,
    limits: Mapping[str, Tolerance] | None = None,
) -> tuple[dict[str, Difference], Tensors]:
    """Return the differences of the outputs of `run` from the reference, and the outputs.

    Outputs are poisoned before; what the kernel overwrote is restored before the reference reads it.
    """
    restore = tensors.restorer(operands, values)
    tensors.poison(operands, values)
    run()
    outputs: Tensors = tensors.written(operands, values)
    if restore is not None:
        outputs = {name: tensor.clone() for name, tensor in outputs.items()}
        restore()
    return differences(kernel, problem, values, outputs, settings, limits), outputs


def error(
    kernel: Kernel, problem: Problem, inputs: Tensors, outputs: Tensors, settings: CheckSettings = CHECK_SETTINGS
) -> float:
    """Return the largest error of all outputs against the reference of `inputs`."""
    return max(found.error for found in differences(kernel, problem, inputs, outputs, settings).values())


def first_element(
    kernel: Kernel,
    problem: Problem,
    inputs: Tensors,
    output: torch.Tensor,
    found: Difference,
    settings: CheckSettings = CHECK_SETTINGS,
) -> Element:
    """Return the first element, by its index, that differs from the reference by more than is allowed."""

    def expected(rows: slice) -> torch.Tensor:
        return _stated(kernel, kernel.reference(problem, inputs, rows), found.name, rows_of(output, rows))

    return _first(output, expected, found, settings)


def first_repeated(
    output: torch.Tensor, first: torch.Tensor, found: Difference, settings: CheckSettings = CHECK_SETTINGS
) -> Element:
    """Return the first element, by its index, that differs from the first result by more than is allowed."""
    return _first(output, lambda rows: rows_of(first, rows), found, settings)


def worst(found: Mapping[str, Difference]) -> Difference:
    """Return the first difference that fails, or that with the largest error relative to its limit."""
    for difference in found.values():
        if not difference.passes:
            return difference

    def relative(difference: Difference) -> float:
        return difference.error / difference.tolerance.allowed if difference.tolerance.allowed else 0.0

    return max(found.values(), key=relative)


def rows_of(output: torch.Tensor, rows: slice) -> torch.Tensor:
    """Return rows of an output; an output without dims is one row."""
    return output[rows] if output.ndim else output


def _first(
    output: torch.Tensor,
    expected: Callable[[slice], torch.Tensor],
    found: Difference,
    settings: CheckSettings,
) -> Element:
    limits = found.deviation_limits
    number = int((~(found.deviations <= limits)).nonzero()[0])
    limit = float(limits[number])
    for block in found.blocks:
        if number < len(block.deviations):
            break
        number -= len(block.deviations)
    got, want = rows_of(output, block.rows), expected(block.rows)
    deviation = _deviations(got, want, found.tolerance).reshape(-1)
    width, together = _rows(got, settings.row_elements)
    start = number * width * together
    flat = start + int((~(deviation[start:] <= limit)).nonzero()[0])
    place = [int(index) for index in torch.unravel_index(torch.tensor(flat), got.shape)] if got.ndim else []
    index = [*(block.rows.start + row for row in place[:1]), *place[1:]]
    values = [float(_comparable(side).reshape(-1)[flat]) for side in (got, want)]
    return Element(f"{found.name}[{', '.join(map(str, index))}]" if index else found.name, values[0], values[1])


def _block(rows: slice, got: torch.Tensor, want: torch.Tensor, limit: Tolerance, settings: CheckSettings) -> Block:
    deviation = _deviations(got, want, limit)
    value = _comparable(want)
    finite = value.isfinite()
    value = value.to(deviation.dtype).abs().masked_fill_(~finite, 0)
    norms = [float(torch.linalg.vector_norm(each, dtype=torch.float64)) for each in (_finite(deviation), value)]
    return Block(
        rows,
        _largest_of_rows(deviation, settings.row_elements),
        _largest_of_rows(value, settings.row_elements),
        (norms[0], norms[1]),
        bool(finite.any()),
    )


def _deviations(got: torch.Tensor, want: torch.Tensor, limit: Tolerance) -> torch.Tensor:
    """Return the absolute deviation of each element; infinite for other bits of an exact kernel."""
    if limit.is_exact:
        return torch.where(bits(got) != bits(want.to(got.dtype)), inf, 0.0)
    got, want = _comparable(got), _comparable(want)
    if not (want.is_floating_point() and got.is_floating_point()):
        return (got.double() - want.double()).abs_().clamp_(min=1.0).masked_fill_(got == want, 0)
    got = got.to(want.dtype)
    same = (got == want) | (got.isnan() & want.isnan())
    return (got - want).abs_().masked_fill_(same, 0)


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor in a dtype that can be compared: booleans as bytes, short floats in fp32."""
    if tensor.dtype == torch.bool:
        return tensor.view(torch.uint8)
    return tensor.float() if tensor.is_floating_point() and tensor.element_size() < 4 else tensor


def _finite(deviation: torch.Tensor) -> torch.Tensor:
    return deviation if bool(deviation.isfinite().all()) else deviation.nan_to_num(0.0, 0.0, 0.0)


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


def _stated(kernel: Kernel, expected: Mapping[str, torch.Tensor], name: str, got: torch.Tensor) -> torch.Tensor:
    """Return the reference's rows of an output, on its device; booleans as the bytes 0 and 1.

    Raises:
        KernelFault: it has none, or rows of another shape: shapes never broadcast.
    """
    want, place = expected.get(name), getattr(kernel.reference, "place", "")
    if not isinstance(want, torch.Tensor):
        known = ", ".join(map(str, expected)) or "nothing"
        raise KernelFault(f"reference returns a tensor for each written operand, and {name} is not in {known}", place)
    if want.shape != got.shape:
        shapes = f"shape {tuple(got.shape)}, not {tuple(want.shape)}"
        raise KernelFault(f"reference returns the rows of {name} in {shapes}; correct it", place)
    return want.detach().to(got.device)


def _blocks(outputs: Tensors, block_elements: int) -> Iterator[tuple[slice, list[str]]]:
    """Yield slices of rows, and the outputs with as many rows in all.

    A slice has up to about `block_elements` elements of the output with the longest rows, and all have about as many.
    """
    together: dict[int, list[str]] = {}
    for name, output in outputs.items():
        if output.numel():
            together.setdefault(output.shape[0] if output.ndim else 1, []).append(name)
    longest = max((prod(output.shape[1:]) for output in outputs.values() if output.numel()), default=1)
    for rows, names in together.items():
        count = cdiv(rows, max(1, block_elements // longest))
        step = cdiv(rows, count)
        for start in range(0, rows, step):
            yield slice(start, min(start + step, rows)), names
