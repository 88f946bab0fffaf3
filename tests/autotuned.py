"""Autotuned functions whose launches are recorded in place of made, answers for them, and a card that is not there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from helpers import H200
from triton.runtime.jit import JITFunction

from tuner.captured.kernel import kernel_of
from tuner.captured.problem import problem_of_call
from tuner.client import Client
from tuner.db.store import Store
from tuner.kernels.spec import Value
from tuner.records import Answer, Comparison, Device, Environment, Provenance
from tuner.triton import Autotuner
from tuner.triton.context import Context
from tuner.triton.describe import describe
from tuner.triton.settings import AutotuneSettings

HERE = Environment("3.7.1", "12.8", "2.13.0", "580.1")
CONFIGS = [triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((64, 2), (128, 4), (256, 8))]


class Recorded(JITFunction[Any]):  # type: ignore[misc]
    """A jit function that notes its launches."""

    def __init__(self, fn: Any) -> None:
        super().__init__(fn)
        self.launches: list[dict[str, Any]] = []
        self.refuses: dict[str, Any] = {}
        """Launches with these values fail as a card's refusal does."""

    def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        """Note a launch."""
        values = {**dict(zip(self.arg_names, args, strict=False)), **kwargs}
        if self.refuses and all(values.get(name) == value for name, value in self.refuses.items()):
            raise triton.OutOfResources(300_000, 232_448, "shared memory")
        self.launches.append({**values, "grid": grid(values) if callable(grid) else grid})
        return len(self.launches)

    @property
    def blocks(self) -> list[Any]:
        """`BLOCK` of each launch."""
        return [launch["BLOCK"] for launch in self.launches]


def scale_(x, out, n, factor=2.0, BLOCK: tl.constexpr = 64):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n) * factor, mask=at < n)


def masked_(x, out, n, EVEN: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


def pair_(q, k, v, n, OUT: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    pass


def tiled_(  # type: ignore[no-untyped-def]
    x, n, m, SPLIT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, STEPS: tl.constexpr
):
    pass


scale: Any = None
"""The autotuned function of a test, at the top level of a module as a captured function is."""


@dataclass
class Card:
    """Cards that are not there, a store, and the context of functions on both."""

    path: Path
    patch: pytest.MonkeyPatch
    settings: AutotuneSettings = field(default_factory=AutotuneSettings)
    card: int = 0
    is_recording: bool = False
    devices: list[Device] = field(default_factory=lambda: [H200])

    def __post_init__(self) -> None:
        self.patch.setenv("TUNER_DB", str(self.path))
        for name in ("TUNER_AUTOTUNE", "TUNER_CAPTURE_VALUES", "TUNER_SNAPSHOT", "TUNER_URL", "TUNER_DISABLE"):
            self.patch.delenv(name, raising=False)
        self.patch.setattr("tuner.measure.device.count", lambda: len(self.devices))
        self.patch.setattr("tuner.measure.device.describe", lambda index: self.devices[index])
        self.patch.setattr("tuner.measure.device.environment", lambda index=0: HERE)
        self.client = Client()
        self.context = Context(
            self.client, self.settings, card=lambda: self.card, is_recording=lambda: self.is_recording
        )

    def tuner(
        self,
        function: Any = None,
        configs: list[triton.Config] | None = None,
        key: tuple[str, ...] = ("n",),
        name: str = "scale",
        **options: Any,
    ) -> Any:
        """Return an autotuned function, at the top level of this module."""
        fn = Recorded(scale_) if function is None else function
        tuner = Autotuner(
            fn, fn.arg_names, CONFIGS if configs is None else configs, list(key),
            options.pop("reset_to_zero", None), options.pop("restore_value", None), context=self.context, **options,
        )  # fmt: skip
        self.patch.setitem(globals(), name, tuner)
        return tuner

    def keep(self, tuner: Any, *args: Any, config: Mapping[str, Value], device: int = 0, **kwargs: Any) -> None:
        """Store an answer for a call."""
        call = describe(tuner, args, {"grid": (1,), **kwargs})
        kernel, problem = kernel_of(call, function=tuner), problem_of_call(call)
        here = Provenance(self.devices[device], HERE, kernel.source, "cold-events-1")
        known = kernel.signature.config(config)
        answer = Answer(problem, "tuned", known, 10.0, (9.9, 10.1), 1.25, (1.2, 1.3), 12.5, 9.75)
        store = Store.open(self.path)
        try:
            run = store.start_run(kernel.signature, problem, here, {"known": 0})
            store.add_answer(run, answer, here, "trials", {}, Comparison((known.text,), ((10.0,),)))
        finally:
            store.close()

    def captured(self) -> list[Any]:
        """Return the captured calls."""
        if not self.path.exists():
            return []
        store = Store.open(self.path)
        try:
            return store.captured.all()
        finally:
            store.close()


def tensors(n: int = 1000, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Return arguments of `scale`."""
    return torch.arange(n).to(dtype), torch.empty(n, dtype=dtype), n


def grid(meta: Mapping[str, Any]) -> tuple[int]:
    """Return the grid of `scale`."""
    return (triton.cdiv(meta["n"], meta["BLOCK"]),)
