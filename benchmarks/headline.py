"""The numbers that the README quotes, on the GPU of this machine.

For each problem, `--repeats` times: a search from the shell with empty caches, then an interleaved comparison of its
answer with the best of the recorded space, the kernel's default, torch, and a device copy of as many bytes. The table
shows the worst of the repeats. A later run continues from the results in `--out`.

    python benchmarks/headline.py --repeats 3 --out headline.json
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any

import torch

from tuner import catalog, recorded
from tuner.kernels.spec import Config, Kernel, Problem
from tuner.measure import device, tensors
from tuner.measure.clock import EventClock
from tuner.records import median

PROBLEMS: list[tuple[str, dict[str, object]]] = [
    ("gemm", {"M": 4096}),
    ("gemm", {"M": 16, "N": 4096, "K": 4096}),
    ("softmax", {"M": 8192}),
    ("transpose", {"M": 8192}),
]
PAD = {"TILE_M": 64, "TILE_N": 64, "VEC": 1, "num_warps": 4, "num_stages": 1}
ROUNDS = 40


def search_from_the_shell(problem: Problem, seed: int) -> tuple[dict[str, Any], float]:
    """Return the answer of `tuner search` with empty cache and store, and its duration in s."""
    with tempfile.TemporaryDirectory() as folder:
        options = [f"--{name}={value}" for name, value in problem.values.items()]
        command = [sys.executable, "-P", "-m", "tuner", "search", problem.op, *options, "--json", f"--seed={seed}"]
        environment = os.environ | {"TRITON_CACHE_DIR": f"{folder}/cache", "TUNER_DB": f"{folder}/tuner.db"}
        started = monotonic()
        printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE).stdout
        return json.loads(printed), monotonic() - started


def compare(contenders: dict[str, Callable[[], object]], seed: int) -> dict[str, list[float]]:
    """Time contenders in interleaved rounds. Return their latencies in us."""
    clock = EventClock("cuda:0")
    timers = {name: clock.timer([run]) for name, run in contenders.items()}
    order = random.Random(seed)
    latencies: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name in order.sample(list(contenders), len(contenders)):
            latencies[name].append(median(timers[name](3)))
    return latencies


def over(latencies: dict[str, list[float]], a: str, b: str) -> float:
    """Return the median ratio of a's latency to b's, round by round."""
    return median([x / y for x, y in zip(latencies[a], latencies[b], strict=True)])


def runner(kernel: Kernel, problem: Problem, config: Config, values: dict[str, Any]) -> Callable[[], object]:
    """Return a function that launches one config, which is compiled and has run once."""
    limits = device.describe(0).limits
    work = tensors.workspace(kernel.workspace(problem, config, limits), "cuda:0")
    launches = kernel.launch(problem, config, {**values, **work})

    def run() -> None:
        for launch in launches:
            launch()

    run()
    return run


def measure(op: str, given: dict[str, object], seed: int) -> dict[str, Any]:
    """Measure one problem once."""
    kernel = catalog.load(op)
    problem = kernel.signature.problem(given)
    answer, seconds = search_from_the_shell(problem, seed)
    operands, vendor = kernel.operands(problem), kernel.vendor
    assert vendor is not None
    values: dict[str, Any] = dict(tensors.allocate(operands, "cuda:0"))
    tensors.draw(operands, values, seed)
    half = torch.empty(kernel.bytes(problem) // 2, dtype=torch.uint8, device="cuda:0")
    other = torch.empty_like(half)
    default = kernel.default_config(problem, device.describe(0).limits)
    contenders = {
        "found": runner(kernel, problem, kernel.signature.config(answer["config"]), values),
        "default": runner(kernel, problem, default, values),
        "torch": lambda: vendor(problem, values),
        "copy": lambda: other.copy_(half),
    }
    spaces = [space for space in recorded.of_problem(problem) if space.device == device.describe(0)]
    if spaces:
        contenders["recorded best"] = runner(kernel, problem, spaces[0].best, values)
    if op == "transpose":
        for pad in (0, 1):
            contenders[f"pad {pad}"] = runner(kernel, problem, kernel.signature.config({**PAD, "PAD": pad}), values)
    latencies = compare(contenders, seed)
    return {
        "problem": problem.text,
        "seed": seed,
        "search_s": seconds,
        "latency_us": {name: median(values) for name, values in latencies.items()},
        "of_recorded_best": over(latencies, "recorded best", "found") if spaces else None,
        "over_default": over(latencies, "default", "found"),
        "over_torch": over(latencies, "torch", "found"),
        "of_copy": over(latencies, "copy", "found"),
        "pad": over(latencies, "pad 0", "pad 1") if op == "transpose" else None,
        "answer": answer,
    }


def report(found: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table: the worst repeat of each problem."""
    columns = ("search", "recorded", "default", "torch", "copy", "pad 1:0")
    yield f"{'problem':44} {'repeats':>7} {' '.join(f'{column:>8}' for column in columns)}"
    for text in dict.fromkeys(one["problem"] for one in found):
        rows = [one for one in found if one["problem"] == text]
        shown = []
        for ratio in ("of_recorded_best", "over_default", "over_torch", "of_copy", "pad"):
            values = [row[ratio] for row in rows if row[ratio] is not None]
            shown.append(f"{f'{min(values):.3f}' if values else '':>8}")
        yield f"{text:44} {len(rows):7} {max(row['search_s'] for row in rows):7.1f}s {' '.join(shown)}"


def main() -> None:
    """Measure what `--out` lacks, write each result, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("headline.json"))
    arguments = parser.parse_args()
    card, environment = device.describe(0), device.environment(0)
    head = {"device": card.id, "environment": asdict(environment)}
    found: list[dict[str, Any]] = []
    if arguments.out.exists():
        kept = json.loads(arguments.out.read_text())
        found = kept["measured"] if {name: kept[name] for name in head} == head else []
    done = {(one["problem"], one["seed"]) for one in found}
    for seed in range(arguments.repeats):
        for op, given in PROBLEMS:
            if (catalog.load(op).signature.problem(given).text, seed) not in done:
                found.append(measure(op, given, seed))
                arguments.out.write_text(json.dumps({**head, "measured": found}, indent=1))
                print(f"{found[-1]['problem']}: {found[-1]['search_s']:.1f} s", file=sys.stderr)
    print(f"{card.name}, triton {environment.triton}, torch {environment.torch}, driver {environment.driver}")
    print("worst of the repeats; ratios are speeds: above 1, the answer is faster")
    print("\n".join(report(found)))


if __name__ == "__main__":
    main()
