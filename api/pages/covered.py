"""Problems of an op on a card, each with its state and its figures: the rows of the coverage page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain

from tuner.api.pages.missed import Missed
from tuner.api.pages.plots import ColourScale, State, around_one, from_low_to_high, shares
from tuner.api.pages.served import Served
from tuner.api.pages.tables import has_words
from tuner.kernels.spec import Problem, Value
from tuner.kernels.values import ordering
from tuner.records import Device, RooflineLimits, StoredAnswer
from tuner.report.explain import roofline_of
from tuner.report.vendor import VendorSpeedup, ratio_of_medians, vendor_label

CONCERN: Mapping[State, int] = {state: place for place, state in enumerate(State)}
"""Place of each state, the one of most concern last."""
ABOUT = {
    State.TUNED: "A search found a config that is faster than the default, and nothing has changed since.",
    State.NEIGHBOUR: "It was asked for and has no answer of its own; the answer of a near problem serves.",
    State.DEFAULT: "A search found nothing faster than the default.",
    State.STALE: "The kernel, Triton, ptxas or the driver has changed since, or it was recorded or imported.",
    State.MISSED: "It was asked for, and no answer serves.",
}
"""Meaning of each state, as a sentence."""


@dataclass(frozen=True)
class Row:
    """One problem on a card."""

    problem: Problem
    state: State
    stored: StoredAnswer | None = None
    """The answer to the problem that serves."""
    missed: Missed | None = None

    @property
    def latency_us(self) -> float | None:
        return None if self.stored is None else self.stored.answer.latency_us

    @property
    def gain(self) -> float | None:
        """Speed-up over the default."""
        return None if self.stored is None else self.stored.answer.speedup

    @property
    def asked(self) -> int | None:
        """Number of lookups that missed it."""
        return None if self.missed is None else self.missed.count


def rows_of(served: Served, misses: Iterable[Missed]) -> list[Row]:
    """Return the problems that have an answer, and those that were missed."""
    answered = [Row(stored.answer.problem, _state(stored, is_exact), stored) for stored, is_exact in served.answers]
    asked = [Row(one.problem, State.NEIGHBOUR if one.has_neighbour else State.MISSED, None, one) for one in misses]
    return [*answered, *asked]


def _state(stored: StoredAnswer, is_exact: bool) -> State:
    if not is_exact:
        return State.STALE
    return State.DEFAULT if stored.answer.kind == "default" else State.TUNED


def by_concern(row: Row) -> tuple[object, ...]:
    """Return the sort key of a row: the states of most concern first, in them the problems asked for most often."""
    return -CONCERN[row.state], -(row.asked or 0), row.problem.sizes, row.problem.text


@dataclass(frozen=True)
class Part:
    """A dim, an attribute or the dtype, with the values that it has among some problems."""

    name: str
    values: Sequence[Value]
    """In order."""
    is_dim: bool


def parts_of(rows: Iterable[Row]) -> list[Part]:
    """Return the dims, the dtype and the attributes of the problems, dims first."""
    dims, others = dict[str, set[Value]](), dict[str, set[Value]]()
    for problem in (row.problem for row in rows):
        for name, size in problem.dims:
            dims.setdefault(name, set()).add(size)
        for name, value in chain((("dtype", problem.dtype),), problem.attributes):
            others.setdefault(name, set()).add(value)
    return [
        Part(name, sorted(values, key=ordering), found is dims)
        for found in (dims, others)
        for name, values in found.items()
    ]


def axes_of(parts: Sequence[Part]) -> tuple[str | None, str | None]:
    """Return the two dims with the most sizes, in the order of the signature; None for each that there is not."""
    dims = [part for part in parts if part.is_dim]
    widest = sorted(dims, key=lambda part: -len(part.values))[:2]
    first, second, *_ = (*(part.name for part in dims if part in widest), None, None)
    return first, second


@dataclass(frozen=True)
class Wanted:
    """Filters of the rows."""

    values: Mapping[str, str]
    """Values of dims, of the dtype and of attributes, as text, by name."""
    words: tuple[str, ...] = ()
    """Words that a problem has, as for `has_words`."""
    state: State | None = None
    ranges: Mapping[str, tuple[int, int]] | None = None
    """Least and largest size of a dim, by name."""

    def has(self, row: Row) -> bool:
        """Return whether a row passes."""
        if self.state is not None and row.state is not self.state:
            return False
        known = row.problem.values
        if any(str(known.get(name)) != value for name, value in self.values.items()):
            return False
        if not has_words(row.problem, self.words):
            return False
        return all(low <= known.get(name, 0) <= high for name, (low, high) in (self.ranges or {}).items())


class Figures:
    """Figures of rows that need more than their answers.

    Args:
        limits_of: Return the roofline limits of a card; None if they were not measured.
        speedup_of: Return the speed-up of an answer over its vendor; None if this was not timed.
        speedups: Results of `speedup_of` by the ids of answers, added to.
    """

    def __init__(
        self,
        limits_of: Callable[[Device], RooflineLimits | None],
        now: datetime,
        speedup_of: Callable[[StoredAnswer], VendorSpeedup | None] = lambda stored: None,
        speedups: dict[int, VendorSpeedup | None] | None = None,
    ) -> None:
        self._limits_of, self._now, self._speedup_of = limits_of, now, speedup_of
        self._limits: dict[int, RooflineLimits | None] = {}
        self._speedups = {} if speedups is None else speedups

    def vendor(self, row: Row) -> float | None:
        """Return the speed-up over the vendor, as the answer's own page has it; None if the vendor was not timed."""
        if row.stored is None or row.stored.answer.vendor_latency_us is None:
            return None
        if row.stored.id not in self._speedups:
            self._speedups[row.stored.id] = self._speedup_of(row.stored)
        found = self._speedups[row.stored.id]
        return None if found is None else found.ratio

    def share(self, row: Row) -> float | None:
        """Return the share of the roofline, at most about 1; None if it is not known."""
        if row.stored is None:
            return None
        device = row.stored.provenance.device
        if id(device) not in self._limits:  # cards are few, and answers share them
            self._limits[id(device)] = self._limits_of(device)
        limits = self._limits[id(device)]
        found = None if limits is None else roofline_of(row.stored.answer, limits)
        return None if found is None or found.missing else found.share

    def age_days(self, row: Row) -> float | None:
        """Return the days since the answer was stored."""
        if row.stored is None:
            return None
        try:
            then = datetime.fromisoformat(row.stored.created_at)
        except ValueError:
            return None
        past = self._now - (then if then.tzinfo else then.replace(tzinfo=UTC))
        return max(0.0, past.total_seconds() / 86_400)


@dataclass(frozen=True)
class Colour:
    """A figure that the cells of the heat map can show."""

    key: str
    label: str
    value: Callable[[Row], float | None]
    scale: Callable[[Sequence[float]], ColourScale]


def vendor_by_medians(row: Row) -> float | None:
    """Return the speed-up over the vendor by median latencies, which takes no rounds from the store."""
    return None if row.stored is None else ratio_of_medians(row.stored.answer)


def colours_of(
    figures: Figures, vendor: str, speedup: Callable[[Row], float | None] | None = None
) -> Mapping[str, Colour]:
    """Return what cells may show, by name in the query. `speedup`: that over the vendor, if not by the figures."""
    over = f"speed-up over {vendor}"
    found = (
        Colour(
            "gain",
            "Speed-up over default",
            lambda row: row.gain,
            lambda values: around_one("speed-up over default", values),
        ),
        Colour("vendor", f"Speed-up over {vendor}", speedup or figures.vendor, lambda values: around_one(over, values)),
        Colour("roofline", "Share of roofline", figures.share, lambda _: shares("share of roofline")),
        Colour("age", "Age", figures.age_days, lambda values: from_low_to_high("age", values, " days")),
    )
    return {colour.key: colour for colour in found}


def vendor_of(rows: Iterable[Row]) -> str:
    """Return the name of the vendor of these rows, or `vendor` if they have several."""
    return vendor_label({row.stored.vendor for row in rows if row.stored is not None and row.stored.vendor})
