"""The progress of a retune: one bar, and a line for each answer that moved or was not measured."""

from __future__ import annotations

import logging

from rich.progress import TaskID

from tuner.cli.notes import TerminalProgress
from tuner.cli.retune_report import finding_line
from tuner.kernels.spec import Problem
from tuner.records import Measurement
from tuner.records.retune import Cause, Finding, Retune
from tuner.report.retune.text import is_moved
from tuner.report.text import short


class RetuneProgress(TerminalProgress):
    """Shows one bar over all answers of a retune. Searches appear in its text, and have no bars of their own."""

    def __init__(self) -> None:
        super().__init__()
        self.retune: Retune | None = None
        """The retune as it started; None before."""
        self._task: TaskID | None = None
        self._regressions = self._not_measured = 0
        self._tried: dict[Problem | None, int] = {}

    def retune_started(self, retune: Retune) -> None:
        self.retune = retune
        done, total = len(retune.findings), len(retune.planned)
        if done:
            self.print_line(f"Retune {retune.id} continues: {done:,} of {total:,} answers are done.", logging.WARNING)
        for finding in retune.findings:
            self._count(finding)
        self._task = self._bars.add_task("retune", total=total, completed=done, best="", failures=self._failures())

    def found(self, finding: Finding, done: int, total: int) -> None:
        with self._lock:
            self._count(finding)
            if self._task is not None:
                self._bars.update(self._task, completed=done, best=short(finding.problem), failures=self._failures())
        if is_moved(finding) or finding.cause is Cause.NOT_MEASURED:
            self.print_line(f"{done:>{len(str(total))}}/{total}  {finding_line(finding)}", logging.INFO)

    def search_started(self, problem: Problem | None, trials: int, known: int) -> None:
        self._tried[problem] = known
        self._show(problem, f"searching, {known:,} configs")

    def trial(self, problem: Problem | None, measurement: Measurement) -> None:
        self._tried[problem] = tried = self._tried.get(problem, 0) + 1
        self._show(problem, f"searching, {tried:,} configs")

    def round(self, problem: Problem | None, rounds: int, contenders: int) -> None:
        self._show(problem, f"comparing {contenders} configs, {rounds} rounds")

    def search_ended(self, problem: Problem | None) -> None:
        self._tried.pop(problem, None)

    def _show(self, problem: Problem | None, text: str) -> None:
        if self._task is not None:
            name = "" if problem is None else f"{short(problem)}: "
            self._bars.update(self._task, best=f"{name}{text}")

    def _count(self, finding: Finding) -> None:
        self._regressions += finding.cause.is_regression
        self._not_measured += finding.cause is Cause.NOT_MEASURED

    def _failures(self) -> str:
        counts = {"slower or broken": self._regressions, "not measured": self._not_measured}
        return ", ".join(f"{count:,} {name}" for name, count in counts.items() if count)
