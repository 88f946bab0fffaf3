"""Whether a kernel's outputs are right: compared with a reference that depends on no config.

The error is `max|y - ref| / max|ref|`, so it scales with the depth of a sum and with the dtype. It may be four times
what the vendor's kernel has on the same inputs, or two units in the last place of the output's dtype (or of what the
products are rounded to, if that is coarser), whichever is larger. NaN and infinities must stand where the reference
has them. A kernel declared exact must match bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf, isfinite

import torch

from tuner.kernels.spec import Kernel, Problem
from tuner.measure.tensors import bits, dtype_of

_BLOCK_ELEMENTS = 2**25
"""Elements of the reference in memory at once: 256 MB in fp64."""


def error(
    kernel: Kernel, problem: Problem, inputs: Mapping[str, torch.Tensor], outputs: Mapping[str, torch.Tensor]
) -> float:
    """How far `outputs` are from the reference of `inputs`: 0 is perfect, infinite is wrong however one counts.

    Of several outputs it is the worst, each against its own largest value. The reference runs in blocks of rows, so
    that it needs little memory beside the outputs.
    """
    worst: dict[str, list[torch.Tensor]] = {name: [] for name in outputs}
    largest: dict[str, list[torch.Tensor]] = {name: [] for name in outputs}
    for rows in _blocks(outputs):
        expected = kernel.reference(problem, inputs, rows)
        for name, output in outputs.items():
            got, want = output[rows], expected[name]
            if kernel.exact:
                worst[name].append((bits(got) != bits(want)).any().double())
            else:
                got = got.to(want.dtype)
                same = (got == want) | (got.isnan() & want.isnan())
                worst[name].append(torch.where(same, 0, (got - want).abs()).amax().double())
                largest[name].append(torch.where(want.isfinite(), want.abs(), 0).amax().double())
    return max(_relative(worst[name], largest[name]) for name in outputs)


def _relative(worst: list[torch.Tensor], largest: list[torch.Tensor]) -> float:
    """The worst deviation of one output over its largest value, which are kept by block."""
    if not worst:
        return 0.0
    deviation = float(torch.stack(worst).amax())  # NaN where only one of the two is NaN
    if deviation == 0:
        return 0.0
    scale = float(torch.stack(largest).amax()) if largest else 0.0
    return deviation / scale if scale > 0 and isfinite(deviation) else inf


def deviation(kernel: Kernel, outputs: Mapping[str, torch.Tensor], first: Mapping[str, torch.Tensor]) -> float:
    """How far two results of the same inputs are apart, as `error` counts: 0 is bit for bit."""
    apart = 0.0
    for name, output in outputs.items():
        if torch.equal(bits(output), bits(first[name])):
            continue
        worst, largest = [], []
        for rows in _blocks({name: output}):
            got, want = (tensor[rows].double() for tensor in (output, first[name]))
            same = (got == want) | (got.isnan() & want.isnan())
            worst.append(torch.where(same, 0, (got - want).abs()).amax())
            largest.append(torch.where(want.isfinite(), want.abs(), 0).amax())
        apart = max(apart, inf if kernel.exact else _relative(worst, largest))
    return apart


def tolerance(kernel: Kernel, problem: Problem, vendor_error: float) -> float:
    """Largest error that passes, given the vendor kernel's own on the same inputs."""
    if kernel.exact:
        return 0.0
    written = [operand.dtype for operand in kernel.operands(problem).values() if operand.role != "in"]
    steps = [float(torch.finfo(dtype).eps) for dtype in map(dtype_of, written) if dtype.is_floating_point]
    return max(4 * vendor_error, 2 * max([*steps, kernel.rounding(problem)]))


def _blocks(outputs: Mapping[str, torch.Tensor]) -> Iterator[slice]:
    rows = next(iter(outputs.values())).shape[0]
    elements = max(output.numel() for output in outputs.values())
    if elements == 0:
        return
    step = max(1, _BLOCK_ELEMENTS * rows // elements)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))
