"""Shared by tests: toy kernels, descriptions of cards, and configs drawn by seed."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tuner import catalog
from tuner.errors import UsageError
from tuner.kernels.spec import Config, Kernel, Limits, Problem
from tuner.records import Device
from tuner.search.space import feasible

TOYS = Path(__file__).parent / "toys"
_DRAWS = 20_000
"""Largest number of random draws for a sample of feasible configs; enumerating gemm's space takes 0.5 s."""
OURS = tuple(catalog.shipped())
SIZES: dict[str, list[tuple[int, ...]]] = {
    "gemm": [(1, 1, 1), (3, 129, 127), (127, 129, 65), (128, 256, 64), (1, 300, 17), (100, 3, 130), (33, 48, 1032)],
    "scaled_gemm": [(1, 1, 1), (3, 129, 127), (127, 129, 65), (128, 256, 640), (16, 272, 528), (100, 48, 1040)],
    "softmax": [(1, 1), (3, 127), (129, 3), (127, 129), (5, 1000), (2, 4097)],
    "transpose": [(1, 1), (3, 127), (129, 3), (127, 129), (64, 128), (1, 300)],
}
"""Odd sizes of the dims of an op; an op that is not listed takes neighbours of `_ODD`."""
_ODD = (1, 127, 3, 129, 64, 300, 1)

H200 = Device("NVIDIA H200", (9, 0), 132, 150_754_820_096, 62_914_560, 232_448, "10de:2335")
A100 = Device("NVIDIA A100-SXM4-80GB", (8, 0), 108, 85_899_345_920, 41_943_040, 166_912, "10de:20b2")
B200 = Device("NVIDIA B200", (10, 0), 148, 191_501_041_664, 132_644_864, 232_448, "10de:2901")
RTX_4090 = Device("NVIDIA GeForce RTX 4090", (8, 9), 128, 25_757_220_864, 75_497_472, 101_376, "10de:2684")


def toy(name: str) -> str:
    """Return the reference of a toy kernel for the catalog."""
    return str(TOYS / f"{name}.py")


def resized(problem: Problem, **sizes: int) -> Problem:
    """Return a problem with sizes that no signature allows, such as 0."""
    dims = tuple((name, sizes.get(name, size)) for name, size in problem.dims)
    return Problem(problem.op, dims, problem.dtype, problem.attributes, f"{problem.text} {sizes}")


def able(op: str, limits: Limits) -> bool:
    """Return whether a card has the instructions that an op needs; a default is refused otherwise."""
    kernel = catalog.load(op)
    try:
        kernel.default(kernel.signature.problem({dim.name: 64 for dim in kernel.signature.dims}), limits)
    except UsageError:
        return False
    return True


def drawn(kernel: Kernel, problem: Problem, limits: Limits, count: int, seed: int = 0) -> list[Config]:
    """Return `count` feasible configs by seed, or all of a smaller space."""
    dice = random.Random(seed)
    found: dict[Config, None] = {}
    for _ in range(_DRAWS):
        part = dice.choice(kernel.parts)
        values = {knob.name: dice.choice(part.get(knob.name, knob.choices)) for knob in kernel.signature.knobs}
        if kernel.valid(problem, values, limits):
            found[kernel.signature.config(values)] = None
            if len(found) == count:
                return list(found)
    space = list(feasible(kernel, problem, limits))
    return dice.sample(space, min(count, len(space)))


def wrongness(
    kernel: Kernel, problem: Problem, config: Config, device: str, limits: Limits = H200.limits
) -> tuple[float, float]:
    """Run a config on fresh inputs and poisoned outputs. Return its error and the tolerance."""
    from tuner.measure import check, tensors
    from tuner.measure.tolerance import tolerances

    operands = kernel.operands(problem)
    values: dict[str, Any] = tensors.allocate(operands, device)
    tensors.draw(operands, values, seed=1)
    assert kernel.vendor is not None
    kernel.vendor(problem, values)
    vendor_error = check.error(kernel, problem, values, tensors.written(operands, values))
    allowed = min(limit.beside(vendor_error).allowed for limit in tolerances(kernel, problem).values())
    tensors.poison(operands, values)
    work = tensors.workspace(kernel.workspace(problem, config, limits), device)
    for launch in kernel.launch(problem, config, {**values, **work}):
        launch()
    return check.error(kernel, problem, values, tensors.written(operands, values)), allowed


def problems(op: str, *, dtypes: tuple[str, ...] | None = None) -> Iterator[Problem]:
    """Yield problems with sizes that no tile divides: each dtype at each size and with each set of attributes."""
    signature = catalog.load(op).signature
    sizes = SIZES.get(op) or [_ODD[first : first + len(signature.dims)] for first in range(4)]
    for dtype in dtypes or signature.dtypes:
        attributes: list[dict[str, object]] = [{}]
        for attribute in signature.attributes:
            if not attribute.dtypes or dtype in attribute.dtypes:
                choices = attribute.choices or (attribute.default,)
                attributes = [{**given, attribute.name: choice} for given in attributes for choice in choices]
        pairs = [(size, attributes[0]) for size in sizes]
        pairs += [(sizes[index % len(sizes)], given) for index, given in enumerate(attributes[1:])]
        for size, given in pairs:
            dims = {dim.name: value for dim, value in zip(signature.dims, size, strict=True)}
            yield signature.problem({**dims, "dtype": dtype, **given})


def alive(pid: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until a condition holds. Fail if it does not in time."""
    end = monotonic() + seconds
    while not holds():
        assert monotonic() < end, f"the condition does not hold after {seconds:g} s"
        sleep(0.05)


def reaching(*folders: Path) -> dict[str, str]:
    """Return the environment in which a child imports from these folders, then from this process's PYTHONPATH."""
    return {"PYTHONPATH": os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])}
