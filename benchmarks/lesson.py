"""The tables of docs/lesson.md, on the GPU of this machine.

For each op: all steps from the simplest kernel to the tuned one, beside torch and a device copy. Each must give the
reference's result before any is timed; then all are timed in turn, in a new random order every round, on a cold L2. The
tuned config is what `tuner search` answers: from the database if it is there, else found now.

    python benchmarks/lesson.py --out lesson.json --markdown
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import date
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from headline import compare, over
from ladder import gemm, softmax, transpose
from ladder.step import Ladder, Run, Step, Tensors, configured

from tuner.errors import MeasureError, NothingFound, TunerError
from tuner.kernels.spec import Kernel, Limits, Problem, Value
from tuner.measure import check, device, tensors
from tuner.records import median

LADDERS = {ladder.kernel.op: ladder for ladder in (transpose.LADDER, gemm.LADDER, softmax.LADDER)}
TUNED, TORCH, COPY = "tuned", "torch", "copy"
RIVALS = {TORCH: "what a user would call otherwise", COPY: "a device copy of as many bytes"}


def tuned(problem: Problem, seconds: int, db: Path | None) -> dict[str, Any]:
    """What `tuner search` answers, at the latest after so many seconds of search.

    Raises:
        NothingFound: it does not; it has said why on stderr.
    """
    options = [f"--{name}={value}" for name, value in problem.values.items()]
    options += [f"--budget={seconds}s", *([f"--db={db}"] if db is not None else [])]
    command = [sys.executable, "-P", "-m", "tuner", "search", problem.op, *options, "--json"]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE)
    if done.returncode != 0:
        raise NothingFound(f"a ladder ends in a tuned config, and {' '.join(command[3:])} ended with {done.returncode}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def steps_to(ladder: Ladder, config: Mapping[str, Value], limits: Limits) -> list[Step]:
    """The ladder's steps that such a card can take, and the tuned config."""
    knobs = " ".join(f"{name}={value}" for name, value in config.items())
    possible = [step for step in ladder.steps if step.since <= limits.capability]
    return [*possible, configured(TUNED, knobs, ladder.kernel, config)]


def contenders(
    kernel: Kernel, problem: Problem, values: Tensors, steps: Sequence[Step], limits: Limits
) -> dict[str, Run]:
    """What launches each step and torch, all on the same tensors."""
    runs: dict[str, Run] = {}
    for step in steps:
        work = tensors.workspace(step.workspace(problem, limits), str(values["out"].device))
        runs[step.name] = partial(_all, step.runs(problem, {**values, **work}))
    return {**runs, TORCH: partial(kernel.vendor, problem, values)}


def _all(runs: Sequence[Run]) -> None:
    for run in runs:
        run()


def prove(kernel: Kernel, problem: Problem, values: dict[str, Any], runs: Mapping[str, Run]) -> None:
    """Runs each on poisoned outputs and compares with the reference.

    Raises:
        MeasureError: one is further off than the kernel's configs may be.
    """
    operands = kernel.operands(problem)
    written = tensors.written(operands, values)
    kernel.vendor(problem, values)
    allowed = check.tolerance(kernel, problem, check.error(kernel, problem, values, written))
    for name, run in runs.items():
        tensors.poison(operands, values)
        run()
        error = check.error(kernel, problem, values, written)
        if not error <= allowed:
            raise MeasureError(
                f"a step is right before it is timed: {name!r} of {kernel.op} is off by {error:.2g}, allowed are "
                f"{allowed:.2g}; nothing was timed, mend the step"
            )


def measure(ladder: Ladder, problem: Problem, answer: Mapping[str, Any], seed: int) -> dict[str, Any]:
    """Proves and times all contenders of one problem."""
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
    """What the table says of each contender. Ratios are of speeds, round by round: above 1, it is faster."""
    changes = {step.name: step.change for step in steps} | RIVALS
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
    """The table of one problem, its head first."""
    columns = {"over_step_before": "step before", "over_torch": TORCH, "over_copy": COPY}
    shown = [name for name in columns if any(step[name] for step in measured["steps"])]
    yield ("step", "us", measured["unit"], *(f"x {columns[name]}" for name in shown), "what it does")
    for step in measured["steps"]:
        ratios = ("" if step[name] is None else f"{step[name]:.2f}" for name in shown)
        yield (step["name"], f"{step['latency_us']:,.1f}", f"{step['rate']:,.0f}", *ratios, step["change"])


def as_text(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Aligned for a terminal."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for first, *numbers, last in table:
        aligned = (f"{number:>{width}}" for number, width in zip(numbers, widths[1:-1], strict=True))
        yield f"{first:{widths[0]}}  {'  '.join(aligned)}  {last}"


def as_markdown(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """As docs/lesson.md has it."""
    head, *body = (f"| {' | '.join(cells)} |" for cells in table)
    yield from (head, "|---" * len(table[0]) + "|", *body)


def report(found: Mapping[str, Any], *, markdown: bool) -> Iterator[str]:
    """All tables, each under the place in the page that it is for."""
    versions = ", ".join(f"{name} {found['environment'][name]}" for name in ("triton", "torch", "driver"))
    for measured in found["measured"]:
        yield from ("", f"<!-- lesson table: {measured['problem']} -->" if markdown else measured["problem"])
        yield from (f"{found['card']}, {found['date']}; {versions}.", "")
        yield from (as_markdown if markdown else as_text)([*rows(measured)])


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ops", nargs="*", metavar="op", help=f"of {', '.join(LADDERS)}; all, if none is named")
    parser.add_argument("--seconds", type=int, default=60, help="of a search for the tuned config")
    parser.add_argument("--db", type=Path, help="database of the tuned configs; else the tuner's own")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs and of the order in each round")
    parser.add_argument("--out", type=Path, help="JSON of all that was measured")
    parser.add_argument("--markdown", action="store_true", help="print the tables as docs/lesson.md has them")
    arguments = parser.parse_args()
    if unknown := set(arguments.ops) - set(LADDERS):
        parser.error(f"the ops of the lesson are {', '.join(LADDERS)}, not {', '.join(sorted(unknown))}")
    return arguments


def climbed(ops: Sequence[str], seconds: int, db: Path | None, seed: int) -> dict[str, Any]:
    """All that is measured of these ops, and on what."""
    card, environment = device.describe(0), device.environment(0)
    asked = [(LADDERS[op], problem) for op in ops for problem in LADDERS[op].problems]
    # First all searches, which want the card to themselves: once this process has measured, it is on the card too.
    answers = [tuned(problem, seconds, db) for _, problem in asked]
    return {
        "card": card.name,
        "date": date.today().isoformat(),
        "environment": asdict(environment),
        "measured": [measure(*each, answer, seed) for each, answer in zip(asked, answers, strict=True)],
    }


def main() -> None:
    """Measures, prints the tables, keeps the numbers."""
    arguments = parsed()
    try:
        found = climbed(arguments.ops or [*LADDERS], arguments.seconds, arguments.db, arguments.seed)
    except TunerError as error:
        print(f"lesson: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    print("\n".join(report(found, markdown=arguments.markdown)))
    if arguments.out is not None:
        arguments.out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
