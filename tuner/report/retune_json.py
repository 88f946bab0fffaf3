"""The report of a retune as one JSON document."""

from __future__ import annotations

from typing import Any

from tuner.records.retune_codec import retune_as_json
from tuner.report.retune_report import RetuneReport


def retune_document(report: RetuneReport) -> dict[str, Any]:
    """Return the retune with all findings, its summary, and the problems that are left.

    The ids of `summary` are those of the answers that were measured again.
    """
    document = retune_as_json(report.retune)
    left = [
        {"answer_id": answer, "op": problem.op, "problem": problem.values} for answer, problem in report.left.items()
    ]
    return {**document, "summary": report.summary.as_json(), "left_problems": left}
