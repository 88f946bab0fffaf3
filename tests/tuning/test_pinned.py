"""A pinned problem is not searched, and a search that began before stores nothing over it."""

from __future__ import annotations

from dataclasses import replace

from databases import sqlite_store
from helpers import H200, toy
from scripted import BEST, DEFAULT, SPACE, TOY, ScriptedMeasurer

from tuner import catalog, recorded
from tuner.db.store import Store
from tuner.records import COLD, Answer, Comparison, Environment, Provenance
from tuner.search import Budget
from tuner.suites.suite import Entry, Suite
from tuner.tuning.effort import Effort
from tuner.tuning.events import Events, StopToken
from tuner.tuning.plan import plan_search
from tuner.tuning.run import run_search, stored_answer
from tuner.tuning.several import tune_target
from tuner.tuning.target import Target

PROBLEM = TOY.problem({"N": 64})
ENTRY = Entry("toy", TOY, PROBLEM)
EVERYTHING = Effort(Budget(), sampler="grid", force=True)


class Notes(Events):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


store = sqlite_store


def target(**changes: object) -> Target:
    here = Provenance(H200, Environment("3.6.0", "12.8", "2.11.0", "580.1"), "9f2c", COLD.text)
    return Target(SPACE, DEFAULT, replace(here, **changes), COLD, flops=0, bytes=1, measurer=ScriptedMeasurer)  # type: ignore[arg-type]


def pinned(store: Store) -> int:
    """Store and pin an answer that a search would replace."""
    config = next(config for config in SPACE if config not in (BEST, DEFAULT))
    run = store.start_run(TOY, PROBLEM, target().provenance, {})
    given = Answer(PROBLEM, "tuned", config, 20.0, (19.0, 21.0))
    id = store.add_answer(run, given, target().provenance, "trials", {}, Comparison((config.text,), ((20.0,),)))
    store.pins.add(id, "the merge was tested with it")
    return id


def test_nothing_of_a_pinned_problem_is_measured(store: Store) -> None:
    id, events = pinned(store), Notes()
    for changed in ({}, {"source": "other"}, {"policy": "warm-graph-1"}):
        tuned = tune_target(ENTRY, target(**changed), EVERYTHING, store, events, StopToken())
        assert tuned.found is not None
        assert tuned.found.stored is not None
        assert (tuned.found.stored.id, tuned.result) == (id, None)
    assert len(store.runs(10)) == 1
    assert events.notes[0] == (
        "toy 64 fp32: answer 1 is pinned (the merge was tested with it); nothing is measured. tuner unpin lifts that."
    )


def test_a_search_that_began_before_stores_no_answer(store: Store) -> None:
    id, events = pinned(store), Notes()
    result = run_search(target(), store, ENTRY, EVERYTHING, events=events)
    assert result.verdict is not None
    assert [stored.id for stored in store.answers()] == [id]
    (run, _) = store.runs(2)
    assert (run.status, run.stopped) == ("done", "pinned")
    assert store.comparison(run.id) is not None
    assert "what was found here is not stored" in events.notes[-1]


def test_a_recorded_space_is_searched_beside_a_pinned_answer_of_a_card(store: Store) -> None:
    id = pinned(store)
    replayed = tune_target(ENTRY, target(recorded="toy-64"), EVERYTHING, store, Events(), StopToken())
    assert replayed.answer is not None
    assert replayed.answer.config == BEST
    assert len(store.answers()) == 2
    found = stored_answer(store, target(), ENTRY).stored
    assert found is not None
    assert found.id == id


def test_it_is_searched_again_once_it_is_unpinned(store: Store) -> None:
    pinned(store)
    assert store.pins.remove(PROBLEM, target().provenance.device.id)
    tuned = tune_target(ENTRY, target(), EVERYTHING, store, Events(), StopToken())
    assert tuned.answer is not None
    assert tuned.answer.config == BEST


def test_a_dry_run_measures_nothing_of_it(store: Store) -> None:
    file, card = toy("double"), recorded.devices()[H200.id]
    kernel = catalog.resolve(file)
    entry = Entry(str(file), kernel.signature, kernel.signature.problem({"N": 4096}))
    config = kernel.default_config(entry.problem, card.limits)
    run = store.start_run(kernel.signature, entry.problem, target(device=card).provenance, {})
    given = Answer(entry.problem, "tuned", config, 20.0, (19.0, 21.0))
    rounds = Comparison((config.text,), ((20.0,),))
    id = store.add_answer(run, given, target(device=card).provenance, "trials", {}, rounds)

    def planned() -> int:
        suite = Suite("double", (entry,))
        return plan_search(suite, [entry], EVERYTHING, store, gpus=[], device_id=H200.id).problems[0].trials

    assert planned() > 0
    store.pins.add(id)
    assert planned() == 0
