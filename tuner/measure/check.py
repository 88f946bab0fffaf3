"""Correctness of a kernel's outputs, by comparison with a reference that depends on no config.

The error is `max|y - ref| / max|ref|`, so it scales with the depth of a sum and with the dtype. The tolerance is four
times the error of the vendor's kernel on the same inputs, or two units in the last place of the output's dtype (or of
the dtype to which the products are rounded, if that is coarser), whichever is larger. NaN and infinities must stand
where the reference has them. A kernel declared exact must match bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, isfinite

import torch

from tuner.errors import KernelFault
from tuner.kernels.spec import Kernel, Operand, Problem
from tuner.measure import tensors
from tuner.measure.tensors import bits, dtype_of


@dataclass(frozen=True)
class CheckSettings:
    """Extent of the correctness checks."""

    block_elements: int = 2**25
    """Number of elements of the reference held at once. Source: 256 MB in fp64."""
    inputs: tuple[str, ...] = ("normal", "normal", "special")
    """Kinds of inputs of a recheck. Source: the second set runs with its outputs at another address."""
    repeats: int = 16
    """Number of repeated launches on each set. Source: 51 launches miss one wrong launch in five once in 90,000."""
    alignment: int = 16
    """Alignment of the relocated outputs, in bytes. Source: the alignment that launches assume by default."""


CHECK_SETTINGS = CheckSettings()


def error(
    kernel: Kernel,
    problem: Problem,
    inputs: Mapping[str, torch.Tensor],
    outputs: Mapping[str, torch.Tensor],
    settings: CheckSettings = CHECK_SETTINGS,
) -> float:
    """Return the relative error of `outputs` against the reference of `inputs`.

    It is 0 for a match and infinite if NaN or infinities differ. Of several outputs it is the largest error, each
    relative to its own largest value. The reference runs in blocks of rows to limit its memory.
    """
    worst: dict[str, list[torch.Tensor]] = {name: [] for name in outputs}
    largest: dict[str, list[torch.Tensor]] = {name: [] for name in outputs}
    for rows in _blocks(outputs, settings.block_elements):
        expected = kernel.reference(problem, inputs, rows)
        for name, output in outputs.items():
            got, want = output[rows], _stated(kernel, expected, name, output[rows])
            if kernel.exact:
                worst[name].append((bits(got) != bits(want)).any().double())
            else:
                difference, value = _extremes(got.to(want.dtype), want)
                worst[name].append(difference)
                largest[name].append(value)
    return max(_relative(worst[name], largest[name]) for name in outputs)


def error_after(
    kernel: Kernel,
    problem: Problem,
    operands: Mapping[str, Operand],
    values: Mapping[str, torch.Tensor],
    run: Callable[[], object],
    settings: CheckSettings = CHECK_SETTINGS,
) -> tuple[float, Mapping[str, torch.Tensor]]:
    """Return the error of the outputs of `run`, and the outputs.

    Outputs are poisoned before; what the kernel overwrote is restored before the reference reads it.
    """
    restore = tensors.restorer(operands, values)
    tensors.poison(operands, values)
    run()
    outputs = tensors.written(operands, values)
    if restore is not None:
        outputs = {name: tensor.clone() for name, tensor in outputs.items()}
        restore()
    return error(kernel, problem, values, outputs, settings), outputs


def _extremes(got: torch.Tensor, want: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest deviation of `got`, and the largest finite value of `want`."""
    same = (got == want) | (got.isnan() & want.isnan())
    difference = torch.where(same, 0, (got - want).abs()).amax()
    return difference.double(), torch.where(want.isfinite(), want.abs(), 0).amax().double()


def _stated(kernel: Kernel, expected: Mapping[str, torch.Tensor], name: str, got: torch.Tensor) -> torch.Tensor:
    """Return the reference's rows of an output.

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
    return want


def _relative(worst: list[torch.Tensor], largest: list[torch.Tensor]) -> float:
    """Return one output's largest deviation over its largest value, both given by block."""
    if not worst:
        return 0.0
    deviation = float(torch.stack(worst).amax())  # NaN if only one of the two is NaN
    if deviation == 0:
        return 0.0
    scale = float(torch.stack(largest).amax()) if largest else 0.0
    return deviation / scale if scale > 0 and isfinite(deviation) else inf


def deviation(
    kernel: Kernel,
    outputs: Mapping[str, torch.Tensor],
    first: Mapping[str, torch.Tensor],
    settings: CheckSettings = CHECK_SETTINGS,
) -> float:
    """Return the relative deviation between two results of the same inputs; 0 if they match bit for bit."""
    largest_deviation = 0.0
    for name, output in outputs.items():
        if torch.equal(bits(output), bits(first[name])):
            continue
        worst, largest = [], []
        for rows in _blocks({name: output}, settings.block_elements):
            difference, value = _extremes(output[rows].double(), first[name][rows].double())
            worst.append(difference)
            largest.append(value)
        largest_deviation = max(largest_deviation, inf if kernel.exact else _relative(worst, largest))
    return largest_deviation


def tolerance(kernel: Kernel, problem: Problem, vendor_error: float) -> float:
    """Return the largest error that passes, given the vendor kernel's error on the same inputs."""
    if kernel.exact:
        return 0.0
    written = [operand.dtype for operand in kernel.operands(problem).values() if operand.role != "in"]
    steps = [float(torch.finfo(dtype).eps) for dtype in map(dtype_of, written) if dtype.is_floating_point]
    return max(4 * vendor_error, 2 * max([*steps, kernel.rounding(problem)]))


def _blocks(outputs: Mapping[str, torch.Tensor], block_elements: int) -> Iterator[slice]:
    """Yield slices of rows with about `block_elements` elements of the largest output each."""
    rows = next(iter(outputs.values())).shape[0]
    elements = max(output.numel() for output in outputs.values())
    if elements == 0:
        return
    step = max(1, block_elements * rows // elements)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
