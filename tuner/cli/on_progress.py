"""The progress of a fleet: a bar for all tasks, and a line for each worker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from time import monotonic
from typing import Self

from rich.console import Console, RenderableType
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from tuner.cli.grid import print_lines
from tuner.fleet.task import Ended

_MOST = 16
"""Number of workers that have a line; the others are counted."""


class FleetProgress:
    """Shows a bar and workers on a terminal; a line of stderr for each task that ends, on a terminal or not.

    Args:
        name: name of the scheduler.
        total: number of tasks.
    """

    def __init__(self, name: str, total: int, console: Console | None = None) -> None:
        self._console = Console(stderr=True, emoji=False) if console is None else console
        self._bars = _Bars(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(compact=True),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._all, self._total, self._count = self._bars.add_task(f"on {name}", total=total), total, 0

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def watch(self, under_way: Mapping[str, str]) -> None:
        """Show the tasks under way: the worker that runs each, by the task's name."""
        self._bars.workers.show(under_way)

    def ended(self, ended: Ended, line: str) -> None:
        """Show the end of a task, with this line on it."""
        self._count += 1
        self._bars.workers.done[ended.where] += 1
        self._bars.update(self._all, completed=self._count)
        place = f"  ({ended.where})" if ended.where else ""
        print_lines([escape(f"{self._count:>{len(str(self._total))}}/{self._total}  {line}{place}")], self._console)


class _Workers:
    """The workers, each with the task that it runs and the number of those that it has ended."""

    def __init__(self) -> None:
        self.done = Counter[str]()
        self._since = dict[tuple[str, str], float]()

    def show(self, under_way: Mapping[str, str]) -> None:
        now = monotonic()
        self._since = {(where, name): self._since.get((where, name), now) for name, where in under_way.items()}

    def table(self) -> Table:
        """Return a row for each task under way: worker, number of tasks it has ended, task and time."""
        grid, now = Table.grid(padding=(0, 2)), monotonic()
        rows = sorted(self._since.items())
        for (where, name), since in rows[:_MOST]:
            done = f"{self.done[where]} done"
            grid.add_row(f"  {escape(where)}", f"[dim]{done}[/]", escape(name), f"[dim]{now - since:.0f} s[/]")
        if len(rows) > _MOST:
            grid.add_row(f"  [dim]and {len(rows) - _MOST} more[/]")
        return grid


class _Bars(Progress):
    """A progress bar above the lines of the workers."""

    def __init__(self, *columns: ProgressColumn, console: Console, transient: bool, disable: bool) -> None:
        self.workers = _Workers()
        super().__init__(*columns, console=console, transient=transient, disable=disable)

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield self.workers.table()
