"""Test problems and planted bugs of an op, from `kernels/problems/OP.json`, for the tests that run over all ops.

- `odd`: small problems that no tile divides. Attributes and dtypes that a problem does not state are drawn by seed.
- `large`: problems of which the default must be feasible; the first, a usual one, is also compiled.
- `on_card`: odd problems that are too large for Triton's interpreter.
- `huge`: a problem with more than 2^31 elements, of which the default is checked on a card.
- `card_only`: values of knobs whose programs wait for each other, which the interpreter cannot run.
- `planted`: bugs that the correctness check must find: the text `old` of a file in `kernels` becomes `new`; `problem`
  and a part of `config` are where it shows.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from shutil import copytree, ignore_patterns
from typing import Any

import tuner.kernels
from tuner.kernels.spec import Kernel

KERNELS = Path(tuner.kernels.__file__).parent
_FOLDER = Path(__file__).parent / "kernels" / "problems"
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Planted:
    """A bug in a copy of a kernel."""

    file: str
    old: str
    new: str
    problem: Values
    config: Values

    def kernel(self, op: str, folder: Path) -> Kernel:
        """Return the kernel with the bug, imported from a copy in an empty folder."""
        for package in (op, "shared"):
            copytree(KERNELS / package, folder / package, ignore=ignore_patterns("__pycache__"))
        copy = folder / self.file
        text = copy.read_text()
        assert text.count(self.old) == 1, f"{self.file} has the text {text.count(self.old)} times: {self.old}"
        copy.write_text(text.replace(self.old, self.new))
        return _imported(op, folder)


@dataclass(frozen=True)
class StatedTests:
    """The contents of an op's file."""

    odd: tuple[Values, ...] = ()
    large: tuple[Values, ...] = ()
    on_card: tuple[Values, ...] = ()
    huge: Values | None = None
    card_only: Mapping[str, tuple[Any, ...]] | None = None
    planted: tuple[Planted, ...] = ()

    def interpretable(self, config: Values) -> bool:
        """Return whether no value of a config needs a card."""
        return not any(config.get(name) in values for name, values in (self.card_only or {}).items())


@cache
def stated_tests(op: str) -> StatedTests:
    """Return what an op states; nothing if it has no file."""
    file = _FOLDER / f"{op}.json"
    if not file.exists():
        return StatedTests()
    document: dict[str, Any] = json.loads(file.read_text())
    bugs = (Planted(**{"problem": {}, "config": {}, **bug}) for bug in document.pop("planted", []))
    return StatedTests(**document, planted=tuple(bugs))


def _imported(op: str, folder: Path) -> Kernel:
    """Import an op and the shared device code from a folder, and leave the modules of the package as they were."""
    packages = (f"tuner.kernels.{op}", "tuner.kernels.shared")

    def taken() -> dict[str, Any]:
        names = [name for name in sys.modules if any(f"{name}.".startswith(f"{package}.") for package in packages)]
        return {name: sys.modules.pop(name) for name in names}

    before, path = taken(), tuner.kernels.__path__
    attributes = {name: getattr(tuner.kernels, name) for name in (op, "shared") if hasattr(tuner.kernels, name)}
    tuner.kernels.__path__ = [str(folder), *path]
    try:
        kernel = import_module(packages[0]).KERNEL
        assert isinstance(kernel, Kernel)
        return kernel
    finally:
        tuner.kernels.__path__ = path
        taken()
        sys.modules.update(before)
        for name, module in attributes.items():
            setattr(tuner.kernels, name, module)
