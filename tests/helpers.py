"""Shared by tests: toy kernels, descriptions of cards, and configs drawn by seed."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import inf, prod
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from stated_tests import stated_tests

from tuner import catalog
from tuner.errors import KernelFault, UsageError
from tuner.kernels.spec import Config, Kernel, Limits, Problem, Signature, Value
from tuner.records import Device

TOYS = Path(__file__).parent / "toys"
_DRAWS = 1000
"""Random draws for each feasible config that is wanted, at most; then the space of 10^5 combinations is enumerated."""
_ODD = (1, 127, 3, 129, 64, 300, 1)
"""Sizes of the dims of an op that states no test problems."""
_SETS = 24
"""Largest number of sets of attributes, for each dtype."""
OURS = tuple(catalog.shipped())
OPS = ", ".join(OURS)
"""Our ops as messages list them."""

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
        kernel.default(usual(op), limits)
    except UsageError:
        return False
    return True


def drawn(
    kernel: Kernel, problem: Problem, limits: Limits, count: int, seed: int = 0, given: Mapping[str, Value] = {}
) -> list[Config]:
    """Return `count` feasible configs by seed, or all if there are fewer; `given` are values that each of them has."""
    dice = random.Random(seed)
    found: dict[Config, None] = {}
    parts = _parts(kernel, given)
    combinations = sum(prod(map(len, part.values())) for part in parts)
    for _ in range(min(_DRAWS * count, combinations // 4)):
        part = dice.choice(parts)
        values = {name: dice.choice(choices) for name, choices in part.items()}
        if kernel.valid(problem, values, limits):
            found[kernel.signature.config(values)] = None
            if len(found) == count:
                return list(found)
    every = (dict(zip(part, choice, strict=True)) for part in parts for choice in product(*part.values()))
    space = [kernel.signature.config(values) for values in every if kernel.valid(problem, values, limits)]
    return dice.sample(space, min(count, len(space)))


def _parts(kernel: Kernel, given: Mapping[str, Value]) -> list[dict[str, tuple[Value, ...]]]:
    """Return the choices of each knob in each part that has the given values."""
    parts = [{knob.name: part.get(knob.name, knob.choices) for knob in kernel.signature.knobs} for part in kernel.parts]
    having = [part for part in parts if all(value in part[name] for name, value in given.items())]
    return [{**part, **{name: (value,) for name, value in given.items()}} for part in having]


def wrongness(
    kernel: Kernel, problem: Problem, config: Config, device: str, limits: Limits = H200.limits
) -> tuple[float, float]:
    """Run a config on fresh inputs and poisoned outputs. Return the worst output's error and its tolerance.

    The error is infinite if the root mean square of an output's errors is above its own limit.
    """
    from tuner.measure import check, tensors
    from tuner.measure.tolerance import tolerances

    operands = kernel.operands(problem)
    values: dict[str, Any] = tensors.allocate(operands, device)
    tensors.draw(operands, values, seed=1)
    assert kernel.vendor is not None
    returned = kernel.vendor(problem, values)
    for name, tensor in returned.items() if isinstance(returned, Mapping) else ():
        values[name].copy_(tensor)
    vendor = check.differences(kernel, problem, values, tensors.written(operands, values))
    allowed = {name: limit.beside(vendor[name].error) for name, limit in tolerances(kernel, problem).items()}
    work = tensors.workspace(kernel.workspace(problem, config, limits), device)

    def run() -> None:
        for launch in kernel.launch(problem, config, {**values, **work}):
            launch()

    found, _ = check.differences_after(kernel, problem, operands, values, run, allowed=allowed)
    worst = check.worst(found)
    return worst.error if worst.passes or worst.error > worst.tolerance.allowed else inf, worst.tolerance.allowed


def usual(op: str, **values: object) -> Problem:
    """Return a usual problem of an op: the first large one that it states, with some values replaced."""
    signature = catalog.load(op).signature
    stated = stated_tests(op).large or [{dim.name: 64 for dim in signature.dims}]
    return signature.problem({**stated[0], **values})


def possible(kernel: Kernel, values: Mapping[str, object]) -> Problem | None:
    """Return the problem with these values, or None if the op has none, such as a window larger than its image."""
    try:
        problem = kernel.signature.problem(values)
        kernel.operands(problem)
    except (UsageError, KernelFault):
        return None
    return problem


def problems(op: str, *, dtypes: tuple[str, ...] | None = None) -> Iterator[Problem]:
    """Yield problems with sizes that no tile divides: each dtype at each size, and with sets of attributes.

    Attributes that a stated problem leaves open take all combinations of their choices, or a sample by seed.
    """
    kernel = catalog.load(op)
    signature = kernel.signature
    dims = [dim.name for dim in signature.dims]
    sizes: Sequence[Mapping[str, object]] = stated_tests(op).odd or [
        dict(zip(dims, _ODD[first:], strict=False)) for first in range(4)
    ]
    for dtype in dtypes or signature.dtypes:
        own = [given for given in sizes if given.get("dtype", dtype) == dtype]
        made = [signature.problem({**given, "dtype": dtype}) for given in own]
        sets = _attribute_sets(signature, dtype) if own else []
        drawn = [possible(kernel, {**given, **own[n % len(own)], "dtype": dtype}) for n, given in enumerate(sets)]
        yield from dict.fromkeys([*made, *(problem for problem in drawn if problem is not None)])


def _attribute_sets(signature: Signature, dtype: str) -> list[dict[str, object]]:
    """Return all combinations of the choices of attributes, or a sample of them by seed."""
    attributes = [each for each in signature.attributes if not each.dtypes or dtype in each.dtypes]
    choices = {each.name: each.choices or (each.default,) for each in attributes}
    total = prod(map(len, choices.values()))
    places = range(total) if total <= _SETS else random.Random(f"{signature.op} {dtype}").sample(range(total), _SETS)
    sets = []
    for place in places:
        given: dict[str, object] = {}
        for name, values in choices.items():
            place, choice = divmod(place, len(values))
            given[name] = values[choice]
        sets.append(given)
    return sets


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
