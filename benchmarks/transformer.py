"""A layer of a decoder model with random weights: tuner.ops untuned and tuned, torch, and torch.compile.

Each layer is rms_norm, gemm, attention, gemm, rms_norm, gemm, silu_mul, gemm; rotary embeddings and biases are left
out. A prefill is one long sequence, and a chunk is its beginning; decoding adds one token to each of several sequences,
over keys and values that are there. Chunks and decoding run in a CUDA graph. Shown are the time of one layer, the
largest difference of the logits from torch's in fp32, and the share of each op; then the host's time of a small product
by `tuner.ops.gemm` and by torch.

    python benchmarks/transformer.py --model falcon3-10b --out transformer.json
    TUNER_DB=falcon.db python benchmarks/transformer.py --model falcon3-10b --tune 15
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch
from decoders import MODELS, STEPS, ByTorch, Model, Ops
from torch import Tensor
from torch.nn import functional

import tuner
from tuner import Client, Problem, catalog, ops
from tuner.client.sources import HeldSource
from tuner.db.store import Store
from tuner.errors import NothingFound
from tuner.kernels import calling
from tuner.kernels.calling import OpCall, PreparedLaunch
from tuner.launching.calls import PREPARED, LaunchOf, PreparedLaunches, tuned_launch
from tuner.lookup.bundle import Bundle
from tuner.records import median
from tuner.suites.suite import Entry, Suite
from tuner.tuning.api import opened_store, shown_progress
from tuner.tuning.effort import Effort
from tuner.tuning.events import StopToken
from tuner.tuning.gpu import MeasureOptions
from tuner.tuning.lanes import open_lanes
from tuner.tuning.several import tune_several

ROUNDS, CALLS = 20, 50
"""Timed rounds, and calls in each round of `host_rows`."""


class ByTuner:
    """The ops of `tuner.ops`, which are timed one by one if there is a list for the times."""

    def __init__(self, marks: list[tuple[str, Any]] | None = None) -> None:
        self._marks = marks

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return self._marked("rms_norm", ops.rms_norm(x, weight))

    def linear(self, x: Tensor, weight: Tensor) -> Tensor:
        product = ops.gemm(x.reshape(-1, x.shape[-1]), weight.t())
        return self._marked("gemm", product.view(*x.shape[:-1], -1))

    def gated(self, x: Tensor) -> Tensor:
        return self._marked("silu_mul", ops.silu_mul(x))

    def attend(self, q: Tensor, k: Tensor, v: Tensor, lengths: Tensor | None) -> Tensor:
        return self._marked("attention", ops.attention(q, k, v, causal=lengths is None, lengths=lengths))

    def _marked(self, op: str, found: Tensor) -> Tensor:
        if self._marks is not None:
            self._marks.append((op, event()))
        return found


def event() -> Any:
    """Return an event that is recorded now."""
    recorded = torch.cuda.Event(enable_timing=True)
    recorded.record()
    return recorded


@contextmanager
def by_defaults(asked: dict[str, Problem], launch_of: LaunchOf = tuned_launch, runs_on: str = "cuda") -> Iterator[None]:
    """Run ops with their default configs in this context, and add their problems to `asked` by text.

    At the end, ops are launched by `tuner.ops` again.
    """

    def noted(client: Client, call: OpCall, problem: Problem, operands: Mapping[str, Any]) -> PreparedLaunch:
        asked[problem.text] = problem
        return launch_of(client, call, problem, operands)

    nothing = Client(HeldSource(Bundle("none", {}, (), (), (), ""), "no answers"))
    launches = PreparedLaunches(nothing, prepared=calling.prepared, launch_of=noted, runs_on=runs_on)
    launches.clear()
    calling.install(launches.prepare)
    try:
        yield
    finally:
        launches.clear()
        calling.install(PREPARED.prepare)


def milliseconds(run: Callable[[], object]) -> float:
    """Return the median time of a function on the card."""
    found = []
    for _ in range(ROUNDS + 3):
        first = event()
        run()
        last = event()
        torch.cuda.synchronize()
        found.append(first.elapsed_time(last))
    return median(found[3:])


def captured(run: Callable[[], object]) -> Callable[[], object]:
    """Return the replay of a function's graph."""
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run()
    return lambda: graph.replay()


def shares(run: Callable[[Ops], object]) -> dict[str, float]:
    """Return the ms of each op of `tuner.ops`, as marked one after the other; other operations count to the next."""
    run(ByTuner())
    torch.cuda.synchronize()
    torch.cuda._sleep(100_000_000)  # the launches are queued meanwhile
    marks: list[tuple[str, Any]] = [("", event())]
    run(ByTuner(marks))
    torch.cuda.synchronize()
    total: dict[str, float] = defaultdict(float)
    for (_, before), (op, after) in pairwise(marks):
        total[op] += before.elapsed_time(after)
    return dict(total)


def differences(model: Model, by: Ops) -> dict[str, float]:
    """Return the largest difference of logits from torch's in fp32, relative to the largest logit."""
    wide, found = model.widened(), {}
    for step in STEPS:
        exact = wide.logits(step, ByTorch())
        found[step] = float((model.logits(step, by).float() - exact).abs().max() / exact.abs().max())
    return found


def of_a_layer(model: Model, run: Callable[[str], object]) -> dict[str, float]:
    """Return the ms of one layer in each step."""
    found = {}
    for step in STEPS:
        ready = partial(run, step)
        found[f"{step}_ms"] = milliseconds(ready if step == "prefill" else captured(ready)) / model.sizes.layers
    return found


def search(problems: Sequence[Problem], seconds: float, store: Store) -> None:
    """Search each problem, with the same worker processes and compile pool for all.

    Args:
        seconds: time limit of each search.

    Raises:
        NothingFound: a problem has no answer afterwards.
    """
    suite = Suite("the layers", tuple(Entry(each.op, catalog.load(each.op).signature, each) for each in problems))
    options, stop = MeasureOptions(), StopToken()
    with shown_progress(None) as events, open_lanes(suite, store, options, events) as (measured, lanes):
        found = tune_several(measured, lanes, Effort.named(budget=seconds), store, events, stop)
    answered = {tuned.problem.text: tuned.error for tuned in found}
    for problem in problems:
        if why := answered.get(problem.text, "it was not searched"):
            raise NothingFound(f"{problem.text} has no answer: {why}")


def compared(model: Model, tune_s: float | None) -> list[dict[str, Any]]:
    """Return a row for each way to compute the layers.

    Args:
        tune_s: seconds for a search of each problem between the defaults and the stored answers; None for no search.
    """
    ours, eager = ByTuner(), ByTorch()
    compiled = torch.compile(lambda step: model.through_layers(step, eager), dynamic=False)
    asked: dict[str, Problem] = {}
    with by_defaults(asked):
        rows = [{"by": "tuner.ops, untuned", **of_a_layer(model, lambda step: model.through_layers(step, ours))}]
    if tune_s is not None:
        with opened_store(None) as store:
            search([*asked.values()], tune_s, store)
        tuner.refresh()
    ways: dict[str, Callable[[str], object]] = {
        "tuner.ops": lambda step: model.through_layers(step, ours),
        "torch": lambda step: model.through_layers(step, eager),
        "torch.compile": compiled,
    }
    rows += [{"by": way, **of_a_layer(model, run)} for way, run in ways.items()]
    rows[1] |= {
        "off_by": differences(model, ours),
        "share_ms": {
            step: {op: ms / model.sizes.layers for op, ms in shares(partial(model.through_layers, step)).items()}
            for step in STEPS
        },
    }
    rows[2]["off_by"] = differences(model, eager)
    return rows


def host_rows(device: str, dtype: torch.dtype, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """Return a row for each way, with the host's time of one product of 64 x 64 matrices in us; the device runs on."""
    x, weight = (torch.ones(64, 64, device=device, dtype=dtype) for _ in range(2))
    transposed = weight.t()
    ways: dict[str, Callable[[], object]] = {
        "tuner.ops.gemm": lambda: ops.gemm(x, transposed),
        "torch.nn.functional.linear": lambda: functional.linear(x, weight),
    }
    found: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, call in ways.items():
            call()
            if device == "cuda":
                torch.cuda.synchronize()
            first = perf_counter_ns()
            for _ in range(CALLS):
                call()
            found[way].append((perf_counter_ns() - first) / CALLS / 1e3)
    return [{"by": way, "host_us": round(median(us), 2)} for way, us in found.items()]


def main() -> None:
    """Measure, print a row for each way, and write them to the output file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, default="llama-3-8b", help="model whose sizes are used")
    parser.add_argument("--layers", type=int, default=4, help="number of layers that are timed one after the other")
    parser.add_argument("--tune", type=float, metavar="SECONDS", help="time of a search of each problem")
    parser.add_argument("--out", type=Path, help="JSON file for the rows")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        parser.exit(3, "transformer: there is no GPU 0: the driver shows none\n")
    with torch.no_grad():
        sizes = replace(MODELS[arguments.model], layers=arguments.layers)
        rows = compared(Model(sizes, "cuda", torch.bfloat16), arguments.tune)
        rows += host_rows("cuda", torch.bfloat16)
    for row in rows:
        print(json.dumps(row))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
