"""The explanation of a stored answer: its comparison, the outcomes of the other configs, and the card's limits.

Pure functions over stored values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from tuner.kernels.spec import Limits
from tuner.records import (
    VENDOR,
    Answer,
    CardState,
    Comparison,
    Measurement,
    RooflineLimits,
    StoredAnswer,
    StoredRun,
    marks_of,
    median,
)
from tuner.report.explanation import Candidates, CardRange, Contender, Explanation, Failure, Outlook, Roofline
from tuner.report.occupancy import Occupancy, occupancy
from tuner.search.verdict import interval_of_median, ratio


def explain(
    stored: StoredAnswer,
    run: StoredRun,
    comparison: Comparison | None,
    measurements: Sequence[Measurement],
    roofline_limits: RooflineLimits | None,
    importance: Mapping[str, float] | None = None,
    importance_missing: str = "",
    outlook: Outlook | None = None,
) -> Explanation:
    """Return the explanation of a stored answer.

    Args:
        stored: the answer.
        run: the search that found it.
        comparison: the search's interleaved comparison; None if no rounds are stored.
        measurements: all measurements of the search, those of earlier runs included.
        roofline_limits: limits of the answer's card; None if they are not known, or do not hold for the problem.
        importance: shares of the knobs, from `tuner.report.importance`.
        importance_missing: why there is no `importance`.
        outlook: what the kernel's estimate says of the answer.
    """
    ladder = () if comparison is None else _ladder(stored, run, comparison, measurements)
    return Explanation(
        answer=stored.answer,
        run=run,
        rounds=0 if comparison is None else len(comparison.rounds),
        ladder=ladder,
        chosen=_chosen(stored.answer, ladder),
        candidates=_candidates(run, comparison, measurements),
        roofline=None if roofline_limits is None else roofline_of(stored.answer, roofline_limits),
        card=None if comparison is None else _card(comparison.states),
        importance=importance or {},
        importance_missing=importance_missing,
        outlook=outlook,
    )


def failures(measurements: Sequence[Measurement]) -> tuple[Failure, ...]:
    """Return the failures by outcome, most frequent first, each with its first config and the error of that."""
    counted = Counter(m.outcome for m in measurements if not m.ok)
    first = {m.outcome: m for m in reversed(measurements) if not m.ok}
    return tuple(
        Failure(str(outcome), count, first[outcome].stage, first[outcome].error, first[outcome].config)
        for outcome, count in counted.most_common()
    )


def _default_of(run: StoredRun, comparison: Comparison, answer: Answer) -> str | None:
    """Return the contender that is the kernel's default, or None. Older runs store only its latency."""
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
        "default": {_default_of(run, comparison, answer)},
        "tie": {tie.config.text for tie in answer.ties},
        "vendor": {VENDOR},
    }
    ladder = []
    for name in comparison.contenders:
        latencies, measurement = comparison.of(name), measured.get(name)
        speedup, speedup_interval = ratio(comparison, name, answer.config.text)
        ladder.append(
            Contender(
                name=name,
                roles=tuple(role for role, names in is_role.items() if name in names) or ("beaten",),
                latency_us=median(latencies),
                interval_us=interval_of_median(latencies),
                speedup=speedup,
                speedup_interval=speedup_interval,
                measurement=measurement,
                occupancy=None if measurement is None else _occupancy(limits, measurement),
            )
        )
    return tuple(sorted(ladder, key=lambda contender: (contender.latency_us, contender.name)))


def _chosen(answer: Answer, ladder: Sequence[Contender]) -> str:
    """Return in words the rule of `tuner.search.verdict.decide` that chose the answer."""
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


def roofline_of(answer: Answer, roofline_limits: RooflineLimits) -> Roofline | None:
    """Return the lower limit of the latency of an answer, and its share; None if it was never timed.

    Also None if the bytes that its problem moves are not known.
    """
    if answer.latency_us is None or not answer.bytes:
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
