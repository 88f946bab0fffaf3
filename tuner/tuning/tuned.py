"""The outcome of tuning one problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tuner.db.store import Store
from tuner.errors import NothingFound
from tuner.kernels.spec import Problem
from tuner.lookup.table import LookupResult
from tuner.records import Answer
from tuner.report.default import default_failure
from tuner.report.text import failures_text
from tuner.report.vendor import VendorSpeedup, vendor_speedup
from tuner.search import Result


@dataclass(frozen=True, repr=False)
class Tuned:
    """The outcome for one problem: its answer, by a search or as it was stored; or an error."""

    problem: Problem
    found: LookupResult | None = None
    """The answer with its evidence and provenance; None if there is none."""
    result: Result | None = None
    """The search; None if a stored answer was good enough, or nothing could be measured."""
    error: str = ""
    seconds: float = 0.0
    """Wall time since the problem before was done."""
    vendor: VendorSpeedup | None = None
    """The vendor's latency over the answer's; None if the vendor was not timed."""

    default_failure: str = ""
    """Outcome and error of the default, if it is not feasible or failed."""
    elsewhere: bool = False
    """True if another machine searched it, as a task of a fleet; the search itself is not here."""

    def __repr__(self) -> str:
        """Return the answer and its speed-up over the vendor, or the error: the value of a cell in a notebook."""
        if self.answer is None:
            return f"<Tuned {self.problem.text}: {self.error or 'interrupted'}>"
        beside = "" if self.vendor is None else f", {self.vendor.ratio:.3f} x {self.vendor.name}"
        return f"<Tuned {self.answer!r}{beside}>"

    @staticmethod
    def of(store: Store, found: LookupResult, result: Result | None = None) -> Tuned:
        """Return the outcome whose answer the store gave."""
        stored = found.stored
        failure = default_failure(store, stored)
        return Tuned(found.problem, found, result, vendor=vendor_speedup(store, stored), default_failure=failure)

    @property
    def answer(self) -> Answer | None:
        """The answer; None if the search failed or was interrupted."""
        stored = None if self.found is None else self.found.stored
        return None if stored is None else stored.answer

    @property
    def device(self) -> str:
        """Id of the card; empty if there is no answer."""
        return "" if self.found is None else self.found.device

    @property
    def searched(self) -> bool:
        """True if it was searched now, and not answered from the store."""
        return self.result is not None or self.elsewhere

    @property
    def interrupted(self) -> bool:
        """True if the search was stopped before it had an answer."""
        return self.answer is None and self.result is not None and self.result.stopped == "interrupted"

    def as_json(self, snapshot: str) -> dict[str, Any]:
        """Return the document of `tuner search --json`: that of `tuner best --json`, and how the answer came about."""
        seconds = {"seconds": round(self.seconds, 2)}
        if self.found is None:
            head = {"op": self.problem.op, "problem": self.problem.values}
            how = {"searched": True, "tried": None, "run": None}
            return {**head, "match": "failed", "error": self.error, **how, **seconds}
        tried, run = (None, None) if self.found.stored is None else (self.found.stored.trials, self.found.stored.run_id)
        failure = {"default_failure": self.default_failure} if self.default_failure else {}
        return {
            **self.found.as_json(snapshot),
            "searched": self.searched,
            "tried": tried,
            "run": run,
            **failure,
            **seconds,
        }


def nothing_ran(result: Result) -> NothingFound:
    """Return the error of a search in which no config ran with correct results."""
    counted = failures_text(result.failures) or "none was measured in time"
    failed = next((measurement for measurement in result.measurements if not measurement.ok), None)
    first = ""
    if failed is not None:
        how = f"fails in {failed.stage}" if failed.stage else f"is {failed.outcome}"
        first = f"\nthe first, {failed.config.text}, {how}{failed.error and f': {failed.error}'}"
    return NothingFound(f"no config ran with correct results: {counted}; nothing is stored{first}")
