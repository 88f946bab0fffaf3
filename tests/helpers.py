"""What several tests need: toy kernels, cards that are not here, configs drawn by seed."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from tuner import catalog
from tuner.kernels.spec import Config, Kernel, Limits, Problem
from tuner.records import Device
from tuner.search.space import feasible

TOYS = Path(__file__).parent / "toys"
_DRAWS = 20_000
"""Of choices at random, until enough of them are feasible; going through all of gemm's takes half a second."""
OURS = ("gemm", "scaled_gemm", "softmax", "transpose")

H200 = Device("NVIDIA H200", (9, 0), 132, 150_754_820_096, 62_914_560, 232_448, "10de:2335")
A100 = Device("NVIDIA A100-SXM4-80GB", (8, 0), 108, 85_899_345_920, 41_943_040, 166_912, "10de:20b2")
B200 = Device("NVIDIA B200", (10, 0), 148, 191_501_041_664, 132_644_864, 232_448, "10de:2901")
RTX_4090 = Device("NVIDIA GeForce RTX 4090", (8, 9), 128, 25_757_220_864, 75_497_472, 101_376, "10de:2684")


def toy(name: str) -> str:
    """What names a toy kernel to the catalog."""
    return str(TOYS / f"{name}.py")


def resized(problem: Problem, **sizes: int) -> Problem:
    """A problem of sizes that no signature hands out: 0."""
    dims = tuple((name, sizes.get(name, size)) for name, size in problem.dims)
    return Problem(problem.op, dims, problem.dtype, problem.attributes, f"{problem.text} {sizes}")


def able(op: str, limits: Limits) -> bool:
    """Whether a card has the instructions that an op is made of."""
    return op != "scaled_gemm" or limits.capability >= (8, 9)


def drawn(kernel: Kernel, problem: Problem, limits: Limits, count: int, seed: int = 0) -> list[Config]:
    """So many feasible configs, the same every time. A small space gives all it has."""
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
    """Runs a config on fresh inputs and poisoned outputs: its error, and the error that would pass."""
    from tuner.measure import check, tensors

    operands = kernel.operands(problem)
    values: dict[str, Any] = tensors.allocate(operands, device)
    tensors.draw(operands, values, seed=1)
    kernel.vendor(problem, values)
    allowed = check.tolerance(kernel, problem, check.error(kernel, problem, values, tensors.written(operands, values)))
    tensors.poison(operands, values)
    work = tensors.workspace(kernel.workspace(problem, config, limits), device)
    for launch in kernel.launch(problem, config, {**values, **work}):
        launch()
    return check.error(kernel, problem, values, tensors.written(operands, values)), allowed


def problems(op: str, *, dtypes: tuple[str, ...] | None = None) -> Iterator[Problem]:
    """Odd problems of an op, sizes that no tile divides: every dtype at every size and with every set of attributes."""
    signature = catalog.load(op).signature
    by_op: dict[str, list[tuple[int, ...]]] = {
        "gemm": [(1, 1, 1), (3, 129, 127), (127, 129, 65), (128, 256, 64), (1, 300, 17), (100, 3, 130), (33, 48, 1032)],
        "scaled_gemm": [(1, 1, 1), (3, 129, 127), (127, 129, 65), (128, 256, 640), (16, 272, 528), (100, 48, 1040)],
        "softmax": [(1, 1), (3, 127), (129, 3), (127, 129), (5, 1000), (2, 4097)],
        "transpose": [(1, 1), (3, 127), (129, 3), (127, 129), (64, 128), (1, 300)],
    }
    for dtype in dtypes or signature.dtypes:
        attributes: list[dict[str, object]] = [{}]
        for attribute in signature.attributes:
            if not attribute.dtypes or dtype in attribute.dtypes:
                attributes = [{**given, attribute.name: choice} for given in attributes for choice in attribute.choices]
        sizes = by_op[op]
        pairs = [(size, attributes[0]) for size in sizes]
        pairs += [(sizes[index % len(sizes)], given) for index, given in enumerate(attributes[1:])]
        for size, given in pairs:
            dims = {dim.name: value for dim, value in zip(signature.dims, size, strict=True)}
            yield signature.problem({**dims, "dtype": dtype, **given})


def alive(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Waits until it holds, and fails if it does not in time."""
    end = monotonic() + seconds
    while not holds():
        assert monotonic() < end, "waited in vain"
        sleep(0.05)


def reaching(*folders: Path) -> dict[str, str]:
    """What lets a child import from these folders first, and from wherever this process was told to."""
    return {"PYTHONPATH": os.pathsep.join([*map(str, folders), *filter(None, [os.environ.get("PYTHONPATH")])])}
