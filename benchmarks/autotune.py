"""Duration of `triton.autotune` on the configs that `tuner search` chooses from. Needs a GPU.

    python benchmarks/autotune.py --out autotune.json

For each problem, Triton's tuner is timed on `--configs` feasible configs, drawn at random, with an empty compile cache.
It measures each config in turn, so its time for the whole space is extrapolated. It is compared with a search from the
shell, with empty cache and store. The draw is from configs of one jit function and without a workspace, since Triton's
tuner wraps one jit function.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import Any

import torch
import triton
from headline import search_from_the_shell

from tuner import catalog
from tuner.kernels.spec import Config, Kernel, Launch, Problem
from tuner.measure import cores, device
from tuner.measure.tensors import allocate, draw
from tuner.search.space import feasible

PROBLEMS: list[tuple[str, dict[str, object]]] = [
    ("gemm", {"M": 4096}),
    ("gemm", {"M": 16, "N": 14336, "K": 4096}),
    ("softmax", {"M": 8192}),
    ("transpose", {"M": 8192}),
]
BAR = 15.0
"""Least ratio of Triton's extrapolated time to that of a search."""


def of_one_function(kernel: Kernel, problem: Problem, configs: Sequence[Config]) -> dict[Config, Launch]:
    """Return the launches without a workspace of the jit function with the most configs."""
    tensors = allocate(kernel.operands(problem), "cuda")
    draw(kernel.operands(problem), tensors, seed=1)
    limits = device.describe(0).limits
    by_function: dict[Any, dict[Config, Launch]] = {}
    for config in configs:
        if not kernel.workspace(problem, config, limits):
            (launch,) = kernel.launch(problem, config, tensors)
            by_function.setdefault(launch.fn, {})[config] = launch
    return max(by_function.values(), key=len)


def autotuned(launches: Sequence[Launch], dims: Collection[str]) -> float:
    """Return the time that `triton.autotune` takes to choose among launches, in s."""
    fn = launches[0].fn
    passed = [dict(zip(fn.arg_names, launch.args, strict=False)) | dict(launch.kwargs) for launch in launches]
    alike = {name for name, value in passed[0].items() if all(other[name] is value for other in passed)}
    alike -= set(launches[0].kwargs)
    chosen = [{name: value for name, value in each.items() if name not in alike} for each in passed]
    configs, grids = [], {}
    for each, launch in zip(chosen, launches, strict=True):
        options = {name: each.pop(name) for name in ("num_warps", "num_stages")}
        configs.append(triton.Config(each, **options))
        grids[tuple(each.values())] = launch.grid
    knobs = list(chosen[0])
    tuned = triton.autotune(configs=configs, key=[name for name in fn.arg_names if name in dims])(fn)
    started = monotonic()
    tuned[lambda meta: grids[tuple(meta[name] for name in knobs)]](**{name: passed[0][name] for name in alike})
    torch.cuda.synchronize()
    return monotonic() - started


def measure(op: str, given: dict[str, object], count: int) -> dict[str, Any]:
    kernel = catalog.load(op)
    problem = kernel.signature.problem(given)
    space = list(feasible(kernel, problem, device.describe(0).limits))
    launches = of_one_function(kernel, problem, space)
    drawn = random.Random(0).sample(list(launches.values()), min(count, len(launches)))
    answer, searched = search_from_the_shell(problem, seed=0)
    seconds = autotuned(drawn, problem.values)
    return {
        "problem": problem.text,
        "feasible": len(space),
        "timed": len(drawn),
        "autotune_s": seconds,
        "autotune_all_s": seconds / len(drawn) * len(space),
        "search_s": searched,
        "answer": answer,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--configs", type=int, default=60, help="of each problem, for triton.autotune to choose from")
    options.add_argument("--out", type=Path, help="write what was measured as JSON")
    given = options.parse_args()
    card, environment = device.describe(0), device.environment(0)
    found = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TRITON_CACHE_DIR"] = cache
        for op, problem in PROBLEMS:
            found.append(measure(op, problem, given.configs))
    print(f"{card.name}, triton {environment.triton}, torch {environment.torch}, {cores.usable()} cores")
    print(f"{'problem':48} {'feasible':>8} {'timed':>6} {'autotune':>9} {'of all':>9} {'search':>7} {'factor':>7}")
    for row in found:
        factor = row["autotune_all_s"] / row["search_s"]
        print(
            f"{row['problem']:48} {row['feasible']:8,} {row['timed']:6} {row['autotune_s']:7.1f} s"
            f" {row['autotune_all_s']:7.0f} s {row['search_s']:5.1f} s {factor:6.0f}x"
        )
    print(f"the bar is {BAR:.0f}x; 'of all' is extrapolated from the timed ones")
    if given.out is not None:
        head = {"device": card.id, "environment": asdict(environment)}
        given.out.write_text(json.dumps({**head, "measured": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
