"""The progress display: a bar for each search, whatever other searches are shown with it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from io import StringIO

from rich.console import Console
from scripted import BEST, TOY

from tuner.kernels.spec import Problem
from tuner.records import Measurement, Outcome
from tuner.tuning.progress import Progress

SMALL, LARGE = TOY.problem({"N": 64}), TOY.problem({"N": 4096})
MEASURED = Measurement(BEST, Outcome.OK, (10.0, 11.0, 12.0))


def terminal() -> tuple[Progress, StringIO]:
    """Return a progress display, and what it writes to a terminal."""
    shown = StringIO()
    return Progress(Console(file=shown, force_terminal=True, width=120)), shown


def test_bars_have_names_once_there_are_several() -> None:
    progress, shown = terminal()
    with progress:
        progress.search_started(SMALL, 20, 0)
        assert "toy 64" not in shown.getvalue()
        progress.search_started(LARGE, 20, 5)
        assert "toy 64" in shown.getvalue()
        assert "toy 4096" in shown.getvalue()


def test_two_searches_of_one_problem_may_share_a_display() -> None:
    """Such as by two policies, in two threads: what one still reports after the other has ended is no error."""
    progress, shown = terminal()
    with progress:
        progress.search_started(SMALL, 20, 0)
        progress.search_started(SMALL, 20, 0)
        progress.trial(SMALL, MEASURED)
        progress.search_ended(SMALL)
        progress.trial(SMALL, MEASURED)
        progress.round(SMALL, 4, 2)
        progress.search_ended(SMALL)
        progress.search_started(LARGE, 7, 0)
    assert "0/7" in shown.getvalue()


def test_searches_in_threads_come_and_go_beside_each_other() -> None:
    progress, _ = terminal()

    def search(problem: Problem) -> None:
        for _ in range(200):
            progress.search_started(problem, 20, 0)
            progress.trial(problem, MEASURED)
            progress.round(problem, 4, 2)
            progress.search_ended(problem)

    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(search, problem) for problem in (SMALL, LARGE, SMALL, LARGE)]:
            done.result()
