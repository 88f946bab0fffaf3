"""The toy `on_torch` with further vendors, each of its own fault, which real workers find."""

import os
from dataclasses import replace
from pathlib import Path

from tuner import catalog


def returning(problem, tensors):
    return {"out": tensors["x"] * 2}


def wrong(problem, tensors):
    return {"out": tensors["x"] * 3}


def spoiling(problem, tensors):
    tensors["out"].copy_(tensors["x"].mul_(2))


def misnamed(problem, tensors):
    return {"y": tensors["x"] * 2}


def missing(problem, tensors):
    import a_library_that_is_not_installed  # noqa: F401


def refusing(problem, tensors):
    raise NotImplementedError("it takes no vectors")


def ending(problem, tensors):
    os._exit(3)


KERNEL = replace(
    catalog.resolve(str(Path(__file__).with_name("on_torch.py"))),
    vendors={each.__name__: each for each in (returning, wrong, spoiling, misnamed, missing, refusing, ending)},
)
