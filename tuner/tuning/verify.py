"""Verification of a stored answer: checked again, and timed again beside its ties and the default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuner.errors import NothingFound
from tuner.kernels.spec import Config
from tuner.measure.measurer import Measurer
from tuner.records import Answer, Comparison, Evidence, Interval, Measurement, median
from tuner.report.text import interval_text, speed_text
from tuner.search import ComparisonSettings, search
from tuner.search.verdict import VERDICT, interval_of_median, ratio

_TIES = 4
"""Ties of an answer that it is compared with again, at most."""


@dataclass(frozen=True)
class Check:
    """The outcome of measuring an answer again."""

    wrong: Measurement | None = None
    """The failed measurement of its config; then nothing else is known."""
    changes: tuple[str, ...] = ()
    """Sentences, one for each way in which it differs from the stored answer."""
    latency_us: float | None = None
    interval_us: Interval | None = None
    speedup: float | None = None
    """The default's latency over the answer's; None if the default does not run."""
    speedup_interval: Interval | None = None
    evidence: Evidence | None = None
    marks: tuple[str, ...] = ()

    @property
    def outcome(self) -> str:
        """`holds`, `changed` or `wrong`."""
        return "wrong" if self.wrong is not None else "changed" if self.changes else "holds"

    def as_json(self) -> dict[str, Any]:
        """Return the `verified` part of `tuner verify --json`."""
        return {
            "outcome": self.outcome,
            "error": None if self.wrong is None else f"{self.wrong.outcome}: {self.wrong.error}",
            "changes": list(self.changes),
            "latency_us": self.latency_us,
            "interval_us": self.interval_us,
            "speedup": self.speedup,
            "speedup_interval": self.speedup_interval,
            "checked": None if self.evidence is None else asdict(self.evidence),
            "marks": list(self.marks),
        }


def verify(answer: Answer, default: Config | None, measurer: Measurer, seed: int = 0) -> Check:
    """Measure an answer again.

    Args:
        default: the kernel's current default; None if it is not feasible.
        measurer: times by the answer's policy; it is not closed.

    Raises:
        NothingFound: the answer's config ran with correct results, but there was no interleaved comparison.
    """
    contenders = [answer.config, *(tie.config for tie in answer.ties[:_TIES]), *([] if default is None else [default])]
    space = list(dict.fromkeys(contenders))
    result = search(
        space,
        default,
        measurer,
        sampler="grid",
        seed=seed,
        finalists=lambda ranked: ranked,
        comparison=ComparisonSettings(elimination_s=None),
    )
    (own,) = [measurement for measurement in result.measurements if measurement.config == answer.config]
    if not own.ok:
        return Check(wrong=own)
    if result.comparison is None:
        raise NothingFound(f"{answer.problem.text} could not be measured again: {result.stopped}")
    compared = [config for config in space if config.text in result.comparison.contenders]
    return judge(answer, default, compared, result.comparison, result.evidence[answer.config])


def judge(
    answer: Answer, default: Config | None, contenders: Sequence[Config], comparison: Comparison, evidence: Evidence
) -> Check:
    """Return the outcome of new rounds: the answer changed if they contradict it by more than 1 %, with confidence.

    Args:
        contenders: the configs of the comparison.
    """
    own = answer.config.text
    changes = []
    speedup = speedup_interval = None
    if default is not None and default in contenders:
        speedup, speedup_interval = ratio(comparison, default.text, own)
        if speedup_interval[1] < 1 / VERDICT.equivalent:
            changes.append(f"it is slower than the default: {_speed(speedup, speedup_interval)}")
        elif answer.speedup_interval is not None and _apart(answer.speedup_interval, speedup_interval):
            assert answer.speedup is not None
            changes.append(
                f"it was {_speed(answer.speedup, answer.speedup_interval)}, and is {_speed(speedup, speedup_interval)}"
            )
    for tie in answer.ties:
        if tie.config in contenders and tie.config != default:
            slowdown, interval = ratio(comparison, tie.config.text, own)
            if _apart(tie.interval, interval):
                changes.append(
                    f"a tie took {_shown(tie.slowdown, tie.interval)} of its time, "
                    f"and takes {_shown(slowdown, interval)}: {tie.config.text}"
                )
    latencies = comparison.of(own)
    return Check(
        changes=tuple(changes),
        latency_us=median(latencies),
        interval_us=interval_of_median(latencies),
        speedup=speedup,
        speedup_interval=speedup_interval,
        evidence=evidence,
        marks=comparison.marks,
    )


def overlap(a: Interval, b: Interval) -> bool:
    """Return whether two intervals have a value in common."""
    return a[0] <= b[1] and b[0] <= a[1]


def _apart(before: Interval, now: Interval) -> bool:
    """Return whether two intervals are more than 1 % apart."""
    return not overlap((before[0] / VERDICT.equivalent, before[1] * VERDICT.equivalent), now)


def _speed(speedup: float, interval: Interval) -> str:
    return f"{speed_text(speedup, 'default')} ({interval_text(interval, 3)})"


def _shown(value: float, interval: Interval) -> str:
    return f"{value:.3f} ({interval_text(interval, 3)})"
