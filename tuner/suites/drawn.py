"""Random suites, `random:COUNT:SEED`: COUNT problems of each op, drawn by its kernel, with sizes as in models.

An op's problems depend on its name and the seed alone: neither on the other ops nor on COUNT, so the first 10 of
`random:20:7` are those of `random:10:7`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from random import Random

from tuner.errors import KernelFault, UsageError
from tuner.kernels.dtypes import dtype_name
from tuner.kernels.spec import Kernel, Problem
from tuner.suites.suite import Entry, Suite

FORM = "random:COUNT:SEED"
_MAX_REPEATS = 1000
"""Number of draws in a row without a new problem after which an op counts as exhausted."""


def is_random(name: str) -> bool:
    """Return whether the name of a suite is that of a random one."""
    return name.startswith("random:")


def draw_suite(name: str, kernels: Iterable[tuple[str, Kernel]], dtype: str | None = None) -> Suite:
    """Return the random suite called `name`.

    Args:
        kernels: References and kernels. A kernel without `draw` or the dtype is left out and named in the suite's note.
        dtype: Replaces the dtype of all problems.

    Raises:
        UsageError: The name has another form, no kernel draws such problems, or one draws too few different ones.
        KernelFault: A kernel's `draw` returns an invalid problem.
    """
    form = re.fullmatch(r"random:([1-9][0-9]{0,3}):([0-9]{1,18})", name)
    if form is None:
        raise UsageError(
            f"a random suite is {FORM} with 1 to 9999 problems of each op, such as random:20:7, not {name[:80]!r}"
        )
    count, seed = map(int, form.groups())
    wanted = None if dtype is None else dtype_name(dtype)
    entries, lacking = list[Entry](), list[str]()
    for reference, kernel in kernels:
        if kernel.draw is None:
            lacking.append(f"the kernel {reference} states no draw")
        elif wanted is not None and wanted not in kernel.signature.dtypes:
            lacking.append(f"{reference} has no dtype {wanted}")
        else:
            entries += (Entry(reference, kernel.signature, each) for each in _drawn(kernel, count, seed, wanted))
    if not entries:
        raise UsageError(f"{name} has problems that kernels draw, and {', '.join(lacking)}; give a suite file.json")
    return Suite(name, tuple(entries), f"Left out: {', '.join(lacking)}." if lacking else "")


def _drawn(kernel: Kernel, count: int, seed: int, dtype: str | None) -> Iterable[Problem]:
    """Return `count` different problems."""
    random, found, repeats = Random(f"{kernel.op} {seed}"), dict[str, Problem](), 0
    while len(found) < count:
        problem = _next(kernel, random, dtype)
        repeats = repeats + 1 if problem.text in found else 0
        found[problem.text] = problem
        if repeats == _MAX_REPEATS:
            raise UsageError(f"{kernel.op} draws {len(found)} different problems, not {count}; give a smaller COUNT")
    return found.values()


def _next(kernel: Kernel, random: Random, dtype: str | None) -> Problem:
    """Return the next problem, with this dtype unless it is None; attributes that the dtype excludes are dropped."""
    assert kernel.draw is not None
    try:
        problem = kernel.signature.problem(kernel.draw(random))
        kernel.operands(problem)  # which may refuse one too
    except UsageError as error:
        raise KernelFault(f"draw: {error}; correct it", getattr(kernel.draw, "place", "")) from error
    if dtype in (None, problem.dtype):
        return problem
    others = {each.name for each in kernel.signature.attributes if each.dtypes and dtype not in each.dtypes}
    values = {name: value for name, value in problem.values.items() if name not in others}
    return kernel.signature.problem({**values, "dtype": dtype})
