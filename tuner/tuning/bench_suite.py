"""Measuring a suite's answers beside the kernels' defaults and torch, over the lanes of a host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import monotonic

from tuner.db.store import Store
from tuner.errors import KernelFault, MeasureError, NothingFound
from tuner.lookup.neighbours import with_current_knobs
from tuner.report.text import short
from tuner.search import Budget
from tuner.suites.suite import Entry, Suite
from tuner.tuning.bench import Subject, bench
from tuner.tuning.bench_file import BenchFile
from tuner.tuning.bench_row import Row
from tuner.tuning.effort import EFFORTS, Effort
from tuner.tuning.events import Events, StopToken
from tuner.tuning.lanes import Lane, spread
from tuner.tuning.roofline import limits_for
from tuner.tuning.run import run_search, stored_answer
from tuner.tuning.target import Target
from tuner.tuning.tuned import nothing_ran


@dataclass(frozen=True)
class BenchSuite:
    """Parts that the problems of a suite share while they are measured."""

    store: Store
    file: BenchFile
    search_s: float | None
    """Seconds to search a problem that has no answer yet; None: its default is measured."""
    events: Events = field(default_factory=Events)
    stop: StopToken = field(default_factory=StopToken)

    def measure(self, suite: Suite, lanes: Sequence[Lane], on_row: Callable[[Row, int], None]) -> list[Row]:
        """Measure each problem on the next free lane; rows are kept in the file.

        Args:
            on_row: called with each row and the number of rows so far.

        Returns:
            The rows in the suite's order; fewer than its problems if it was stopped.
        """
        rows: dict[str, Row] = {}

        def on_result(row: Row) -> None:
            rows[row.problem.text] = row
            self.file.keep(row)
            on_row(row, len(rows))

        spread(suite.entries, [partial(self._row, lane) for lane in lanes], on_result, self.stop)
        return [rows[entry.problem.text] for entry in suite.entries if entry.problem.text in rows]

    def _row(self, lane: Lane, entry: Entry) -> Row | None:
        """Return the row of a problem, or None if stopped. With `--search`, an untuned problem is searched first."""
        started = monotonic()
        try:
            target = lane.target(entry, False)
            subject = self._subject(entry, target)
            if subject.answer is None and self.search_s is not None:
                self._search(lane, entry, self.search_s)
                subject = self._subject(entry, target)
            row = self.file.row(subject)
            if row is not None:
                return row
            measurer = (target.bench_measurer or target.measurer)()
            try:
                row = bench(subject, measurer, stop=self.stop)
            finally:
                measurer.close()
        except (NothingFound, MeasureError, KernelFault) as error:
            row = Row(entry.problem, lane.device, "failed", error=str(error))
        return row and replace(row, seconds=monotonic() - started)

    def _subject(self, entry: Entry, target: Target) -> Subject:
        found = stored_answer(self.store, target, entry)
        answer = None
        if found.stored is not None and not found.differences:
            answer = with_current_knobs(target.signature_of(entry), found.stored.answer.config)
        known = target.roofline_limits or self.store.roofline_limits(target.provenance.device)
        return Subject(
            entry.problem,
            target.provenance,
            answer=answer,
            default=target.default,
            refused=target.refused,
            vendor_name=target.vendor_name,
            vendors=target.vendors,
            libraries=target.libraries,
            flops=target.flops,
            bytes=target.bytes,
            roofline_limits=limits_for(entry.reference, entry.problem, known),
        )

    def _search(self, lane: Lane, entry: Entry, seconds: float) -> None:
        target, effort = lane.target(entry, True), searching(seconds)
        result = run_search(target, self.store, entry, effort, events=self.events, stop=self.stop)
        if result.verdict is None and not self.stop():
            self.events.note(f"{short(entry.problem)}: no answer in {seconds:g} s; {nothing_ran(result)}")


def searching(seconds: float | None) -> Effort:
    """Return the effort with which a problem without an answer is searched for a time in seconds."""
    return Effort(Budget(EFFORTS["normal"].trials, seconds))
