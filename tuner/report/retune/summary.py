"""The summary of a retune: counts by cause and action, regressions, gains, and the factor of the machine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, fsum, log
from typing import Any

from tuner.errors import CHANGED
from tuner.records import VENDOR, Interval, median
from tuner.records.readings import is_code_same, is_in_both, machine_factor, quotient, role_factor
from tuner.records.retune import Action, Cause, Finding, Reading, Retune

MACHINE_FACTOR = 1.05
"""Median factor of all latencies above which a slower machine counts as a regression."""


@dataclass(frozen=True)
class RetuneSummary:
    """Facts about all findings of a retune."""

    planned: int
    left: int
    """Number of planned answers without a finding."""
    causes: Mapping[Cause, int]
    actions: Mapping[Action, int]
    regressions: tuple[Finding, ...]
    """Findings that count as regressions, repaired ones too."""
    not_measured: tuple[Finding, ...]
    replaced: tuple[Finding, ...]
    machine: float | None
    """Median over all problems of the factor of the machine, or of the vendor's latency; None if there is none."""
    gain: float | None
    """Geometric mean of the gains of the replaced answers; None without one."""
    seconds: float
    """Sum of the findings' wall times."""
    status: str
    """Status of the retune."""

    @property
    def measured(self) -> int:
        """Number of answers that were measured again; a broken config counts."""
        return sum(self.causes.values()) - len(self.not_measured)

    @property
    def unrepaired(self) -> tuple[Finding, ...]:
        """Regressions that are still there."""
        return tuple(finding for finding in self.regressions if finding.is_open_regression)

    @property
    def exit_code(self) -> int:
        """4 if there are regressions, else 1 if something was not measured, else 0."""
        if self.regressions:
            return CHANGED
        return 1 if self.not_measured or self.status == "failed" else 0

    def as_json(self) -> dict[str, Any]:
        """Return the `summary` part of the report's document."""
        return {
            "planned": self.planned,
            "measured": self.measured,
            "not_measured": len(self.not_measured),
            "left": self.left,
            "causes": {str(cause): count for cause, count in self.causes.items()},
            "actions": {str(action): count for action, count in self.actions.items()},
            "regressions": [finding.answer_id for finding in self.regressions],
            "unrepaired": [finding.answer_id for finding in self.unrepaired],
            "replaced": [finding.answer_id for finding in self.replaced],
            "machine": None if self.machine is None else round(self.machine, 4),
            "gain": None if self.gain is None else round(self.gain, 4),
            "seconds": round(self.seconds, 1),
            "exit_code": self.exit_code,
        }


def summarise(retune: Retune) -> RetuneSummary:
    """Return the summary of a retune.

    A regression counts if it is more than the setting `slower` of the retune, 0 by default, with confidence: 0.1 is
    10 %. A slower machine counts only if the median over all problems moved by more than 5 %.
    """
    findings = retune.findings
    causes = Counter(finding.cause for finding in findings)
    actions = Counter(finding.action for finding in findings)
    machine = _machine(findings)
    slower = float(retune.settings.get("slower") or 0.0)
    replaced = tuple(finding for finding in findings if finding.action is Action.REPLACED)
    gains = [log(finding.gain) for finding in replaced if finding.gain]
    return RetuneSummary(
        planned=len(retune.planned),
        left=len(retune.left),
        causes={cause: causes[cause] for cause in Cause if causes[cause]},
        actions={action: actions[action] for action in Action if actions[action]},
        regressions=tuple(finding for finding in findings if _counts(finding, machine, slower)),
        not_measured=tuple(finding for finding in findings if finding.cause is Cause.NOT_MEASURED),
        replaced=replaced,
        machine=machine,
        gain=exp(fsum(gains) / len(gains)) if gains else None,
        seconds=fsum(finding.seconds for finding in findings),
        status=retune.status,
    )


def change(finding: Finding) -> float | None:
    """Return the config's latency now over that then; None if they cannot be compared."""
    pair = _comparable(finding)
    return None if pair is None else pair[1].latency_us / pair[0].latency_us


def slowdown(finding: Finding) -> tuple[float, Interval] | None:
    """Return how much slower the config is now than then, with its interval; None if it is not known.

    For slower code it is the change of the ratio to the vendor, as the machine does not affect that. For a slower
    machine, and without a vendor, it is that of the latency: the default may have slowed with the config.
    """
    then, now = finding.then, finding.now
    if then is None or now is None:
        return None
    if finding.cause is not Cause.SLOWER_MACHINE and is_in_both(VENDOR, then, now):
        before, after = then.contenders[VENDOR], now.contenders[VENDOR]
        return quotient((before.ratio, before.interval), (after.ratio, after.interval))
    if _comparable(finding) is None:
        return None
    return quotient((now.latency_us, now.interval_us), (then.latency_us, then.interval_us))


def _counts(finding: Finding, machine: float | None, slower: float) -> bool:
    """Return whether a finding counts as a regression."""
    if not finding.cause.is_regression:
        return False
    if finding.cause is Cause.BROKEN:
        return True
    if finding.cause is Cause.SLOWER_MACHINE and (machine is None or machine <= MACHINE_FACTOR):
        return False
    known = slowdown(finding)
    return not slower or known is None or known[1][0] > 1 + slower


def _machine(findings: tuple[Finding, ...]) -> float | None:
    factors = [factor for finding in findings if (factor := _factor(finding)) is not None]
    return median(factors) if factors else None


def _factor(finding: Finding) -> float | None:
    """Return the machine's factor, else that of the config if its code is the same, else that of the vendor."""
    pair = _comparable(finding)
    if pair is None:
        return None
    if (factor := machine_factor(*pair)) is not None:
        return factor
    if is_code_same(*pair):
        return pair[1].latency_us / pair[0].latency_us
    return role_factor(VENDOR, *pair) if is_in_both(VENDOR, *pair) else None


def _comparable(finding: Finding) -> tuple[Reading, Reading] | None:
    """Return both readings if they were timed by the same policy."""
    then, now = finding.then, finding.now
    if then is None or now is None or finding.cause is Cause.METHOD or then.provenance.policy != now.provenance.policy:
        return None
    return then, now
