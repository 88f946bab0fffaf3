"""The cost of a trial besides compiling and measuring: proposing, learning and storing it, in a search of 10,000.

    python benchmarks/bookkeeping.py --trials 10000

The measurer needs no time. Time is that of the whole loop with the commit to SQLite; memory is that of the process.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import deque
from collections.abc import Sequence
from itertools import product
from pathlib import Path
from time import monotonic, process_time

from tuner.db.store import Store
from tuner.kernels.spec import Config, Dim, Knob, Signature
from tuner.records import COLD, VENDOR, Comparison, Device, Environment, Evidence, Measurement, Outcome, Provenance
from tuner.search import DEFAULT_SAMPLER, SAMPLERS, Budget, search

KNOBS = {name: tuple(2**n for n in range(5)) for name in ("A", "B", "C", "D")} | {
    "E": (False, True),
    "F": ("x", "y", "z"),
    "num_warps": (1, 2, 4, 8),
    "num_stages": (1, 2, 3),
}
SCRIPTED = Signature("scripted", (Dim("N"),), ("fp32",), tuple(Knob(name, each) for name, each in KNOBS.items()))
HERE = Provenance(Device("none", (9, 0), 132, 1 << 37, 1 << 25, 232_448), Environment("3.6.0"), "0", COLD.text)


class AtOnce:
    """A measurer that needs no time; one config in fifty fails."""

    capacity = 20
    waits_for_device = False

    def __init__(self) -> None:
        self._waiting: deque[Config] = deque()

    def submit(self, config: Config) -> None:
        self._waiting.append(config)

    def next(self, timeout_s: float) -> Measurement | None:
        config = self._waiting.popleft()
        latency_us = self._latency_us(config)
        if int(latency_us * 1000) % 50 == 0:
            return Measurement(config, Outcome.COMPILE_ERROR, stage="compile", error="as scripted " * 10)
        return Measurement(config, Outcome.OK, (latency_us,) * 10, compiled_by="pool", registers=128, spills=0)

    def settle(self, timeout_s: float) -> Sequence[Measurement]:
        return ()

    def recheck(self, configs: Sequence[Config], seed: int) -> Sequence[Evidence | Measurement]:
        return [Evidence(0.0, 0.1, ("normal",), 17)] * len(configs)

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        once = (*map(self._latency_us, configs), 90.0)
        return Comparison((*(config.text for config in configs), VENDOR), (once,) * rounds)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def _latency_us(self, config: Config) -> float:
        """Return the latency of a config: a convex function with a few steps."""
        far = abs(config["A"] - 8) / 8 + abs(config["B"] - 4) / 8 + abs(config["C"] - config["D"]) / 16
        return 100.0 * float(1.0 + far + 0.3 * config["E"] + 0.1 * (config["F"] == "y") + 0.7 / config["num_warps"])


def memory_mb() -> float:
    """Return the resident memory of this process, in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


def run(trials: int, sampler: str, every: int) -> list[tuple[int, float, float, float]]:
    """Return a row after each `every` trials: trials, wall and CPU ms a trial since the row before, and MB."""
    names = [knob.name for knob in SCRIPTED.knobs]
    space = [
        SCRIPTED.config(dict(zip(names, each, strict=True))) for each in product(*(k.choices for k in SCRIPTED.knobs))
    ]
    rows: list[tuple[int, float, float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        store = Store.open(Path(folder) / "tuner.db")
        number = store.start_run(SCRIPTED, SCRIPTED.problem({"N": 1}), HERE, {"space": len(space)})
        seen, wall, cpu = 0, monotonic(), process_time()

        def on_trial(measurement: Measurement) -> None:
            nonlocal seen, wall, cpu
            store.add_trial(number, measurement)
            seen += 1
            if seen % every == 0:
                taken = (1000 * (monotonic() - wall) / every, 1000 * (process_time() - cpu) / every)
                rows.append((seen, *taken, memory_mb()))
                wall, cpu = monotonic(), process_time()

        search(space, None, AtOnce(), sampler=sampler, budget=Budget(trials), on_trial=on_trial)
        store.close()
    return rows


def main() -> None:
    """Print a line for each tenth of the trials."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=10_000)
    parser.add_argument("--sampler", choices=SAMPLERS, default=DEFAULT_SAMPLER)
    options = parser.parse_args()
    print("trials  ms a trial  of it CPU     MB")
    for seen, wall, cpu, held in run(options.trials, options.sampler, max(1, options.trials // 10)):
        print(f"{seen:6,}  {wall:10.2f}  {cpu:9.2f}  {held:5.0f}", flush=True)


if __name__ == "__main__":
    main()
