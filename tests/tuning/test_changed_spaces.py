"""A kernel whose choices changed: what was added is measured, and what was removed is no answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from databases import sqlite_store
from helpers import H200, toy
from scripted import DEFAULT, SPACE, TOY, ScriptedMeasurer, bowl

from tuner import catalog, recorded
from tuner.db.store import Store
from tuner.kernels.spec import Config, Knob, Signature
from tuner.records import COLD, Environment, Provenance
from tuner.search.space import feasible
from tuner.suites.suite import Entry, Suite
from tuner.tuning.effort import Effort
from tuner.tuning.events import Events, StopToken
from tuner.tuning.plan import plan_search
from tuner.tuning.run import stored_answer
from tuner.tuning.several import tune_target
from tuner.tuning.target import Target
from tuner.tuning.tuned import Tuned

HERE = Provenance(H200, Environment("3.6.0", "12.8", "2.11.0", "580.1"), "9f2c", COLD.text, definition="4d2c")
WIDER = replace(
    TOY, knobs=tuple(replace(knob, choices=(*knob.choices, 32)) if knob.name == "A" else knob for knob in TOY.knobs)
)
ADDED = [
    WIDER.config({"A": 32, "B": b, "num_warps": warps, "num_stages": 1}) for b in (1, 2, 3, 4) for warps in (1, 2, 4)
]
EFFORTS = {"exhaustive": Effort.named("exhaustive"), "normal": Effort.named("normal")}


store = sqlite_store


def fastest_when_large(config: Config) -> float:
    return 50.0 if config in ADDED[:1] else bowl(config)


def tuned(
    store: Store, space: Sequence[Config], effort: Effort, signature: Signature = TOY
) -> tuple[Tuned, list[Config]]:
    """Tune the problem in a space; return the outcome and the configs that were measured."""
    measurer = ScriptedMeasurer(fastest_when_large)
    problem = signature.problem({"N": 64})
    target = Target(space, DEFAULT, HERE, COLD, flops=0, bytes=1, measurer=lambda: measurer)
    outcome = tune_target(Entry("toy", signature, problem), target, effort, store, Events(), StopToken())
    return outcome, measurer.submitted


@pytest.mark.parametrize("effort", EFFORTS.values(), ids=EFFORTS.keys())
class TestAdded:
    def test_exactly_the_new_configs_are_measured(self, store: Store, effort: Effort) -> None:
        tuned(store, SPACE, EFFORTS["exhaustive"])
        outcome, submitted = tuned(store, [*SPACE, *ADDED], effort, WIDER)
        assert sorted(config.text for config in submitted) == sorted(config.text for config in ADDED)
        assert outcome.answer is not None
        assert outcome.answer.config == ADDED[0]
        again, submitted = tuned(store, [*SPACE, *ADDED], effort, WIDER)
        assert (submitted, again.answer) == ([], outcome.answer)

    def test_as_many_that_replace_others_are_measured_too(self, store: Store, effort: Effort) -> None:
        tuned(store, SPACE, EFFORTS["exhaustive"])
        _, submitted = tuned(store, [*SPACE[len(ADDED) :], *ADDED], effort, WIDER)
        assert set(submitted) == set(ADDED)

    def test_a_search_that_was_stopped_goes_on_with_the_rest(self, store: Store, effort: Effort) -> None:
        tuned(store, SPACE, EFFORTS["exhaustive"])
        _, first = tuned(store, [*SPACE, *ADDED], Effort.named(trials=4), WIDER)
        _, rest = tuned(store, [*SPACE, *ADDED], effort, WIDER)
        assert len(first) == 4
        assert set(rest) == {*ADDED} - {*first}


def test_a_search_stored_without_its_space_is_compared_by_size(store: Store) -> None:
    outcome, _ = tuned(store, SPACE, EFFORTS["exhaustive"])
    found = outcome.found
    assert found is not None
    assert found.stored is not None
    settings = {name: value for name, value in found.stored.settings.items() if name != "space_hash"}
    older = replace(found, stored=replace(found.stored, settings=settings))
    assert EFFORTS["normal"].accepts(older, SPACE)
    assert EFFORTS["normal"].accepts(older, SPACE[::-1])
    assert not EFFORTS["normal"].accepts(older, [*SPACE, *ADDED])


def test_a_winner_that_no_longer_exists_is_no_answer(store: Store) -> None:
    both, _ = tuned(store, [*SPACE, *ADDED], EFFORTS["exhaustive"], WIDER)
    assert both.answer is not None
    assert both.answer.config == ADDED[0]
    target = Target(SPACE, DEFAULT, HERE, COLD, flops=0, bytes=1, measurer=ScriptedMeasurer)
    assert stored_answer(store, target, Entry("toy", TOY, TOY.problem({"N": 64}))).match == "none"
    outcome, submitted = tuned(store, SPACE, EFFORTS["normal"])
    assert outcome.answer is not None
    assert outcome.answer.config in SPACE
    assert submitted == []  # each of them was measured before


def test_a_smaller_space_of_an_older_answer_serves_again(store: Store) -> None:
    before, _ = tuned(store, SPACE, EFFORTS["exhaustive"])
    tuned(store, [*SPACE, *ADDED], EFFORTS["exhaustive"], WIDER)
    outcome, submitted = tuned(store, SPACE, EFFORTS["exhaustive"])
    assert (outcome.answer, submitted) == (before.answer, [])
    assert outcome.result is None


def test_a_knob_that_was_added_takes_its_default(store: Store) -> None:
    tuned(store, SPACE, EFFORTS["exhaustive"])
    added = replace(TOY, knobs=(*TOY.knobs, Knob("SPLIT", (1, 2), default=1)))
    space = [added.config({**config, "SPLIT": split}) for config in SPACE for split in (1, 2)]
    _, submitted = tuned(store, space, EFFORTS["exhaustive"], added)
    assert {config["SPLIT"] for config in submitted} == {2}
    assert len(submitted) == len(SPACE)


@pytest.mark.parametrize("effort", EFFORTS.values(), ids=EFFORTS.keys())
def test_a_dry_run_counts_what_was_added(store: Store, tmp_path: Path, effort: Effort) -> None:
    def planned(choices: str) -> int:
        file = tmp_path / f"double_{len(choices)}.py"
        source = Path(toy("double")).read_text().replace("(64, 128, 256, 512, 1024, 2048, 4096)", choices)
        file.write_text(source)
        kernel = catalog.resolve(str(file))
        entry = Entry(str(file), kernel.signature, kernel.signature.problem({"N": 4096}))
        plan = plan_search(Suite("double", (entry,)), [entry], effort, store, gpus=[], device_id=H200.id)
        return plan.problems[0].trials

    file, problem = toy("double"), {"N": 4096}
    kernel = catalog.resolve(file)
    card = recorded.devices()[H200.id]
    made = replace(HERE, device=card, source=kernel.source, definition=kernel.definition)
    space = list(feasible(kernel, kernel.signature.problem(problem), card.limits))
    measurer = ScriptedMeasurer(lambda config: float(config["BLOCK"]))
    target = Target(space, space[0], made, COLD, flops=0, bytes=1, measurer=lambda: measurer)
    entry = Entry(file, kernel.signature, kernel.signature.problem(problem))
    tune_target(entry, target, EFFORTS["exhaustive"], store, Events(), StopToken())
    assert planned("(64, 128, 256, 512, 1024, 2048, 4096)") == 0
    assert planned("(64, 128, 256, 512, 1024, 2048, 4096, 8192)") == len(space) // 7
