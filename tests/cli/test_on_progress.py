"""The progress of a fleet on a terminal: one bar, and a line for each worker that runs a task."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from tuner.cli.on_progress import FleetProgress
from tuner.fleet.task import Ended, Task


def shown(progress: FleetProgress, console: Console) -> list[str]:
    with console.capture() as captured:
        console.print(*progress._bars.get_renderables())
    return [line.rstrip() for line in captured.get().splitlines()]


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)


def test_a_bar_and_the_workers_with_their_tasks(console: Console) -> None:
    progress = FleetProgress("slurm", 40, console)
    progress.watch({"gemm M=16": "n2", "gemm M=64": "n1"})
    progress.ended(Ended(Task("gemm M=16", ()), 0, "n2"), "gemm 16: tuned 17.6 us")
    progress.watch({"gemm M=64": "n1", "gemm M=128": "n2"})
    bar, *workers = shown(progress, console)
    assert bar.startswith("on slurm")
    assert " 1/40 " in bar
    assert [" ".join(line.split()) for line in workers] == ["n1 0 done gemm M=64 0 s", "n2 1 done gemm M=128 0 s"]
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == " 1/40  gemm 16: tuned 17.6 us  (n2)\n"


def test_of_many_workers_some_are_counted(console: Console) -> None:
    progress = FleetProgress("ray", 1000, console)
    progress.watch({f"gemm M={n}": f"node-{n:03}" for n in range(100)})
    lines = shown(progress, console)
    assert len(lines) == 1 + 16 + 1
    assert lines[-1] == "  and 84 more"


def test_without_a_terminal_only_ends_are_printed() -> None:
    console = Console(file=io.StringIO())
    with FleetProgress("local", 2, console) as progress:
        progress.watch({"a": "process 0"})
        progress.ended(Ended(Task("a", ()), 0, "process 0"), "a: [done]")
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "1/2  a: [done]  (process 0)\n"
