"""Time, power and clock of large matmuls that run without a pause: the default config and torch.

A card at its power limit lowers its clock. Then matmuls of equal energy take equal time, however they are scheduled.
On Hopper, `busy` is the share of the tensor cores' peak at the measured clock: 2,048 16-bit multiply-adds in each cycle
of a multiprocessor.

    python benchmarks/power.py --out power.json
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import torch
from headline import runner

from tuner import catalog
from tuner.kernels.spec import Problem
from tuner.measure import card, device, tensors

SIZES = ({"M": 4096}, {"M": 8192}, {"M": 4096, "N": 4096, "K": 14336})
FLOPS_A_CYCLE = 4096
"""Peak of one Hopper multiprocessor, in 16-bit operations a cycle."""
BATCH = 16
"""Number of launches between two readings of the card's state. As many are queued behind them."""


def run_for(seconds: float, launch: Callable[[], object], monitor: card.CardMonitor) -> dict[str, float]:
    """Launch without a pause. Return time, power and clock of the second half, in which they are steady."""
    batches: list[tuple[torch.cuda.Event, float, float]] = []
    settled = 0
    started = monotonic()
    while (elapsed := monotonic() - started) < seconds or len(batches) < settled + 2:
        for _ in range(BATCH):
            launch()
        done = torch.cuda.Event(enable_timing=True)
        done.record()
        if batches:
            batches[-1][0].synchronize()
        state = monitor.state()
        if state is None or state.power_w is None or state.sm_mhz is None:
            raise SystemExit("power and clock are read through NVML, which is not there; pip install nvidia-ml-py")
        batches.append((done, state.power_w, state.sm_mhz))
        if elapsed < seconds / 2:
            settled = len(batches)
    torch.cuda.synchronize()
    events, watts, clocks = zip(*batches[settled:], strict=True)
    between = [before.elapsed_time(after) * 1000 / BATCH for before, after in pairwise(events)]
    return {"us": median(between), "w": median(watts), "mhz": median(clocks)}


def measured(problem: Problem, seconds: float, repeats: int, monitor: card.CardMonitor) -> dict[str, dict[str, float]]:
    """Return medians over the repeats, in which the default and torch alternate."""
    kernel, limits = catalog.load(problem.op), device.describe(0).limits
    operands = kernel.operands(problem)
    assert kernel.vendor is not None
    values: dict[str, Any] = dict(tensors.allocate(operands, "cuda:0"))
    tensors.draw(operands, values, 0)
    ways: dict[str, Callable[[], object]] = {
        "default": runner(kernel, problem, kernel.default_config(problem, limits), values),
        "torch": partial(kernel.vendor, problem, values),
    }
    turns = [{name: run_for(seconds, launch, monitor) for name, launch in ways.items()} for _ in range(repeats)]
    flops = kernel.flops(problem) if kernel.flops is not None else 0
    found = {name: {key: median(turn[name][key] for turn in turns) for key in turns[0][name]} for name in ways}
    for values_of in found.values():
        at_most = FLOPS_A_CYCLE * limits.sm_count * values_of["mhz"] * 1e6
        if limits.capability[0] == 9:
            values_of["busy"] = flops / (values_of["us"] * 1e-6) / at_most
        values_of["mj"] = values_of["us"] * values_of["w"] / 1000
    return found


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, default=3.0, help="duration of a turn")
    options.add_argument("--repeats", type=int, default=2)
    options.add_argument("--out", type=Path, help="write what was measured as JSON")
    given = options.parse_args()
    monitor = card.open_monitor(device.bus_id(0))
    signature = catalog.load("gemm").signature
    report = {
        problem.text: measured(problem, given.seconds, given.repeats, monitor)
        for problem in map(signature.problem, SIZES)
    }
    print(f"{device.describe(0).name}, torch {torch.__version__}, each without a pause")
    for text, ways in report.items():
        print(text)
        for name, values in ways.items():
            spent = f"{values['us']:9.1f} us  {values['w']:4.0f} W  {values['mj']:7.1f} mJ"
            busy = f"  {values['busy']:.0%} busy" if "busy" in values else ""
            print(f"  {name:8}{spent}  {values['mhz']:5.0f} MHz{busy}")
    if given.out is not None:
        given.out.write_text(json.dumps(report, indent=2) + "\n")


if __name__ == "__main__":
    main()
