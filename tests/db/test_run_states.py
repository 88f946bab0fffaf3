"""States of the searches that run, and their trials without samples, on both databases."""

from __future__ import annotations

from stored import HERE, NASTY, PROBLEM, SCALE, config, measured

from tuner.db.store import Store
from tuner.records import Measurement, Outcome
from tuner.records.progress import COMPARING, MEASURING, RunState


def test_a_state_is_replaced_and_removed(store: Store) -> None:
    first, second = (store.start_run(SCALE, PROBLEM, HERE, {}) for _ in range(2))
    store.progress.write([first, second], "node:1", RunState(MEASURING, 3, 1, config().text))
    store.progress.write([second], "node:1", RunState(COMPARING, rounds=5, contenders=2))
    found = store.progress.of([first, second, 99])
    assert found[first].state == RunState(MEASURING, 3, 1, config().text)
    assert found[second].state == RunState(COMPARING, rounds=5, contenders=2)
    assert all(0 <= live.age_s < 60 for live in found.values())
    store.progress.remove([first])
    assert store.progress.of([first, second]).keys() == {second}


def test_trials_are_read_from_a_time_on(store: Store) -> None:
    run = store.start_run(SCALE, PROBLEM, HERE, {})
    store.add_trial(run, measured(10.0, 64))
    store.add_trial(run, Measurement(config(128), Outcome.COMPILE_ERROR, stage="compile", error=NASTY))
    first, failed = store.progress.trials(run)
    assert (first.config, first.outcome, first.latency_us) == (config(64).text, "ok", 10.0)
    assert (failed.outcome, failed.stage, failed.error, failed.latency_us) == ("compile_error", "compile", NASTY, None)
    assert store.progress.trials(run, failed.ended_at)[-1:] == [failed]
    assert store.progress.trials(run, "9999") == []
