"""What a search leaves in the store: answers of a card that was measured alone are not replaced by others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import nan

import pytest
from databases import sqlite_store
from helpers import H200
from scripted import BEST, DEFAULT, SPACE, TOY, ScriptedMeasurer, bowl, only

from tuner.db import schema
from tuner.db.store import Store
from tuner.errors import NoDevice
from tuner.kernels.spec import Config
from tuner.measure.measurer import Measurer
from tuner.records import COLD, CardState, Comparison, Environment, Measurement, Outcome, Provenance
from tuner.search import Budget
from tuner.suites.suite import Entry
from tuner.tuning.effort import Effort
from tuner.tuning.events import Events
from tuner.tuning.run import run_search, stored_answer
from tuner.tuning.target import Target

PROBLEM = TOY.problem({"N": 64})
PROVENANCE = Provenance(H200, Environment("3.6.0", "12.8", "2.11.0", "580.1"), "9f2c", COLD.text)


class Beside(ScriptedMeasurer):
    """Measures on a card that others use in every round."""

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        comparison = super().compare(configs, rounds, seconds, seed)
        assert isinstance(comparison, Comparison)
        return replace(comparison, states=(CardState(foreign=(4711,)),) * len(comparison.rounds))


store = sqlite_store


EVERYTHING = Effort(Budget(), sampler="grid", force=True)


class Notes(Events):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


def entry(size: int = 64) -> Entry:
    return Entry("toy", TOY, TOY.problem({"N": size}))


def target(measurer: type[ScriptedMeasurer] = ScriptedMeasurer) -> Target:
    return Target(SPACE, DEFAULT, PROVENANCE, COLD, flops=0, bytes=1, measurer=measurer)


def searched(store: Store, measurer: type[ScriptedMeasurer], events: Events | None = None) -> tuple[str, ...]:
    """Searches anew; the marks of the answer that serves then."""
    run_search(target(measurer), store, entry(), EVERYTHING, events=events)
    found = stored_answer(store, target(), entry()).stored
    assert found is not None
    assert found.answer.config == BEST
    return found.answer.marks


def test_a_contended_answer_does_not_replace_a_clean_one(store: Store) -> None:
    events = Notes()
    assert searched(store, ScriptedMeasurer) == ()
    assert searched(store, Beside, events) == ()
    assert events.notes == ["Other processes used the card; the stored answer, measured on an idle card, is kept."]
    assert [(run.status, run.stopped) for run in store.runs(2)] == [("done", "contended"), ("done", "exhausted")]
    assert len(store.answers()) == 1


class Untimed(ScriptedMeasurer):
    """Measures on a card whose clock has no latency of the vendor."""

    def __init__(self) -> None:
        super().__init__(vendor_us=nan)


def test_a_vendor_without_a_latency_is_left_out_with_a_note(store: Store) -> None:
    events = Notes()
    searched(store, Untimed, events)
    assert events.notes == ["torch is left out: in some round its latency was not finite and above 0."]
    (stored,) = store.answers()
    assert (stored.answer.config, stored.answer.vendor_latency_us) == (BEST, None)


def test_it_is_kept_where_there_is_no_better_and_a_clean_one_replaces_it(store: Store) -> None:
    assert searched(store, Beside) == ("contended",)
    assert searched(store, Beside) == ("contended",)
    assert len(store.answers()) == 2
    assert searched(store, ScriptedMeasurer) == ()


def anew(store: Store, size: int, measurer: ScriptedMeasurer, *, warm_start: bool = True) -> None:
    """Searches the whole space at that size."""
    there = replace(target(), measurer=lambda: measurer)
    run_search(there, store, entry(size), replace(EVERYTHING, warm_start=warm_start))


def test_winners_of_near_problems_go_first_and_what_they_lost_is_written_down(store: Store) -> None:
    """At N=64 the best is `BEST`; at N=96 it is the one with the next lower `B`."""

    def elsewhere(config: Config) -> float:
        return bowl(TOY.config({**config, "B": min(4, config["B"] + 1)}))

    cold, warm = ScriptedMeasurer(elsewhere), ScriptedMeasurer(elsewhere)
    anew(store, 64, ScriptedMeasurer())
    anew(store, 96, cold, warm_start=False)
    anew(store, 96, warm)
    own = store.answers()[1].answer.config
    assert cold.submitted[:2] == [DEFAULT, SPACE[0]]
    assert warm.submitted[:4] == [DEFAULT, own, BEST, SPACE[0]]
    run, before = store.runs(2)
    assert [winner["answer"] for winner in run.settings["winners"]] == [2, 1]
    assert before.settings["winners"] == []
    lost = {row["from_answer_id"]: row for row in store.rows(schema.TransferRow, 10)}
    assert {row["run_id"] for row in lost.values()} == {run.id}
    assert (lost[2]["distance"], lost[2]["slowdown"]) == (0.0, 1.0)
    assert lost[1]["distance"] == pytest.approx(0.585, abs=0.001)
    assert lost[1]["slowdown"] == pytest.approx(elsewhere(BEST) / 100)


def test_a_winner_that_does_not_run_here_has_lost_everything(store: Store) -> None:
    anew(store, 64, ScriptedMeasurer())
    for size, outcome in ((96, Outcome.WRONG_RESULT), (128, Outcome.TIMEOUT)):
        anew(store, size, ScriptedMeasurer(outcome=only(BEST, outcome)))
    lost = [(row["run_id"], row["from_answer_id"], row["slowdown"]) for row in store.rows(schema.TransferRow, 10)]
    assert (2, 1, float("inf")) in lost
    assert (3, 1) not in [row[:2] for row in lost]  # it may run another time


def test_a_replay_is_not_warmed_by_what_was_measured(store: Store) -> None:
    anew(store, 64, ScriptedMeasurer())
    replayed = replace(target(), provenance=replace(PROVENANCE, recorded="toy-96"))
    run_search(replayed, store, entry(96), Effort(Budget(), sampler="grid"))
    assert store.runs(1)[0].settings["winners"] == []


def test_a_search_that_may_not_begin_is_no_run(store: Store) -> None:
    def refused() -> Measurer:
        raise NoDevice("GPU 0 is in use")

    with pytest.raises(NoDevice, match="in use"):
        run_search(replace(target(), measurer=refused), store, entry(), Effort(Budget(), sampler="grid"))
    assert store.runs(5) == []
