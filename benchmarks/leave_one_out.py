"""Every tuned problem answered as if it were absent, and what such an answer costs. Pure: judges what was measured."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import inf
from statistics import geometric_mean
from typing import Any

from tuner.lookup.query import Query
from tuner.lookup.table import Table
from tuner.records import Interval, StoredAnswer, Transfer

LOSS_BAR, SLOWER_BAR = 0.03, 0.02
"""Of all neighbour answers: geometric mean of what they lose, and share that is slower than the default."""


@dataclass(frozen=True)
class Tried:
    """Another problem's config on this one. Ratios are latencies: above 1, it is slower."""

    answer: int
    distance: float
    valid: bool
    slowdown: float | None = None
    """Over the problem's own answer; None where it failed, or was not valid."""
    interval: Interval | None = None
    over_default: float | None = None
    over_default_interval: Interval | None = None
    error: str = ""

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Tried:
        intervals = {name: document[name] and tuple(document[name]) for name in ("interval", "over_default_interval")}
        return Tried(**{**document, **intervals})


@dataclass(frozen=True)
class Row:
    """One problem."""

    key: list[int]
    problem: str
    default: float | None
    """The default's latency over the answer's."""
    tried: tuple[Tried, ...]
    rounds: int = 0
    marks: tuple[str, ...] = ()
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Plain values; `from_json` gives the row back."""
        return asdict(self)

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> Row:
        """The row that `as_json` wrote."""
        tried = tuple(Tried.from_json(one) for one in document["tried"])
        return Row(**{**document, "tried": tried, "marks": tuple(document["marks"])})


def transfers(rows: Iterable[Row]) -> list[Transfer]:
    """What the rows say, as the rule reads it."""
    tries = [(row, tried) for row in rows for tried in row.tried if tried.valid]
    return [
        Transfer(number, tried.answer, row.key[0], tried.distance, inf if tried.slowdown is None else tried.slowdown)
        for number, (row, tried) in enumerate(tries)
    ]


@dataclass(frozen=True)
class Judged:
    """What would have been served for a problem that is left out, and what it costs."""

    problem: str
    neighbour: str
    expected_loss: float | None
    """None: the nearest within reach, which the rule does not serve."""
    slowdown: float
    over_default: float | None
    slower: bool
    """Than the default, beyond doubt."""


@dataclass(frozen=True)
class Verdict:
    """Over all problems left out."""

    problems: int
    served: list[Judged] = field(default_factory=list)
    refused: list[Judged] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {
            "problems": self.problems,
            "served": _figures(self.served),
            "nearest_whatever_the_rule": _figures([*self.served, *self.refused]),
            "answers": [asdict(judged) for judged in (*self.served, *self.refused)],
        }

    @property
    def holds(self) -> bool:
        """Whether the bars are met."""
        told = _figures(self.served)
        return not self.served or (told["loss"] <= LOSS_BAR and told["slower"] < SLOWER_BAR)


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


def judge(rows: Sequence[Row], answers: Mapping[int, StoredAnswer], asked: Callable[[StoredAnswer], Query]) -> Verdict:
    """Answers the problem of every row as if it were absent.

    Args:
        answers: all of them, by id.
        asked: the question to which an answer for its own problem is exact.
    """
    known = transfers(rows)
    verdict = Verdict(len(answers))
    for row in rows:
        own, valid = answers[row.key[0]], {tried.answer: tried for tried in row.tried if tried.valid}
        others = [stored for stored in answers.values() if stored.id != own.id]
        told = [transfer for transfer in known if own.id not in (transfer.from_answer, transfer.to_answer)]
        found = Table(own.provenance.device.id, others, told).find(asked(own), _among(valid))
        if found.neighbour is not None and found.stored is not None:
            expected = found.neighbour.expected_loss
            verdict.served.append(_judged(row, valid[found.stored.id], answers, expected))
        elif valid:
            nearest = min(valid.values(), key=lambda tried: (tried.distance, tried.answer))
            verdict.refused.append(_judged(row, nearest, answers, None))
    return verdict


def _among(valid: Container[int]) -> Callable[[StoredAnswer], bool]:
    return lambda stored: stored.id in valid


def _judged(row: Row, tried: Tried, answers: Mapping[int, StoredAnswer], expected: float | None) -> Judged:
    slower = tried.slowdown is None or (tried.over_default_interval is not None and tried.over_default_interval[0] > 1)
    return Judged(
        row.problem,
        answers[tried.answer].answer.problem.text,
        expected,
        inf if tried.slowdown is None else tried.slowdown,
        tried.over_default,
        slower,
    )


def report(verdict: Verdict) -> Iterator[str]:
    """For a reader."""
    for name, judged in (("served", verdict.served), ("refused", verdict.refused)):
        for one in sorted(judged, key=lambda one: one.problem):
            expected = "" if one.expected_loss is None else f", {100 * one.expected_loss:.1f} % expected"
            default = "" if one.over_default is None else f", {one.over_default:.3f} of the default's time"
            slower = " SLOWER" if one.slower else ""
            lost = f"loses {100 * (one.slowdown - 1):.1f} %{expected}{default}{slower}"
            yield f"{name:8} {one.problem} <- {one.neighbour}: {lost}"
    for name, judged in (("neighbour answers", verdict.served), ("any nearest", [*verdict.served, *verdict.refused])):
        told = _figures(judged)
        if judged:
            yield (
                f"{name}: {len(judged)} of {verdict.problems} problems; "
                f"geometric-mean loss {100 * told['loss']:.2f} %; slower than the default {100 * told['slower']:.1f} %"
            )
    if not verdict.served:
        yield "no problem would be answered by a neighbour"
