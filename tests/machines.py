"""A machine with a card as tests have it: a scripted driver, real processes, the kernel on torch's CPU."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from math import inf
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from helpers import H200, toy

from tuner.cli import cli
from tuner.measure.card import NoMonitor
from tuner.measure.processes import Child
from tuner.records import CardState, Environment, RooflineLimits

SLOW = RooflineLimits(0.001, {}, {"cold-events-1": 1e-3, "cold-graph-1": 1e-4, "warm-graph-1": 1e-4})
"""A card on which nothing is short enough for a graph."""
PROBLEM = ("--N", "4096")


class Busy(NoMonitor):
    """A card that somebody uses, for as many looks as told."""

    def __init__(self, looks: float = inf) -> None:
        self._looks = looks

    def state(self) -> CardState:  # type: ignore[override]
        self._looks -= 1
        return CardState(foreign=(4711,) if self._looks >= 0 else ())


class Machine:
    """Runs `tuner` in this process, with the driver's part scripted."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.db = folder / "tuner.db"
        self.roofline_limits = SLOW
        self.surveys = self.pools = 0
        self.started: list[int] = []
        self.children: list[Child] = []
        self._patch = patch
        patch.setenv("TRITON_CACHE_DIR", str(folder / "cache"))
        patch.setenv("PYTHONPATH", str(Path(__file__).parent), prepend=os.pathsep)
        patch.setenv("TUNER_DB", str(self.db))
        patch.setattr("tuner.measure.device.count", lambda: 1)
        patch.setattr("tuner.measure.device.describe", lambda index: H200)
        patch.setattr(
            "tuner.measure.device.environment", lambda index=0: Environment("3.7.1", "12.8", "2.13.0", "580.1")
        )
        patch.setattr("tuner.measure.device.bus_id", lambda index: "0000:1b:00.0")
        patch.setattr("tuner.tuning.gpu.lock_path", lambda address: folder / "card.lock")
        patch.setattr("tuner.tuning.gpu.open_monitor", lambda address: NoMonitor())
        patch.setattr("tuner.measure.worker_pool.start_worker", self._start)
        patch.setattr("tuner.measure.compile_pool.Child", self._pool)
        patch.setattr("tuner.tuning.gpu.measure_roofline_limits", self._survey)

    def _start(self, gpu: int, module: str = "", python: str | None = None, *, watches: bool = True) -> Child:
        self.started.append(gpu)
        self.children.append(Child("cpu_worker", python=python))
        return self.children[-1]

    def _pool(self, module: str, python: str | None = None) -> Child:
        self.pools += 1
        self.children.append(Child(module, python=python))
        return self.children[-1]

    def _survey(self, worker: Child) -> RooflineLimits:
        self.surveys += 1
        return self.roofline_limits

    def cards(self, folder: Path, count: int) -> None:
        self._patch.setattr("tuner.measure.device.count", lambda: count)
        self._patch.setattr("tuner.measure.device.bus_id", lambda index: f"0000:0{index}:00.0")
        self._patch.setattr("tuner.tuning.gpu.lock_path", lambda address: folder / f"{address}.lock")

    def card(self, look: Callable[[str], Any]) -> None:
        self._patch.setattr("tuner.tuning.gpu.open_monitor", look)

    def __call__(self, command: str, *options: str) -> Result:
        return CliRunner().invoke(cli, [command, toy("on_torch"), *PROBLEM, *options], standalone_mode=False)

    def json(self, command: str, *options: str) -> dict[str, Any]:
        done = self(command, *options, "--json")
        assert done.exception is None, done.exception
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def write(self, statement: str) -> None:
        with closing(sqlite3.connect(self.db)) as connection, connection:
            connection.execute(statement)
