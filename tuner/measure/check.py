"""Correctness of a kernel's outputs, by comparison with a reference that depends on no config.

Each output is compared over its own rows and by its own tolerance (`tolerance.py`). A row's error is its largest
deviation over its largest value, so it scales with the depth of a sum and with the dtype, and a wrong row of small
values does not hide beside large ones. The root mean square of all errors is limited too: it shows a factor that no
single element does. NaN and infinities stand where the reference has them. Kernels declared exact match bit for bit,
except that any NaN equals another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod

import torch

from tuner.errors import KernelFault
from tuner.kernels.spec import Kernel, Operand, Problem, cdiv
from tuner.measure import tensors
from tuner.measure.difference import Block, Difference, Element, block_of, first_above, rows_of
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


def differences(
    kernel: Kernel,
    problem: Problem,
    inputs: Tensors,
    outputs: Tensors,
    settings: CheckSettings = CHECK_SETTINGS,
    allowed: Mapping[str, Tolerance] | None = None,
) -> dict[str, Difference]:
    """Return the difference of each output from the reference of `inputs`.

    The reference runs in blocks of rows to limit its memory, for outputs of different first dims one after the other.

    Args:
        allowed: None are those beside a vendor without error.

    Raises:
        KernelFault: the reference returns no tensor for an output, or one of another shape.
    """
    allowed = tolerances(kernel, problem) if allowed is None else allowed
    found: dict[str, list[Block]] = {name: [] for name in outputs}
    for rows, names in _blocks(outputs, settings.block_elements):
        expected = kernel.reference(problem, inputs, rows)
        for name in names:
            got = rows_of(outputs[name], rows)
            want = _stated(kernel, expected, name, got)
            found[name].append(block_of(rows, got, want, allowed[name], settings.row_elements))
    return {
        name: Difference(name, allowed[name], tuple(outputs[name].shape), tuple(blocks))
        for name, blocks in found.items()
    }


def repeated(
    outputs: Tensors, first: Tensors, allowed: Mapping[str, Tolerance], settings: CheckSettings = CHECK_SETTINGS
) -> dict[str, Difference]:
    """Return the difference of each output from the first result of the same inputs; twice its tolerance passes."""
    allowed = {name: limit.between_two() for name, limit in allowed.items()}
    found = {}
    for name, output in outputs.items():
        blocks: list[Block] = []
        if not torch.equal(bits(output), bits(first[name])):
            for rows, _ in _blocks({name: output}, settings.block_elements):
                got, want = rows_of(output, rows), rows_of(first[name], rows)
                blocks.append(block_of(rows, got, want, allowed[name], settings.row_elements))
        found[name] = Difference(name, allowed[name], tuple(output.shape), tuple(blocks))
    return found


def differences_after(
    kernel: Kernel,
    problem: Problem,
    operands: Mapping[str, Operand],
    values: Tensors,
    run: Callable[[], object],
    settings: CheckSettings = CHECK_SETTINGS,
    allowed: Mapping[str, Tolerance] | None = None,
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
    return differences(kernel, problem, values, outputs, settings, allowed), outputs


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

    return first_above(output, expected, found, settings.row_elements)


def first_repeated(
    output: torch.Tensor, first: torch.Tensor, found: Difference, settings: CheckSettings = CHECK_SETTINGS
) -> Element:
    """Return the first element, by its index, that differs from the first result by more than is allowed."""
    return first_above(output, lambda rows: rows_of(first, rows), found, settings.row_elements)


def worst(found: Mapping[str, Difference]) -> Difference:
    """Return the first difference that fails, or that with the largest error relative to its limit."""
    for difference in found.values():
        if not difference.passes:
            return difference

    def relative(difference: Difference) -> float:
        return difference.error / difference.tolerance.allowed if difference.tolerance.allowed else 0.0

    return max(found.values(), key=relative)


def _stated(kernel: Kernel, expected: Mapping[str, torch.Tensor], name: str, got: torch.Tensor) -> torch.Tensor:
    """Return the reference's rows of an output, on the output's device.

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
