"""One search of one problem, kept in the store as it goes."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from tuner.cli.interrupt import Interrupt
from tuner.cli.text import SearchProgress, failures_text, say
from tuner.db.store import Store
from tuner.errors import NothingFound, UsageError
from tuner.kernels.spec import Config, Problem, Signature
from tuner.lookup.table import LookupResult, Table
from tuner.records import Answer, Measurement
from tuner.search.loop import ELIMINATION_S, Budget, Finalists, Result, close_to_best, search
from tuner.tuning.target import Target
from tuner.tuning.warm_start import lost_by, near_winners
from tuner.tuning.winners import Winner

TRIALS = 200
"""Configs that are tried of a problem, if nothing else is said."""


def duration(text: str) -> float:
    """Seconds of `30s`, `5m`, `1h` or `30`."""
    given = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?)(s|m|h)?", text)
    seconds = float(given[1]) * {"s": 1, "m": 60, "h": 3600}[given[2] or "s"] if given else 0.0
    if not seconds:
        raise UsageError(f"a duration is a number with s, m or h, such as 30s, not {text[:40]!r}")
    return seconds


def run_search(
    source: Target,
    store: Store,
    signature: Signature,
    problem: Problem,
    *,
    sampler: str,
    seed: int,
    budget: Budget,
    reuse: Callable[[Measurement], bool] = lambda measurement: True,
    finalists: Finalists = close_to_best,
    elimination_s: float | None = ELIMINATION_S,
    warm_start: bool = True,
    stop: Callable[[], bool] | None = None,
) -> Result:
    """One search, written to the store as it goes; its answer too, if there is one.

    Args:
        reuse: which measurements of earlier runs are good enough not to be repeated.
        warm_start: whether winners of near problems are tried first; what each of them lost here is written down.
        stop: asked now and then, where the search is one of several: it then neither listens to Ctrl-C nor shows its
            progress.
    """
    measurer = source.measurer()  # the first, since it may wait for others or refuse
    try:
        space = set(source.space)
        known = [m for m in store.known(signature, problem, source.provenance) if m.config in space and reuse(m)]
        tried_jointly = store.tried_jointly(problem, source.provenance)
        jointly = sum(measurement.config.text in tried_jointly for measurement in known)
        # They were chosen for other problems too, which is no effort for this one.
        limits = replace(budget, trials=budget.trials and budget.trials + jointly)
        won = near_winners(store, source, signature, problem) if warm_start else {}
        settings: Mapping[str, Any] = {
            "sampler": sampler,
            "seed": seed,
            "trials": budget.trials,
            "budget_s": budget.seconds,
            "min_improvement_probability": budget.min_improvement_probability,
            "space": len(source.space),
            "known": len(known),
            **({"known_jointly": jointly} if jointly else {}),
            "default": None if source.default is None else source.default.text,
            "winners": [{"config": config.text, "answer": winner.answer} for config, winner in won.items()],
        }  # what `serves` and `tuner show` go by later
        run = store.start_run(signature, problem, source.provenance, settings)
        total = min(limits.trials or len(source.space), len(source.space))
        with (
            SearchProgress(total, shown=stop is None) as progress,
            Interrupt() if stop is None else nullcontext(stop) as asked,
        ):
            progress.known(len(known))

            def on_trial(measurement: Measurement) -> None:
                store.add_trial(run, measurement)
                progress.trial(measurement)

            def won_meanwhile() -> list[Config]:
                """On this card the problem before may have been in its duel until now."""
                later = near_winners(store, source, signature, problem) if warm_start else {}
                won.update({config: winner for config, winner in later.items() if config not in won})
                return [*later]

            try:
                result = search(
                    source.space,
                    source.default,
                    measurer,
                    sampler=sampler,
                    seed=seed,
                    budget=limits,
                    known=known,
                    winners=[*won],
                    late_winners=won_meanwhile,
                    on_trial=on_trial,
                    finalists=finalists,
                    elimination_s=elimination_s,
                    stop=asked,
                )
            except BaseException:
                store.end_run(run, "failed", "error", {})
                raise
    finally:
        measurer.close()
    _end(store, run, problem, source, result, won)
    return result


def _end(
    store: Store, run: int, problem: Problem, source: Target, result: Result, won: Mapping[Config, Winner]
) -> None:
    """Closes a run, with its answer if it gave one."""
    if result.verdict is None or result.comparison is None:
        status = "interrupted" if result.stopped == "interrupted" else "failed"
        store.end_run(run, status, result.stopped, result.seconds)
    elif "contended" in result.comparison.marks and _undisturbed(stored_answer(store, source, problem)):
        say("Others used the card meanwhile, and there is an answer from when nobody did: it stays.")
        store.end_run(run, "done", "contended", result.seconds, result.comparison)
    else:
        answer = _answer(problem, source, result)
        lost = [*lost_by(won, problem, result)]
        store.add_answer(run, answer, source.provenance, result.stopped, result.seconds, result.comparison, lost)


def _undisturbed(found: LookupResult) -> bool:
    """Whether there is an answer already that is today's and was measured alone."""
    stored = found.stored
    return stored is not None and not found.differences and "contended" not in stored.answer.marks


def stored_answer(store: Store, source: Target, problem: Problem) -> LookupResult:
    """What the store answers for this source."""
    device = source.provenance.device.id
    answers = [
        stored
        for stored in store.answers(op=problem.op, device=device)
        if stored.provenance.recorded == source.provenance.recorded
    ]
    return Table(device, answers).find(source.asks(problem))


def nothing_ran(result: Result) -> NothingFound:
    """Why a search that was not interrupted has no answer."""
    counted = failures_text(result.failures) or "none was tried in time"
    return NothingFound(f"no config ran right: {counted}; nothing is stored")


def serves(found: LookupResult, asked: Budget) -> bool:
    """Whether there is an answer, and the run behind it tried at least as hard as is asked for now.

    How hard others tried for what was imported is not known, so it is searched here.
    """
    if found.stored is None or found.differences or found.stored.taken_from is not None:
        return False
    settings = found.stored.settings
    had = Budget(settings["trials"], settings["budget_s"], settings.get("min_improvement_probability"))
    exhausted = found.stored.trials >= settings["space"]
    enough_trials = had.trials is None or (asked.trials is not None and had.trials >= asked.trials)
    enough_time = had.seconds is None or (asked.seconds is not None and had.seconds >= asked.seconds)
    tried = found.stored.trials - settings.get("known_jointly", 0)
    tried_all_the_same = asked.trials is not None and tried >= asked.trials
    searched_as_long = (
        had.min_improvement_probability is None
        or (
            asked.min_improvement_probability is not None
            and had.min_improvement_probability <= asked.min_improvement_probability
        )
        or tried_all_the_same
    )
    return exhausted or (enough_trials and enough_time and searched_as_long)


def _answer(problem: Problem, source: Target, result: Result) -> Answer:
    verdict = result.verdict
    assert verdict is not None
    assert result.comparison is not None
    return Answer(
        problem=problem,
        kind=verdict.kind,
        config=verdict.config,
        latency_us=verdict.latency_us,
        interval_us=verdict.interval_us,
        speedup=verdict.speedup,
        speedup_interval=verdict.speedup_interval,
        default_latency_us=verdict.default_latency_us,
        vendor_latency_us=verdict.vendor_latency_us,
        ties=verdict.ties,
        unresolved=verdict.unresolved,
        evidence=result.evidence[verdict.config],
        marks=source.marks(verdict.latency_us, result.comparison),
        flops=source.flops,
        bytes=source.bytes,
    )
