"""`tuner search OP`: finds the best config of a problem and keeps it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from typing import Any

import click

from tuner.cli import INTERRUPTED
from tuner.cli.interrupt import Interrupt
from tuner.cli.ops import OpCommands, db_option, gpu_option, json_option, policy_option, shared_option
from tuner.cli.show import SearchProgress, failures_text, give, print_partial, say
from tuner.cli.source import Source, choose
from tuner.cli.warm_start import lost_by, near_winners
from tuner.db.database import Database
from tuner.db.store import Store, default_database
from tuner.errors import NothingFound, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.lookup import Found, Table
from tuner.records import Answer, Measurement
from tuner.sampler import DEFAULT, SAMPLERS
from tuner.search import Budget, Finalists, Result, close_to_best, search

TRIALS = 200


def duration(text: str) -> float:
    """Seconds of `30s`, `5m`, `1h` or `30`."""
    given = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]+)?)(s|m|h)?", text)
    seconds = float(given[1]) * {"s": 1, "m": 60, "h": 3600}[given[2] or "s"] if given else 0.0
    if not seconds:
        raise UsageError(f"a duration is a number with s, m or h, such as 30s, not {text[:40]!r}")
    return seconds


trials_option = click.Option(
    ["--trials"],
    type=click.IntRange(1),
    default=TRIALS,
    show_default=True,
    help="Configs to try, those of earlier runs included.",
)
budget_option = click.Option(["--budget"], type=duration, metavar="TIME", help="Time to take, such as 30s or 5m.")


def run_search(
    source: Source,
    store: Store,
    signature: Signature,
    problem: Problem,
    *,
    sampler: str,
    seed: int,
    budget: Budget,
    reuse: Callable[[Measurement], bool] = lambda measurement: True,
    finalists: Finalists = close_to_best,
    race: bool = True,
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
        won = near_winners(store, source, signature, problem) if warm_start else {}
        settings: Mapping[str, Any] = {
            "sampler": sampler,
            "seed": seed,
            "trials": budget.trials,
            "budget_s": budget.seconds,
            "space": len(source.space),
            "known": len(known),
            "default": None if source.default is None else source.default.text,
            "winners": [{"config": config.text, "answer": winner.answer} for config, winner in won.items()],
        }
        run = store.start_run(signature, problem, source.provenance, settings)
        total = min(budget.trials or len(source.space), len(source.space))
        with (
            SearchProgress(total, shown=stop is None) as progress,
            Interrupt() if stop is None else nullcontext(stop) as asked,
        ):
            progress.known(len(known))

            def on_trial(measurement: Measurement) -> None:
                store.add_trial(run, measurement)
                progress.trial(measurement)

            try:
                result = search(
                    source.space,
                    source.default,
                    measurer,
                    sampler=sampler,
                    seed=seed,
                    budget=budget,
                    known=known,
                    winners=[*won],
                    on_trial=on_trial,
                    finalists=finalists,
                    race=race,
                    stop=asked,
                )
            except BaseException:
                store.end_run(run, "failed", "error", {})
                raise
    finally:
        measurer.close()
    if result.verdict is None or result.duel is None:
        status = "interrupted" if result.stopped == "interrupted" else "failed"
        store.end_run(run, status, result.stopped, result.seconds)
    elif "contended" in result.duel.marks and _undisturbed(stored_answer(store, source, problem)):
        say("Others used the card meanwhile, and there is an answer from when nobody did: it stays.")
        store.end_run(run, "done", "contended", result.seconds, result.duel)
    else:
        answer = _answer(problem, source, result)
        lost = [*lost_by(won, problem, result)]
        store.add_answer(run, answer, source.provenance, result.stopped, result.seconds, result.duel, lost)
    return result


def _undisturbed(found: Found) -> bool:
    """Whether there is an answer already that is today's and was measured alone."""
    stored = found.stored
    return stored is not None and not found.differences and "contended" not in stored.answer.marks


def stored_answer(store: Store, source: Source, problem: Problem) -> Found:
    """What the store answers for this source."""
    device = source.provenance.device.id
    answers = [
        stored
        for stored in store.answers(op=problem.op, device=device)
        if stored.provenance.recorded == source.provenance.recorded
    ]
    return Table(device, answers).find(source.asks(problem))


def _search(
    reference: str,
    signature: Signature,
    problem: Problem,
    *,
    trials: int,
    budget: float | None,
    seed: int,
    sampler: str,
    gpu: str,
    replay: str | None,
    policy: str,
    shared: bool,
    force: bool,
    warm_start: bool,
    db: Database | None,
    as_json: bool,
) -> int:
    store = Store.open(db or default_database())
    source = choose(reference, problem, store, gpu=gpu, replay=replay, policy=policy, shared=shared)
    limits = Budget(trials, budget)
    found = stored_answer(store, source, problem)
    if not force and found.stored is not None and serves(found, limits):
        say(f"Answered from the store, run {found.stored.run_id}; --force searches again.")
    else:
        result = run_search(
            source,
            store,
            signature,
            problem,
            sampler=sampler,
            seed=seed,
            budget=limits,
            reuse=lambda measurement: not force,
            warm_start=warm_start,
        )
        if result.verdict is None:
            return _no_answer(result, as_json)
        if result.failures:
            say(f"Failed: {failures_text(result.failures)}.")
        say(_compiled_by(result))
        found = stored_answer(store, source, problem)
    give(found, store.snapshot, as_json)
    return 0


def _compiled_by(result: Result) -> str:
    """Who compiled what ran: all of it should be the pool's, ahead of the GPU."""
    by = Counter(measurement.compiled_by for measurement in result.measurements if measurement.ok)
    return f"Compiled: {by['pool']} by the pool, {by['worker']} in the GPU worker."


def _no_answer(result: Result, as_json: bool) -> int:
    """Interrupted: the best so far, which is kept and not served. Else every config failed."""
    if result.stopped != "interrupted":
        raise nothing_ran(result)
    say(f"Interrupted after {len(result.measurements)} configs; the same command goes on from there.")
    print_partial(result.best, as_json)
    return INTERRUPTED


def nothing_ran(result: Result) -> NothingFound:
    """Why a search that was not interrupted has no answer."""
    counted = failures_text(result.failures) or "none was tried in time"
    return NothingFound(f"no config ran right: {counted}; nothing is stored")


def serves(found: Found, asked: Budget) -> bool:
    """Whether the run behind an answer tried at least as hard as is asked for now."""
    assert found.stored is not None
    settings = found.stored.settings
    had = Budget(settings["trials"], settings["budget_s"])
    exhausted = found.stored.trials >= settings["space"]
    enough_trials = had.trials is None or (asked.trials is not None and had.trials >= asked.trials)
    enough_time = had.seconds is None or (asked.seconds is not None and had.seconds >= asked.seconds)
    return not found.differences and (exhausted or (enough_trials and enough_time))


def _answer(problem: Problem, source: Source, result: Result) -> Answer:
    verdict = result.verdict
    assert verdict is not None
    assert result.duel is not None
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
        marks=source.marks(verdict.latency_us, result.duel),
        flops=source.flops,
        bytes=source.bytes,
    )


command = OpCommands(
    _search,
    [
        trials_option,
        budget_option,
        click.Option(
            ["--seed"], type=click.IntRange(0, 2**32 - 1), default=0, show_default=True, help="Of the sampler."
        ),
        click.Option(["--sampler"], type=click.Choice(SAMPLERS), default=DEFAULT, show_default=True),
        gpu_option,
        click.Option(["--replay"], metavar="NAME", help="Search a recorded space instead of a GPU."),
        policy_option,
        shared_option,
        click.Option(
            ["--warm-start/--no-warm-start"],
            default=True,
            help="Whether winners of near problems are tried first.  [default: they are]",
        ),
        click.Option(["--force"], is_flag=True, help="Measure everything again, whatever is stored."),
        db_option,
        json_option,
    ],
    name="search",
    help="Find the best config of a problem, and keep it.",
)
