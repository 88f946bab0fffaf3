"""The evidence for an answer, as its page shows it: its comparison, the configs of its search, and the roofline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from tuner.api.pages.plots import Landscape, landscape, landscape_points
from tuner.db.store import Store
from tuner.errors import NothingFound
from tuner.kernels.spec import Config, Value
from tuner.records import IMPORTED, VENDOR, Measurement, RooflineLimits, StoredAnswer, StoredRun
from tuner.report.default import failure_in
from tuner.report.explain import explain
from tuner.report.explanation import Contender, Explanation
from tuner.report.importance import importances
from tuner.report.text import bytes_text, first_line
from tuner.report.vendor import VendorSpeedup, role_text, vendor_speedup

FASTEST = 10
"""Rows of the table of the fastest measurements."""


@dataclass(frozen=True)
class LadderRow:
    """A contender as the table shows it."""

    number: int
    """Place by latency, from 1."""
    contender: Contender
    roles: tuple[str, ...]
    knobs: tuple[tuple[str, Value], ...]
    """Choices of the knobs in which the contenders differ, the most important first; empty for the vendor."""
    registers: str
    """Registers of a thread, and bytes that it spills; empty if they are not known."""
    shared: str
    """Shared memory of a block; empty if it is not known."""
    resident: str
    """Resident blocks and share of warps of an SM; empty if it is not known."""


@dataclass(frozen=True)
class Fast:
    """A measurement as the table shows it."""

    config: Config
    latency_us: float
    marks: tuple[str, ...]


@dataclass(frozen=True)
class Failed:
    """Configs that failed in one way."""

    outcome: str
    count: int
    stage: str
    error: str
    config: Config


@dataclass(frozen=True)
class Evidence:
    """Everything that the page of an answer shows of its search. It keeps no samples, so that many may be kept."""

    explanation: Explanation | None
    """None for an imported answer, for which nothing was compared here."""
    vendor: VendorSpeedup | None
    default_failure: str
    """Outcome and error of a default that failed; else empty."""
    limits: RooflineLimits | None
    landscape: Landscape
    fastest: tuple[Fast, ...]

    @cached_property
    def ladder(self) -> tuple[LadderRow, ...]:
        """Contenders, fastest first; empty if no rounds are stored."""
        if self.explanation is None:
            return ()
        names, _ = self._compared
        rows = enumerate(self.explanation.ladder, 1)
        return tuple(_row(number, each, self.explanation.run, names) for number, each in rows)

    @property
    def differing(self) -> list[str]:
        """Names of the knobs in which contenders differ, the most important first."""
        return self._compared[0]

    @property
    def shared_by_all(self) -> str:
        """The choices that all contenders have: `BLOCK_K=64, num_warps=8`."""
        _, same = self._compared
        return ", ".join(f"{name}={value}" for name, value in same.items())

    @cached_property
    def _compared(self) -> tuple[list[str], dict[str, Value]]:
        """Names of the knobs in which contenders differ, the most important first, and the choices of the others."""
        if self.explanation is None:
            return [], {}
        measured = [each.measurement for each in self.explanation.ladder if each.measurement is not None]
        names = dict.fromkeys(name for each in measured for name in each.config)
        choices = {name: {each.config.get(name) for each in measured} for name in names}
        order = [*self.explanation.importance, *choices]
        differing = sorted((name for name, several in choices.items() if len(several) > 1), key=order.index)
        return differing, {name: next(iter(several)) for name, several in choices.items() if len(several) == 1}

    @property
    def failures(self) -> list[Failed]:
        """Configs that failed, by outcome, most frequent first."""
        if self.explanation is None:
            return []
        return [
            Failed(each.outcome, each.count, each.stage, first_line(each.example, 300), each.config)
            for each in self.explanation.candidates.failures
        ]

    @property
    def roofline_missing(self) -> str:
        """Reason for which there is no roofline, without a full stop; empty if there is one."""
        if self.explanation is None or self.limits is None:
            return "The roofline limits of this card are not measured; the first search on it measures them"
        if self.explanation.answer.latency_us is None:
            return "The answer was never timed"
        return "" if self.explanation.answer.bytes else "The bytes that this problem moves are not known"

    @cached_property
    def points(self) -> bytes:
        """The landscape as JSON, for the script that draws it."""
        return landscape_points(self.landscape)


def evidence_of(store: Store, stored: StoredAnswer) -> Evidence:
    """Read the evidence for an answer from the store."""
    run = None if stored.answer.kind == IMPORTED else store.run(stored.measured_in)
    if run is None:
        return Evidence(None, None, "", None, Landscape((), (), {}), ())
    measurements = store.known_to(run)
    limits = store.roofline_limits(stored.provenance.device)
    try:
        shares, missing = importances(measurements), ""
    except NothingFound as error:
        shares, missing = {}, str(error)
    explained = explain(stored, run, store.comparison(run.id), measurements, limits, shares, missing)
    marks = _marks(explained)
    failed = "" if stored.answer.speedup is not None else failure_in(run.settings, measurements)
    vendor = vendor_speedup(store, stored)
    return Evidence(explained, vendor, failed, limits, landscape(measurements, marks), _fastest(measurements, marks))


def _marks(explained: Explanation) -> Mapping[str, Sequence[str]]:
    """Return the roles of the configs that have one besides having been compared, by canonical text."""
    return {
        each.name: tuple(role for role in each.roles if role != "beaten")
        for each in explained.ladder
        if each.name != VENDOR
    }


def _fastest(measurements: Sequence[Measurement], marks: Mapping[str, Sequence[str]]) -> tuple[Fast, ...]:
    ran = sorted((each for each in measurements if each.ok), key=lambda each: each.latency_us)[:FASTEST]
    return tuple(Fast(each.config, each.latency_us, tuple(marks.get(each.config.text, ()))) for each in ran)


def _row(number: int, contender: Contender, run: StoredRun, names: Sequence[str]) -> LadderRow:
    roles = tuple(role_text(role, run) for role in contender.roles)
    measured = contender.measurement
    if measured is None:
        return LadderRow(number, contender, roles, (), "", "", "")
    registers = "" if measured.registers is None else str(measured.registers)
    spills = f", {bytes_text(measured.spills)} spilled" if measured.spills else ""
    shared = "" if measured.shared_bytes is None else bytes_text(measured.shared_bytes)
    knobs = tuple((name, measured.config.get(name)) for name in names)
    return LadderRow(number, contender, roles, knobs, registers + spills, shared, _resident(contender))


def _resident(contender: Contender) -> str:
    held = contender.occupancy
    if held is None:
        return ""
    blocks = f"{held.blocks} block{'' if held.blocks == 1 else 's'}"
    return f"{blocks}, {100 * held.share:.3g} % of warps"
