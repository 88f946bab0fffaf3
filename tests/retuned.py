"""A retune made by hand, with a finding of each cause, for tests of its report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from helpers import H200
from stored import HERE, SCALE, answer, answered, config

from tuner.db.store import Store
from tuner.kernels.spec import Config
from tuner.records import Answer, CardState, Environment, Provenance, StoredAnswer
from tuner.records.retune import Action, Cause, Contender, Finding, Reading, Retune

TODAY = replace(HERE, environment=Environment("3.7.1", "12.9", "2.11.0", "580.95"))
THEN_AT, NOW_AT = "2026-11-01T01:00:00.000+00:00", "2026-11-29T01:00:00.000+00:00"


def reading(
    latency_us: float = 10.0,
    vendor: float | None = 1.1,
    default: float | None = 1.25,
    runner_up: float | None = None,
    provenance: Provenance = HERE,
    at: str = THEN_AT,
    **others: Any,
) -> Reading:
    """Return a reading whose intervals have a width of 0.2 %; `vendor` and the others are ratios."""

    def contender(ratio: float, config: Config | None) -> Contender:
        return Contender(latency_us * ratio, ratio, (ratio * 0.999, ratio * 1.001), config)

    given = {"vendor": (vendor, None), "default": (default, config(64)), "runner-up": (runner_up, config(256))}
    contenders = {role: contender(ratio, of) for role, (ratio, of) in given.items() if ratio is not None}
    return Reading(latency_us, (latency_us * 0.999, latency_us * 1.001), contenders, provenance, 60, at, **others)


def now(*arguments: Any, **others: Any) -> Reading:
    return reading(*arguments, **{"provenance": TODAY, "at": NOW_AT, **others})


def finding(answer: int = 1, cause: Cause = Cause.UNCHANGED, action: Action = Action.KEPT, **others: Any) -> Finding:
    problem = others.pop("problem", SCALE.problem({"M": 128 * answer, "N": 4352}))
    values = {"text": f"text of {cause}", "then": reading(), "now": now(), "seconds": 0.5}
    return Finding(problem, answer, config(), cause, action, **{**values, **others})


def generation(answer: int, latency_us: float, at: str, provenance: Provenance = HERE) -> StoredAnswer:
    """Return a stored answer of a problem."""
    problem = SCALE.problem({"M": 128, "N": 4352})
    found = Answer(
        problem, "tuned", config(), latency_us, (latency_us * 0.99, latency_us * 1.01), 1.2, None, latency_us * 1.2,
        latency_us * 1.1,
    )  # fmt: skip
    return StoredAnswer(answer, found, provenance, at, run_id=answer)


CAUSES = (
    finding(1),
    finding(
        2,
        Cause.SLOWER_CODE,
        text="0.991 x torch (0.990 - 0.992), was 1.100 (1.099 - 1.101)",
        now=now(11.1, 0.991, 1.25, state=CardState(1755, 3201, 61, 512.0, ("power_cap",))),
        then=reading(state=CardState(1980, 3201, 41, 388.0)),
        reasons=("Triton 3.6.0, now 3.7.1", "PyTorch 2.10.0, now 2.11.0"),
    ),
    finding(
        3,
        Cause.ORDER,
        Action.REPLACED,
        now=now(10.1, 1.1, 1.25, 0.95),
        new_answer_id=71,
        new_config=config(256),
        gain=1.052,
        gain_interval=(1.05, 1.054),
        searched=31,
        seconds=22.25,
    ),
    finding(
        4, Cause.BROKEN, Action.RETIRED, now=None, error="wrong_result: 3 of 4 rows\n\x1b[31mdeviate\x1b[0m | <b>`x`"
    ),
    finding(5, Cause.NOT_MEASURED, now=None, text="", error="other processes use the card: 4711"),
    finding(6, Cause.UNCHANGED, Action.CONFIRMED, new_answer_id=72, reasons=("Triton 3.6.0, now 3.7.1",)),
)
"""Findings of several causes and actions."""


def retune(*findings: Finding, status: str = "done", planned: int | None = None, **others: Any) -> Retune:
    """Return a retune of these findings, `CAUSES` by default."""
    shown = findings or CAUSES
    count = len(shown) if planned is None else planned
    ids = [finding.answer_id for finding in shown] + [1000 + place for place in range(count - len(shown))]
    values: dict[str, Any] = {
        "settings": {"threshold": 0.02},
        "environment": {**TODAY.as_json(), "host": "node-7"},
        "started_at": NOW_AT,
        "ended_at": NOW_AT,
    }
    return Retune(12, "nvidia-h200", planned=ids, status=status, findings=shown, **{**values, **others})


def stored_retune(store: Store, night: int = 29, planned: int = 9) -> int:
    """Store a retune of answers with the findings of `CAUSES` by their place, and return its id."""
    ids = [stored.id for stored in store.answers()]
    ids = ids or [answered(store, answer(SCALE.problem({"M": 128 * place, "N": 4352}))) for place in range(1, 10)]
    number = store.retunes.start(H200.id, {"threshold": 0.02}, ids[:planned], {**TODAY.as_json(), "host": "node-7"})
    for found in CAUSES:
        today = None if found.now is None else replace(found.now, at=f"2026-11-{night}T01:00:00.000+00:00")
        new = None if found.new_answer_id is None else ids[-1]
        store.retunes.add(number, replace(found, answer_id=ids[found.answer_id - 1], now=today, new_answer_id=new))
    store.retunes.end(number, "done")
    return number
