"""Findings of retunes, as tests keep them in a store."""

from __future__ import annotations

from stored import HERE, PROBLEM, config

from tuner.records import CardState
from tuner.records.retune import Action, Cause, Contender, Finding, Reading

THEN = Reading(
    latency_us=10.0,
    interval_us=(9.9, 10.1),
    contenders={
        "vendor": Contender(9.75, 0.975, (0.97, 0.98)),
        "default": Contender(12.5, 1.25, (1.2, 1.3), config(64)),
    },
    provenance=HERE,
    rounds=60,
    at="2026-11-28T01:00:00.000+00:00",
    marks=("contended",),
    state=CardState(1980, 3201, 40, 0.0, ("power_cap",), (4711,)),
)
NOW = Reading(12.0, (11.9, 12.1), {}, HERE, 12, "2026-11-29T01:00:00.000+00:00")


def finding(answer: int) -> Finding:
    """Return a finding about an answer to `PROBLEM`, with every field."""
    return Finding(
        problem=PROBLEM,
        answer_id=answer,
        config=config(),
        cause=Cause.ORDER,
        action=Action.KEPT,
        text="the runner-up is 3 % faster",
        then=THEN,
        now=NOW,
        reasons=("Triton 3.5.0, now 3.6.0",),
        pinned=True,
        error="none",
        new_config=config(256),
        gain=1.03,
        gain_interval=(1.01, 1.05),
        searched=60,
        seconds=1.5,
    )
