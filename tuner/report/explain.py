"""Why an answer is the answer: its duel, what became of every other config, and how near the card's limits it is.

Pure: plain values in, one frozen report out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tuner.kernels.spec import Limits
from tuner.records import (
    VENDOR,
    Answer,
    CardState,
    Comparison,
    Interval,
    Measurement,
    RooflineLimits,
    StoredAnswer,
    StoredRun,
    marks_of,
    median,
)
from tuner.report.occupancy import Occupancy, occupancy
from tuner.search.verdict import interval_of_median, ratio


@dataclass(frozen=True)
class Contender:
    """One that met the answer in the duel. Ratios are over the answer's latency, round by round."""

    name: str
    """A config's canonical text, or `VENDOR`."""
    roles: tuple[str, ...]
    """Of `answer`, `default`, `tie` and `torch`, those that it is; else `beaten`. Ties are told by the
    fastest config, of whose equals the answer is one; so one that is beaten can be as near to the answer as a tie."""
    latency_us: float
    interval_us: Interval
    slowdown: float
    slowdown_interval: Interval
    measurement: Measurement | None = None
    """Its config, with what the compiler said of it; None for the vendor's kernel."""
    occupancy: Occupancy | None = None


@dataclass(frozen=True)
class Failure:
    """How many configs ended so, and what was said of one of them."""

    outcome: str
    count: int
    stage: str
    example: str


@dataclass(frozen=True)
class Candidates:
    """Every config of the space under one head: `space + outside` is the sum of all heads."""

    space: int | None
    """None where the run did not say how many there were; then nor is it known how many were not tried."""
    comparison: int
    slower: int
    beaten: int
    """Left after a first look, which showed them to be far behind."""
    failures: tuple[Failure, ...]
    not_tried: int | None
    outside: int
    """Of all that are counted here, how many earlier runs measured and this one did not take over, its space being
    another; which they are is not stored."""

    @property
    def failed(self) -> int:
        return sum(failure.count for failure in self.failures)


@dataclass(frozen=True)
class Roofline:
    """The least time the problem can take on the card, by what the card was seen to reach."""

    floor_us: float
    share: float
    """Of the roofline that the answer reaches: 1 is on it."""
    bound: str
    """`compute` or `memory`, whichever takes longer."""
    missing: str = ""
    """What was not measured, so that the floor may be too low."""


@dataclass(frozen=True)
class CardRange:
    """The card over the duel's rounds. None is what could not be seen."""

    rounds: int
    sm_mhz: tuple[int, int] | None
    temperature_c: int | None
    """The highest, as of the power."""
    power_w: float | None
    throttled: tuple[str, ...]
    marks: tuple[str, ...]


@dataclass(frozen=True)
class Explanation:
    """All that is known of why an answer is the answer."""

    answer: Answer
    run: StoredRun
    rounds: int
    ladder: tuple[Contender, ...]
    """Fastest first; empty where no rounds are kept."""
    chosen: str
    """Why the answer is this one of them."""
    candidates: Candidates
    roofline: Roofline | None
    """None where the card's ceilings were not measured, nor the answer's latency."""
    card: CardRange | None
    """None where nobody looked at it."""
    importance: Mapping[str, float] = field(default_factory=dict)
    """Every knob's share in what made configs fast, the largest first."""
    unimportant: str = ""
    """Why nothing can be said of that."""

    def as_json(self) -> dict[str, Any]:
        """What `tuner explain --json` adds to the answer's own document."""
        return {
            "run": self.run.id,
            "rounds": self.rounds,
            "chosen": self.chosen,
            "ladder": [_contender_json(contender) for contender in self.ladder],
            "candidates": {**asdict(self.candidates), "failed": self.candidates.failed},
            "importance": {name: _round(share) for name, share in self.importance.items()} or None,
            "importance_missing": self.unimportant or None,
            "roofline": None if self.roofline is None else _roofline_json(self.roofline),
            "seconds": dict(self.run.seconds),
            "card": None if self.card is None else asdict(self.card),
        }


def explain(
    stored: StoredAnswer,
    run: StoredRun,
    comparison: Comparison | None,
    measurements: Sequence[Measurement],
    roofline_limits: RooflineLimits | None,
    importance: Mapping[str, float] | None = None,
    unimportant: str = "",
) -> Explanation:
    """Puts together what is stored of an answer.

    Args:
        stored: the answer.
        run: the search that gave it.
        duel: that search's.
        measurements: what the search knew in the end.
        ceilings: of the answer's card.
        importance: of the knobs, by `tuner.report.importance`; without it, `unimportant` says why.
    """
    ladder = () if comparison is None else _ladder(stored, run, comparison, measurements)
    return Explanation(
        answer=stored.answer,
        run=run,
        rounds=0 if comparison is None else len(comparison.rounds),
        ladder=ladder,
        chosen=_chosen(stored.answer, ladder),
        candidates=_candidates(run, comparison, measurements),
        roofline=None if roofline_limits is None else _roofline(stored.answer, roofline_limits),
        card=None if comparison is None else _card(comparison.states),
        importance=importance or {},
        unimportant=unimportant,
    )


def failures(measurements: Sequence[Measurement]) -> tuple[Failure, ...]:
    """Those that failed, by outcome, the commonest first, with what was said of the first."""
    counted = Counter(m.outcome for m in measurements if not m.ok)
    first = {m.outcome: m for m in reversed(measurements) if not m.ok}
    return tuple(
        Failure(str(outcome), count, first[outcome].stage, first[outcome].error)
        for outcome, count in counted.most_common()
    )


def default_of(run: StoredRun, comparison: Comparison, answer: Answer) -> str | None:
    """The contender that is the kernel's default; runs from before that was stored know it by its latency."""
    if "default" in run.settings:
        default: str | None = run.settings["default"]
        return default
    if answer.kind == "default":
        return answer.config.text
    return next(
        (name for name in comparison.contenders if median(comparison.of(name)) == answer.default_latency_us), None
    )


def _ladder(
    stored: StoredAnswer, run: StoredRun, comparison: Comparison, measurements: Sequence[Measurement]
) -> tuple[Contender, ...]:
    answer, limits = stored.answer, stored.provenance.device.limits
    measured = {measurement.config.text: measurement for measurement in measurements}
    is_role: dict[str, set[str | None]] = {
        "answer": {answer.config.text},
        "default": {default_of(run, comparison, answer)},
        "tie": {tie.config.text for tie in answer.ties},
        "torch": {VENDOR},
    }
    ladder = []
    for name in comparison.contenders:
        latencies, measurement = comparison.of(name), measured.get(name)
        slowdown, slowdown_interval = ratio(comparison, name, answer.config.text)
        ladder.append(
            Contender(
                name=name,
                roles=tuple(role for role, names in is_role.items() if name in names) or ("beaten",),
                latency_us=median(latencies),
                interval_us=interval_of_median(latencies),
                slowdown=slowdown,
                slowdown_interval=slowdown_interval,
                measurement=measurement,
                occupancy=None if measurement is None else _occupancy(limits, measurement),
            )
        )
    return tuple(sorted(ladder, key=lambda contender: (contender.latency_us, contender.name)))


def _chosen(answer: Answer, ladder: Sequence[Contender]) -> str:
    """In words, the rule of `tuner.search.verdict.decide` that picked it."""
    fastest = next((contender for contender in ladder if contender.name != VENDOR), None)
    if answer.kind == "default":
        return "nothing beats the default by more than 1 % with confidence"
    if fastest is None or "answer" in fastest.roles:
        return "the fastest config"
    return "the least shared memory of all that are within 1 % of the fastest config"


def _occupancy(limits: Limits, measurement: Measurement) -> Occupancy | None:
    if measurement.registers is None or measurement.shared_bytes is None:
        return None
    return occupancy(limits, measurement.config["num_warps"], measurement.registers, measurement.shared_bytes)


def _candidates(run: StoredRun, comparison: Comparison | None, measurements: Sequence[Measurement]) -> Candidates:
    compared = set() if comparison is None else {*comparison.contenders} - {VENDOR}
    others = [measurement for measurement in measurements if measurement.config.text not in compared]
    ran = [measurement for measurement in others if measurement.ok]
    beaten = sum(measurement.looked_at for measurement in ran)
    space = run.settings.get("space")
    tried = len(compared) + len(others)
    outside = max(0, len(measurements) - run.trials - run.settings.get("known", 0))
    return Candidates(
        space=space,
        comparison=len(compared),
        slower=len(ran) - beaten,
        beaten=beaten,
        failures=failures(others),
        not_tried=None if space is None else space - (tried - outside),
        outside=outside,
    )


def _roofline(answer: Answer, roofline_limits: RooflineLimits) -> Roofline | None:
    if answer.latency_us is None:
        return None
    floor_us = roofline_limits.roofline_us(answer.problem, answer.flops, answer.bytes)
    memory_us = roofline_limits.roofline_us(answer.problem, 0, answer.bytes)
    arithmetic = roofline_limits.arithmetic(answer.problem)
    unknown = answer.flops and arithmetic not in roofline_limits.tflops
    return Roofline(
        floor_us=floor_us,
        share=floor_us / answer.latency_us,
        bound="compute" if floor_us > memory_us else "memory",
        missing=f"the card's {arithmetic} matmul" if unknown else "",
    )


def _card(states: Sequence[CardState]) -> CardRange | None:
    if not states:
        return None
    clocks = [state.sm_mhz for state in states if state.sm_mhz is not None]
    return CardRange(
        rounds=len(states),
        sm_mhz=(min(clocks), max(clocks)) if clocks else None,
        temperature_c=max((s.temperature_c for s in states if s.temperature_c is not None), default=None),
        power_w=max((state.power_w for state in states if state.power_w is not None), default=None),
        throttled=tuple(sorted({reason for state in states for reason in state.throttled})),
        marks=marks_of(states),
    )


def _contender_json(contender: Contender) -> dict[str, Any]:
    measurement, resident = contender.measurement, contender.occupancy
    return {
        "config": None if measurement is None else dict(measurement.config),
        "name": contender.name,
        "roles": list(contender.roles),
        "latency_us": _round(contender.latency_us),
        "interval_us": [_round(bound) for bound in contender.interval_us],
        "slowdown": _round(contender.slowdown),
        "slowdown_interval": [_round(bound) for bound in contender.slowdown_interval],
        "registers": None if measurement is None else measurement.registers,
        "spills": None if measurement is None else measurement.spills,
        "shared_bytes": None if measurement is None else measurement.shared_bytes,
        "occupancy": None if resident is None else {**asdict(resident), "share": resident.share},
    }


def _roofline_json(roofline: Roofline) -> dict[str, Any]:
    return {
        "floor_us": _round(roofline.floor_us),
        "share": _round(roofline.share),
        "bound": roofline.bound,
        "missing": roofline.missing or None,
    }


def _round(value: float) -> float:
    return round(value, 4)
