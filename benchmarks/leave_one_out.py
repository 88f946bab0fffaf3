"""Leave-one-out assessment of neighbour answers: each tuned problem is answered as if its own answer were absent.

Pure functions over measurements.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from statistics import geometric_mean
from typing import Any

from tuner.lookup.query import Query
from tuner.lookup.table import Table
from tuner.records import Interval, StoredAnswer, Transfer

MAX_LOSS, MAX_SLOWER = 0.03, 0.02
"""Limits over all neighbour answers: geometric mean of the transfer loss, and share slower than the default."""


@dataclass(frozen=True)
class Tried:
    """The config of another problem's answer, measured on this problem. Ratios are of latencies: above 1 is slower."""

    answer: int
    distance: float
    valid: bool
    slowdown: float | None = None
    """Latency over that of the problem's own answer; None if the config failed or is not valid."""
    interval: Interval | None = None
    over_default: float | None = None
    over_default_interval: Interval | None = None
    error: str = ""

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Tried:
        """Return the value of which `asdict` went through JSON."""
        intervals = {name: document[name] and tuple(document[name]) for name in ("interval", "over_default_interval")}
        return Tried(**{**document, **intervals})


@dataclass(frozen=True)
class LeftOut:
    """One problem with the configs that were tried on it."""

    key: list[int]
    problem: str
    default: float | None
    """Default's latency over the answer's; None if the default did not run."""
    tried: tuple[Tried, ...]
    rounds: int = 0
    marks: tuple[str, ...] = ()
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Return plain values, which `from_json` reads."""
        return asdict(self)

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> LeftOut:
        """Return the problem that `as_json` wrote."""
        tried = tuple(Tried.from_json(one) for one in document["tried"])
        return LeftOut(**{**document, "tried": tried, "marks": tuple(document["marks"])})


def transfers(problems: Iterable[LeftOut]) -> list[Transfer]:
    """Return the measured transfers, as a lookup reads them."""
    tries = [(row, tried) for row in problems for tried in row.tried if tried.valid]
    return [
        Transfer(number, tried.answer, row.key[0], tried.distance, inf if tried.slowdown is None else tried.slowdown)
        for number, (row, tried) in enumerate(tries)
    ]


@dataclass(frozen=True)
class Judged:
    """The config served for a problem that is left out, and its transfer loss."""

    problem: str
    neighbour: str
    expected_loss: float | None
    """Expected transfer loss; None if the lookup does not serve this config."""
    slowdown: float
    over_default: float | None
    slower: bool
    """True if it is shown to be slower than the default."""


@dataclass(frozen=True)
class Assessment:
    """The result over all problems."""

    problems: int
    served: list[Judged] = field(default_factory=list)
    refused: list[Judged] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Return plain values, with figures over all answers."""
        return {
            "problems": self.problems,
            "served": _figures(self.served),
            "nearest_whatever_the_rule": _figures([*self.served, *self.refused]),
            "answers": [asdict(judged) for judged in (*self.served, *self.refused)],
        }

    @property
    def holds(self) -> bool:
        """True if loss and slower share are within their limits."""
        figures = _figures(self.served)
        return not self.served or (figures["loss"] <= MAX_LOSS and figures["slower"] < MAX_SLOWER)


def _figures(judged: Sequence[Judged]) -> dict[str, Any]:
    if not judged:
        return {"answers": 0, "loss": None, "slower": None, "over_default": None}
    over = [one.over_default for one in judged if one.over_default is not None]
    return {
        "answers": len(judged),
        "loss": geometric_mean([one.slowdown for one in judged]) - 1,
        "slower": sum(one.slower for one in judged) / len(judged),
        "over_default": geometric_mean(over) if over else None,
    }


def assess(
    problems: Sequence[LeftOut], answers: Mapping[int, StoredAnswer], query: Callable[[StoredAnswer], Query]
) -> Assessment:
    """Answer each problem as if its own answer were absent.

    Args:
        problems: measured configs of each problem.
        answers: all stored answers by id.
        query: returns the query that an answer matches exactly.
    """
    known = transfers(problems)
    assessment = Assessment(len(answers))
    for row in problems:
        own, valid = answers[row.key[0]], {tried.answer: tried for tried in row.tried if tried.valid}
        others = [stored for stored in answers.values() if stored.id != own.id]
        others_transfers = [transfer for transfer in known if own.id not in (transfer.from_answer, transfer.to_answer)]
        found = Table(own.provenance.device.id, others, others_transfers).find(query(own), _among(valid))
        if found.neighbour is not None and found.stored is not None:
            expected = found.neighbour.expected_loss
            assessment.served.append(_judged(row, valid[found.stored.id], answers, expected))
        elif valid:
            nearest = min(valid.values(), key=lambda tried: (tried.distance, tried.answer))
            assessment.refused.append(_judged(row, nearest, answers, None))
    return assessment


def _among(valid: Container[int]) -> Callable[[StoredAnswer], bool]:
    return lambda stored: stored.id in valid


def _judged(row: LeftOut, tried: Tried, answers: Mapping[int, StoredAnswer], expected: float | None) -> Judged:
    slower = tried.slowdown is None or (tried.over_default_interval is not None and tried.over_default_interval[0] > 1)
    return Judged(
        row.problem,
        answers[tried.answer].answer.problem.text,
        expected,
        inf if tried.slowdown is None else tried.slowdown,
        tried.over_default,
        slower,
    )


def report(assessment: Assessment) -> Iterator[str]:
    """Yield the lines of a report."""
    for name, judged in (("served", assessment.served), ("refused", assessment.refused)):
        for one in sorted(judged, key=lambda one: one.problem):
            expected = "" if one.expected_loss is None else f", {100 * one.expected_loss:.1f} % expected"
            default = "" if one.over_default is None else f", {one.over_default:.3f} of the default's time"
            slower = " SLOWER" if one.slower else ""
            lost = f"loses {100 * (one.slowdown - 1):.1f} %{expected}{default}{slower}"
            yield f"{name:8} {one.problem} <- {one.neighbour}: {lost}"
    for name, judged in (
        ("neighbour answers", assessment.served),
        ("any nearest", [*assessment.served, *assessment.refused]),
    ):
        figures = _figures(judged)
        if judged:
            loss, slower = 100 * figures["loss"], 100 * figures["slower"]
            counts = f"{name}: {len(judged)} of {assessment.problems} problems"
            yield f"{counts}; geometric-mean loss {loss:.2f} %; slower than the default {slower:.1f} %"
    if not assessment.served:
        yield "no problem is answered by a neighbour"
