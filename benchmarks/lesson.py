"""The tables of docs/lesson.md and docs/lessons, on the GPU of this machine.

For each op, all steps from the simplest kernel to the tuned one are compared with torch and a device copy. Each step
must give the reference's result before any is timed. Then all are timed in turn, in a new random order each round, on
a cold L2. The tuned config is the answer of `tuner search`, from the database if it is there.

    python benchmarks/lesson.py --out lesson.json --markdown
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from functools import partial
from itertools import pairwise
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import torch
from headline import compare, over
from ladder.step import Ladder, Run, Step, Tensors, configured

from tuner.errors import MeasureError, NothingFound, TunerError
from tuner.kernels.spec import Kernel, Limits, Problem, Value
from tuner.measure import check, device, tensors
from tuner.measure.correctness import calibrated
from tuner.measure.vendors import run_vendor
from tuner.records import median


def _ladders() -> Iterator[Ladder]:
    """Yield the ladder of each module that states one."""
    for found in iter_modules([str(Path(__file__).parent / "ladder")]):
        stated = getattr(importlib.import_module(f"ladder.{found.name}"), "LADDER", None)
        if isinstance(stated, Ladder):
            yield stated


LADDERS = {each.kernel.op: each for each in _ladders()}
TUNED, TORCH, COPY = "tuned", "torch", "copy"
OTHERS = {TORCH: "what a user would call otherwise", COPY: "a device copy of as many bytes"}


def tuned(problem: Problem, seconds: int, db: Path | None) -> dict[str, Any]:
    """Return the answer of `tuner search` as its JSON document, after at most `seconds` of search.

    Raises:
        NothingFound: the search failed; its reason is on stderr.
    """
    options = [f"--{name}={value}" for name, value in problem.values.items()]
    options += [f"--budget={seconds}s", *([f"--db={db}"] if db is not None else [])]
    command = [sys.executable, "-P", "-m", "tuner", "search", problem.op, *options, "--json"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE)
    if done.returncode != 0:
        raise NothingFound(
            f"the last step is a tuned config, and {' '.join(command[3:])} exited with {done.returncode}"
        )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def steps_to(ladder: Ladder, config: Mapping[str, Value], limits: Limits) -> list[Step]:
    """Return the ladder's steps that run on a card with these limits, and the tuned config as the last step."""
    knobs = " ".join(f"{name}={value}" for name, value in config.items())
    possible = [step for step in ladder.steps if step.since <= limits.capability]
    return [*possible, configured(TUNED, knobs, ladder.kernel, config)]


def contenders(
    kernel: Kernel, problem: Problem, values: Tensors, steps: Sequence[Step], limits: Limits
) -> dict[str, Run]:
    """Return a function that launches each step, and torch, on the same tensors."""
    runs: dict[str, Run] = {}
    for step in steps:
        work = tensors.workspace(step.workspace(problem, limits), str(values["out"].device))
        runs[step.name] = partial(_all, step.runs(problem, {**values, **work}))
    assert kernel.vendor is not None
    return {**runs, TORCH: partial(kernel.vendor, problem, values)}


def _all(runs: Sequence[Run]) -> None:
    for run in runs:
        run()


def prove(kernel: Kernel, problem: Problem, values: dict[str, Any], runs: Mapping[str, Run]) -> None:
    """Run each contender on poisoned outputs and compare the result with the reference.

    Raises:
        MeasureError: a result differs by more than the tolerance of the kernel's configs.
    """
    operands = kernel.operands(problem)
    allowed = calibrated(kernel, problem, operands, values)
    if TORCH in runs and kernel.vendor is not None:  # what it returns is copied, which is not timed
        runs = {**runs, TORCH: partial(run_vendor, kernel.vendor, problem, operands, values)}
    for name, run in runs.items():
        found, _ = check.differences_after(kernel, problem, operands, values, run, allowed=allowed)
        worst = check.worst(found)
        if not worst.passes:
            raise MeasureError(
                f"each step must be right before any is timed: {name!r} of {kernel.op} is off {worst.text}; "
                "fix the step"
            )


def measure(ladder: Ladder, problem: Problem, answer: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Check and time all contenders of one problem."""
    kernel, limits = ladder.kernel, device.describe(0).limits
    operands = kernel.operands(problem)
    values: dict[str, Any] = dict(tensors.allocate(operands, "cuda:0"))
    tensors.draw(operands, values, seed)
    steps = steps_to(ladder, answer["config"], limits)
    runs = contenders(kernel, problem, values, steps, limits)
    prove(kernel, problem, values, runs)
    if ladder.unit == "GB/s":
        half = torch.empty(kernel.bytes(problem) // 2, dtype=torch.uint8, device="cuda:0")
        runs[COPY] = partial(torch.empty_like(half).copy_, half)
    return {
        "problem": problem.text,
        "unit": ladder.unit,
        "answer": answer,
        "steps": list(compared(ladder, problem, steps, compare(runs, seed))),
    }


def compared(
    ladder: Ladder, problem: Problem, steps: Sequence[Step], latencies: dict[str, list[float]]
) -> Iterator[dict[str, Any]]:
    """Yield a row for each contender. Ratios are of speeds in paired rounds: above 1, the contender is faster."""
    changes = {step.name: step.change for step in steps} | OTHERS
    before = dict(pairwise(reversed([step.name for step in steps])))
    for name, samples in latencies.items():
        yield {
            "name": name,
            "change": changes[name],
            "latency_us": median(samples),
            "rate": ladder.rate(problem, median(samples)),
            "over_step_before": over(latencies, before[name], name) if name in before else None,
            "over_torch": over(latencies, TORCH, name),
            "over_copy": over(latencies, COPY, name) if COPY in latencies else None,
        }


def rows(measured: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the table of one problem, its head first."""
    columns = {"over_step_before": "step before", "over_torch": TORCH, "over_copy": COPY}
    shown = [name for name in columns if any(step[name] for step in measured["steps"])]
    yield ("step", "us", measured["unit"], *(f"x {columns[name]}" for name in shown), "what it does")
    for step in measured["steps"]:
        ratios = ("" if step[name] is None else f"{step[name]:.2f}" for name in shown)
        yield (step["name"], f"{step['latency_us']:,.1f}", f"{step['rate']:,.0f}", *ratios, step["change"])


def as_text(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table, aligned for a terminal."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for first, *numbers, last in table:
        aligned = (f"{number:>{width}}" for number, width in zip(numbers, widths[1:-1], strict=True))
        yield f"{first:{widths[0]}}  {'  '.join(aligned)}  {last}"


def as_markdown(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a Markdown table, as in docs/lesson.md."""
    head, *body = (f"| {' | '.join(cells)} |" for cells in table)
    yield from (head, "|---" * len(table[0]) + "|", *body)


def report(found: Mapping[str, Any], *, markdown: bool) -> Iterator[str]:
    """Yield the lines of all tables, each under its anchor in the page."""
    versions = ", ".join(f"{name} {found['environment'][name]}" for name in ("triton", "torch", "driver"))
    for measured in found["measured"]:
        yield from ("", f"<!-- lesson table: {measured['problem']} -->" if markdown else measured["problem"])
        yield from (f"{found['card']}, {found['date']}; {versions}.", "")
        yield from (as_markdown if markdown else as_text)([*rows(measured)])


def parsed() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", metavar="op", help=f"any of {', '.join(LADDERS)}; default: all")
    parser.add_argument("--seconds", type=int, default=60, help="time limit of a search for the tuned config")
    parser.add_argument("--db", type=Path, help="database of the tuned configs; default: that of tuner search")
    parser.add_argument("--seed", type=int, default=0, help="seed of the inputs and of the order in each round")
    parser.add_argument("--out", type=Path, help="JSON file for the measurements")
    parser.add_argument("--markdown", action="store_true", help="print the tables as docs/lesson.md has them")
    arguments = parser.parse_args()
    if unknown := set(arguments.ops) - set(LADDERS):
        parser.error(f"the ops of the lesson are {', '.join(LADDERS)}, not {', '.join(sorted(unknown))}")
    return arguments


def measured_ops(ops: Sequence[str], seconds: int, db: Path | None, seed: int) -> dict[str, Any]:
    """Measure the ladders of the ops; return the numbers with card, date and versions."""
    card, environment = device.describe(0), device.environment(0)
    ladders = [(LADDERS[op], problem) for op in ops for problem in LADDERS[op].problems]
    # All searches come first: they refuse a card that other processes use, and this process uses it from then on.
    answers = [tuned(problem, seconds, db) for _, problem in ladders]
    return {
        "card": card.name,
        "date": date.today().isoformat(),
        "environment": asdict(environment),
        "measured": [measure(*each, answer, seed) for each, answer in zip(ladders, answers, strict=True)],
    }


def main() -> None:
    """Measure, print the tables, and write the numbers to the output file."""
    arguments = parsed()
    try:
        found = measured_ops(arguments.ops or [*LADDERS], arguments.seconds, arguments.db, arguments.seed)
    except TunerError as error:
        print(f"lesson: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print("\n".join(report(found, markdown=arguments.markdown)))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
