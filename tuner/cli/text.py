"""What a person sees: an answer as a table on stdout, a search's progress on stderr."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn, track
from rich.table import Table as Grid

from tuner.db.store import Store
from tuner.kernels.spec import Config, Problem
from tuner.lookup.table import LookupResult
from tuner.records import IMPORTED, Answer, Evidence, Measurement, StoredAnswer
from tuner.report.vendor import Beside, torch_beside

T = TypeVar("T")

_MARKS = {
    "contended": "others used the card meanwhile",
    "throttled": "its clocks were held down meanwhile",
    "launch_bound": "an empty kernel takes more than half of this",
}


def print_json(document: Any) -> None:
    """One JSON document on stdout."""
    click.echo(json.dumps(document, indent=2))


def say(line: str) -> None:
    """A line about what is going on, on stderr."""
    click.echo(line, err=True)


def problem_text(problem: Problem) -> str:
    """A problem, attributes at their default left out: `gemm  M=4096 N=4096 K=4096 dtype=bf16`."""
    return f"{problem.op}  {' '.join(f'{name}={value}' for name, value in problem.stated.items())}"


def config_text(config: Config) -> str:
    """A config on one line, knobs at a default of theirs left out."""
    return "  ".join(f"{name}={value}" for name, value in config.stated.items())


def failures_text(failures: Mapping[str, int]) -> str:
    """`3 timeout, 1 crashed`, the commonest first."""
    return ", ".join(f"{count:,} {outcome}" for outcome, count in Counter(failures).most_common())


def configs_text(count: int) -> str:
    """`1 config`, `1,653 configs`."""
    return f"{count:,} config{'' if count == 1 else 's'}"


def bytes_text(count: int) -> str:
    """Shared memory as people read it: `16 B`, `64 KiB`."""
    return f"{count:,} B" if count < 1024 else f"{count / 1024:.4g} KiB"


def seconds_text(seconds: Mapping[str, float]) -> str:
    """Wall time by stage: `measure 12.3 s, comparison 4.0 s`."""
    return ", ".join(f"{stage} {taken:,.1f} s" for stage, taken in seconds.items()) or "not recorded"


def first_line(text: str, longest: int = 100) -> str:
    """What fits a line of a text that a compiler may have written."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return line if len(line) <= longest else f"{line[: longest - 3]}..."


def give(found: LookupResult, store: Store, as_json: bool) -> None:
    """An answer, or what is known in its place, as one JSON document or for a reader."""
    if as_json:
        print_json(found.as_json(store.snapshot))
    else:
        print_found(found, torch_beside(store, found.stored))


def print_partial(best: Measurement | None, as_json: bool) -> None:
    """The fastest single measurement of a search that gave no answer."""
    if as_json:
        config = None if best is None else dict(best.config)
        print_json({"match": "partial", "config": config, "latency_us": None if best is None else best.latency_us})
    elif best is not None:
        click.echo(f"{config_text(best.config)}  {best.latency_us:.2f} us, best so far")


def print_found(found: LookupResult, torch: Beside | None, console: Console | None = None) -> None:
    """An answer with its evidence, or what is known in its place."""
    console = console or Console(highlight=False, soft_wrap=True)
    if found.stored is None:
        console.print(f"[bold]{problem_text(found.problem)}[/]  on {found.device}")
        console.print(f"  {escape(found.reason)}")
        console.print(f"  to tune it:  [bold]{found.command}[/]")
        if found.nearest:
            console.print(f"  nearest that are tuned: {'; '.join(found.nearest)}")
        return
    answer = found.stored.answer
    device_name = escape(found.stored.provenance.device.name)
    console.print(f"[bold]{problem_text(found.problem)}[/]  on {device_name}")
    console.print(f"  [bold green]{escape(config_text(answer.config))}[/]")
    if found.neighbour is not None:
        console.print(f"  [yellow]neighbour: {escape(found.neighbour.text)}[/]")
        console.print(f"  to tune it:  [bold]{found.command}[/]")
        return
    console.print(_latencies(answer, torch))
    for line in _notes(found.stored):
        console.print(f"  {escape(line)}")
    if found.alias is not None:
        console.print(f"  [yellow]{escape(found.alias)} is the same card as {found.device}, where it was tuned[/]")
    if found.recorded is not None:
        console.print(f"  [yellow]replayed from {found.recorded}: measured on {device_name}, not here[/]")
    for difference in found.differences:
        console.print(f"  [yellow]stale: {escape(difference)}[/]")


def _latencies(answer: Answer, torch: Beside | None) -> Grid:
    compared = answer.kind == "tuned" or (torch is not None and torch.interval is not None)
    beside = ["over best", *["95 % interval"] * compared]
    grid = Grid("", "latency", "95 % interval", *beside, box=SIMPLE, pad_edge=True)
    for column in grid.columns[1:]:
        column.justify = "right"
    grid.add_row(answer.kind, us_text(answer.latency_us), _interval(answer.interval_us, 2))
    if answer.kind == "tuned" and answer.default_latency_us is not None and answer.speedup is not None:
        ratio = f"{answer.speedup:.3f}", _interval(answer.speedup_interval, 3)
        grid.add_row("default", us_text(answer.default_latency_us), "", *ratio)
    if torch is not None:
        ratio = f"{torch.ratio:.3f}", _interval(torch.interval, 3)
        grid.add_row("torch", us_text(answer.vendor_latency_us), "", *ratio[: len(beside)])
    return grid


def _notes(stored: StoredAnswer) -> Iterator[str]:
    answer, provenance = stored.answer, stored.provenance
    if answer.kind == "default" and answer.speedup is not None:
        yield "the kernel's default: nothing is faster by more than 1 % with confidence"
    reached = [] if answer.tflops is None else [f"{answer.tflops:,.1f} TFLOP/s"]
    reached += [] if answer.gb_per_s is None else [f"{answer.gb_per_s:,.0f} GB/s"]
    if reached:
        yield ", ".join(reached)
    space = stored.settings.get("space")
    if stored.trials:
        yield f"tried {stored.trials:,} configs{f' of {space:,}' if space else ''}; {_ties(answer)}"
    if answer.evidence.max_error is not None:
        yield evidence_text(answer.evidence)
    for mark in answer.marks:
        yield f"{mark.replace('_', '-')}: {_MARKS.get(mark, '')}"
    environment = provenance.environment
    versions = {"triton": environment.triton, "torch": environment.torch, "driver": environment.driver}
    told = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    came = "imported" if answer.kind == IMPORTED else "answered"
    timed = "" if answer.latency_us is None else f", timed by {provenance.policy}"
    yield f"{came} {stored.created_at[:16].replace('T', ' ')} UTC{timed}"
    yield f"with {told or 'what, is not known'}"
    if stored.taken_from is not None:
        yield f"taken from {stored.taken_from}"


def evidence_text(evidence: Evidence) -> str:
    """`largest error 0.0024, allowed 0.016, over 51 checked launches`; errors are shares of the largest value."""
    errors = f"largest error {evidence.max_error or 0.0:.2g}, allowed {evidence.tolerance or 0.0:.2g}"
    return f"{errors}, over {evidence.launches} checked launches" if evidence.launches > 1 else errors


def _ties(answer: Answer) -> str:
    if not answer.ties:
        return "no other is as good"
    word = "other is" if len(answer.ties) == 1 else "others are"
    return f"{len(answer.ties):,} {word} as good{', as far as could be told' if answer.unresolved else ''}"


def latency_text(answer: Answer) -> str:
    """An answer's latency with what is known of its interval: `179.20 us (178.80 - 179.90)`."""
    interval = "" if answer.interval_us is None else f" ({_interval(answer.interval_us, 2)})"
    return f"{us_text(answer.latency_us)}{interval}"


def us_text(latency_us: float | None) -> str:
    """A latency as people read it."""
    return "never timed" if latency_us is None else f"{latency_us:,.2f} us"


def _interval(interval: tuple[float, float] | None, decimals: int) -> str:
    return "" if interval is None else f"{interval[0]:.{decimals}f} - {interval[1]:.{decimals}f}"


def counted(items: Sequence[T], what: str) -> Iterable[T]:
    """The same, with how many of several are done and the time left on one line of stderr, where that is a terminal."""
    console = Console(stderr=True)
    hidden = len(items) < 2 or not console.is_terminal
    return track(items, what, console=console, transient=True, disable=hidden)


class SearchProgress:
    """Trials, best so far, failures by kind and time left, on one line of stderr; nothing where that is no terminal."""

    def __init__(self, total: int, *, shown: bool = True, best_text: Callable[[float], str] = us_text) -> None:
        self._best_us = float("inf")
        self._best_text = best_text
        self._failures: Counter[str] = Counter()
        self._progress = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[best]}"),
            TextColumn("[red]{task.fields[failures]}"),
            TimeRemainingColumn(compact=True),
            console=Console(stderr=True),
            transient=True,
        )
        self._progress.disable = not (shown and self._progress.console.is_terminal)
        self._task = self._progress.add_task("", total=total, best="starting", failures="")

    def __enter__(self) -> SearchProgress:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def known(self, count: int) -> None:
        """So many trials were there already."""
        self._progress.update(self._task, advance=count)

    def trial(self, measurement: Measurement) -> None:
        """One more."""
        if measurement.ok:
            self._best_us = min(self._best_us, measurement.latency_us)
        else:
            self._failures[measurement.failure] += 1
        best = f"best {self._best_text(self._best_us)}" if self._best_us < float("inf") else "none yet"
        self._progress.update(self._task, advance=1, best=best, failures=failures_text(self._failures))
