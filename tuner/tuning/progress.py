"""The progress of tuning on a terminal or in a notebook."""

from __future__ import annotations

import logging
from collections import Counter
from importlib.util import find_spec
from math import inf
from threading import RLock
from time import monotonic
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from tuner.kernels.spec import Problem
from tuner.records import VENDOR_NAME, Measurement
from tuner.report.default import outcome_of
from tuner.report.text import first_line, not_run_text, short, speed_text, times, us_text
from tuner.tuning.events import Events
from tuner.tuning.tuned import Tuned

_log = logging.getLogger("tuner")
_DRAWN_EACH_S = 0.1
"""Least time between two drawings of the bars in a notebook, in seconds."""


class Progress(Events):
    """Shows a bar for each search, and notes as lines; without a terminal or a notebook, notes go to the log `tuner`.

    In a notebook bars need `ipywidgets`; without it only lines are shown.

    Args:
        console: where to show it; None is stderr, or the output of a notebook's cell.
        bars: whether to show bars.
    """

    def __init__(self, console: Console | None = None, *, bars: bool = True) -> None:
        self._console = Console(stderr=True, emoji=False) if console is None else console
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[best]}"),
            TextColumn("{task.fields[failures]}", style="dim"),
            TimeRemainingColumn(compact=True),
            console=self._console,
            transient=True,
            # A thread that draws bars in a notebook takes what others print meanwhile for its own, and clears it.
            auto_refresh=not self._console.is_jupyter,
        )
        self._drawn_at = 0.0
        can_update = self._console.is_terminal or (self._console.is_jupyter and find_spec("ipywidgets") is not None)
        self._bars.disable = not (bars and can_update)
        self._searches: dict[Problem | None, _Search] = {}
        self._lock = RLock()

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    @property
    def is_visible(self) -> bool:
        """True if the output is a terminal or a notebook."""
        return self._console.is_terminal or self._console.is_jupyter

    def note(self, message: str) -> None:
        self.print_line(message, logging.WARNING)

    def print_line(self, line: str, level: int) -> None:
        """Print a line above the bars; without a terminal or a notebook, log it at this level."""
        if self.is_visible:
            with self._lock:
                self._console.print(line, markup=False, highlight=False, soft_wrap=True)
        else:
            _log.log(level, "%s", line)

    def _draw(self) -> None:
        """Draw the bars in a notebook, unless they were drawn just before."""
        if self._console.is_jupyter and monotonic() - self._drawn_at > _DRAWN_EACH_S:
            self._drawn_at = monotonic()
            self._bars.refresh()

    def search_started(self, problem: Problem | None, trials: int, known: int) -> None:
        with self._lock:
            self.search_ended(problem)  # of another search of the same problem, which has no bar from now on
            for other, search in self._searches.items():
                self._bars.update(search.task, description=_name(other))
            name = _name(problem) if self._searches or self._console.is_jupyter else ""
            task = self._bars.add_task(name, total=trials, completed=known, best="starting", failures="")
            self._searches[problem] = _Search(task)

    def trial(self, problem: Problem | None, measurement: Measurement) -> None:
        with self._lock:
            search = self._searches.get(problem)
            if search is None:
                return
            if measurement.ok:
                search.best_us = min(search.best_us, measurement.latency_us)
            else:
                search.failures[measurement.failure] += 1
            best = "none yet"
            if search.best_us < inf:
                reached = us_text(search.best_us) if problem is not None else speed_text(1 / search.best_us, "default")
                best = f"best {reached}"
            self._bars.update(search.task, advance=1, best=best, failures=not_run_text(search.failures))
            self._draw()

    def round(self, problem: Problem | None, rounds: int, contenders: int) -> None:
        with self._lock:
            search = self._searches.get(problem)
            if search is not None:
                self._bars.update(search.task, best=f"comparing {contenders} configs, {rounds} rounds")
                self._draw()

    def search_ended(self, problem: Problem | None) -> None:
        with self._lock:
            search = self._searches.pop(problem, None)
            if search is not None:
                self._bars.remove_task(search.task)

    def tuned(self, tuned: Tuned, done: int, total: int) -> None:
        self.print_line(f"{done:>{len(str(total))}}/{total}  {tuned_line(tuned)}", logging.INFO)


class _Search:
    """The state of a search's bar."""

    def __init__(self, task: TaskID) -> None:
        self.task = task
        self.best_us = inf
        self.failures: Counter[str] = Counter()


def _name(problem: Problem | None) -> str:
    return "" if problem is None else short(problem)


def tuned_line(tuned: Tuned) -> str:
    """Return the outcome of one of several problems on a line."""
    answer = tuned.answer
    if answer is None:
        return f"{short(tuned.problem)}: failed, {first_line(tuned.error)}"
    parts = [f"{answer.kind} {us_text(answer.latency_us)}"]
    is_default = [times("default")] * (answer.kind == "default")
    speeds = {label: speed for label, speed in speed_texts(tuned).items() if label not in is_default}
    parts += [f"{speed} {label}" for label, speed in speeds.items() if speed[:1].isdigit()]
    parts += [f"default {outcome_of(tuned.default_failure)}"] * bool(tuned.default_failure)
    parts.append(f"{tuned.seconds:.1f} s" if tuned.searched else "as stored")
    return f"{short(tuned.problem)}: {', '.join(parts)}"


def speed_texts(tuned: Tuned) -> dict[str, str]:
    """Return the answer's speed-ups over the vendor and over the default by their labels; empty if unknown.

    A default that failed has its outcome in place of a speed-up.
    """
    speedup = None if tuned.answer is None else tuned.answer.speedup
    default = outcome_of(tuned.default_failure) if speedup is None else f"{speedup:.3f}"
    vendor = (VENDOR_NAME, "") if tuned.vendor is None else (tuned.vendor.name, f"{tuned.vendor.ratio:.3f}")
    return {times(vendor[0]): vendor[1], times("default"): default}
