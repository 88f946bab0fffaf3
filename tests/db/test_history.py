"""The generations of an answer, and rollbacks: new answers with an old config, under the key of what they replace."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers import A100, H200
from stored import COMPARISON, HERE, PROBLEM, SCALE, SECONDS, SETTINGS, answer, answered, config, measured, rows

from tuner.db.database import Database
from tuner.db.import_rules import ImportedAnswer
from tuner.db.store import Store
from tuner.errors import UnknownName, UsageError
from tuner.kernels.spec import Knob, Signature
from tuner.lookup.query import Query
from tuner.lookup.table import Table
from tuner.records import IMPORTED, Answer, Provenance, StoredAnswer
from tuner.report.vendor import vendor_speedup

NEWER = replace(HERE, environment=replace(HERE.environment, triton="3.7.1", ptxas="13.0"), source="0123456789abcdef")
HERE_NOW = Query.for_environment(
    PROBLEM, NEWER.environment, NEWER.source, definition=NEWER.definition, policy=NEWER.policy
)
OTHER = SCALE.problem({"M": 64})


def given(block: int) -> Answer:
    return replace(answer(latency_us=float(block)), config=config(block))


def served(store: Store) -> StoredAnswer:
    found = Table(H200.id, store.answers()).find(HERE_NOW)
    assert found.stored is not None
    return found.stored


class TestHistory:
    def test_all_generations_of_one_problem_and_device_are_read_oldest_first(self, store: Store) -> None:
        first, second = answered(store, given(64)), answered(store, given(128), NEWER)
        answered(store, answer(OTHER))
        answered(store, provenance=replace(HERE, device=A100))
        store.forget([first])
        third = store.roll_back(first)
        history = store.history(PROBLEM, H200.id)
        assert [(stored.id, stored.answer.kind) for stored in history] == [
            (first, "tuned"),
            (second, "tuned"),
            (third, "rollback"),
        ]
        assert [stored.forgotten_at is None for stored in history] == [False, True, True]
        assert store.answer(second) == history[1]

    @pytest.mark.parametrize("id", [0, 7, 2**31, -1])
    def test_there_is_none_of_another_number(self, store: Store, id: int) -> None:
        assert store.answer(id) is None
        assert store.history(PROBLEM, H200.id) == []


class TestRollback:
    def test_it_serves_exactly_what_the_newer_one_served(self, store: Store, database: Database) -> None:
        old, new = answered(store, given(64)), answered(store, given(128), NEWER)
        assert served(store).id == new
        restored = store.roll_back(old)
        found = Table(H200.id, store.answers()).find(HERE_NOW)
        assert (found.match, found.stored) == ("exact", store.answer(restored))
        stored = served(store)
        assert (stored.answer.kind, stored.answer.config, stored.answer.latency_us) == ("rollback", config(64), 64.0)
        assert stored.provenance == NEWER
        assert rows(database, f"SELECT about_id FROM answers WHERE id = {restored}") == [(old,)]

    def test_it_keeps_its_measurements_and_names_their_origin(self, store: Store) -> None:
        run = store.start_run(SCALE, PROBLEM, HERE, SETTINGS)
        store.add_trial(run, measured(block=128))
        old = store.add_answer(run, answer(), HERE, "trials", SECONDS, COMPARISON)
        answered(store, given(256), NEWER)
        store.roll_back(old)
        stored = served(store)
        assert (stored.restored, stored.measured_in, stored.measured_with) == (old, run, HERE)
        before = store.answer(old)
        assert before is not None
        assert (before.restored, before.measured_in, before.measured_with) == (None, run, HERE)
        assert vendor_speedup(store, stored) == vendor_speedup(store, before) is not None
        assert (stored.trials, stored.settings["trials"]) == (1, SETTINGS["trials"])
        of_rollback = store.run(stored.run_id)
        assert of_rollback is not None
        assert (of_rollback.status, of_rollback.stopped) == ("done", "rollback")

    def test_one_of_a_rollback_restores_what_was_measured(self, store: Store) -> None:
        old, new = answered(store, given(64)), answered(store, given(128), NEWER)
        first = store.roll_back(old)
        back = store.roll_back(new)
        assert served(store).answer.config == config(128)
        again = store.roll_back(first)
        stored = served(store)
        assert (stored.id, stored.restored, stored.answer.config) == (again, old, config(64))
        assert again > back

    def test_a_later_answer_takes_its_place(self, store: Store) -> None:
        old, _ = answered(store, given(64)), answered(store, given(128), NEWER)
        store.roll_back(old)
        later = answered(store, given(256), NEWER)
        assert served(store).id == later

    def test_the_answer_to_be_replaced_may_be_named(self, store: Store) -> None:
        old, here, _ = answered(store, given(64)), answered(store, given(128), NEWER), answered(store, given(256))
        restored = store.roll_back(old, here)
        assert served(store).id == restored

    def test_a_retired_one_serves_again(self, store: Store) -> None:
        id = answered(store, given(64))
        store.forget([id])
        assert served_config(store) is None
        store.roll_back(id)
        assert served_config(store) == config(64)

    def test_a_knob_that_was_added_since_has_its_default(self, store: Store) -> None:
        old = answered(store, given(64))
        wider = with_knob(Knob("SPLIT", (1, 2), default=1))
        answered_as(store, wider, {"SPLIT": 2})
        store.roll_back(old)
        assert served(store).answer.config == wider.config({**config(64), "SPLIT": 1})

    def test_a_recorded_answer_replaces_none_of_a_card(self, store: Store) -> None:
        replayed = answered(store, given(64), replace(HERE, recorded="space-1"))
        answered(store, given(128), NEWER)
        again = answered(store, given(256), replace(HERE, recorded="space-2"))
        restored = store.roll_back(replayed)
        assert served(store).answer.config == config(128)
        stored, replaced = store.answer(restored), store.answer(again)
        assert stored is not None
        assert replaced is not None
        assert stored.provenance == replaced.provenance


class TestRefusals:
    def test_what_serves_is_not_restored(self, store: Store) -> None:
        id = answered(store)
        with pytest.raises(UsageError, match=f"answer {id} is the one in service"):
            store.roll_back(id)

    def test_an_unknown_one_is_not(self, store: Store) -> None:
        with pytest.raises(UnknownName, match="there is no answer 9; tuner history lists those of a problem"):
            store.roll_back(9)

    def test_an_imported_one_is_not(self, store: Store) -> None:
        imported = Answer(PROBLEM, IMPORTED, config())
        store.import_answers([ImportedAnswer(SCALE, imported, HERE, "E=8.json")])
        answered(store)
        with pytest.raises(UsageError, match=r"answer 1 is imported from E=8.json; tuner forget retires"):
            store.roll_back(1)

    def test_one_of_another_problem_replaces_nothing(self, store: Store) -> None:
        old, other = answered(store), answered(store, answer(OTHER))
        with pytest.raises(UsageError, match=f"and {other} is none for answer {old}; tuner history"):
            store.roll_back(old, other)

    def test_a_config_without_a_knob_of_today_is_not(self, store: Store) -> None:
        old = answered(store)
        answered_as(store, with_knob(Knob("SPLIT", (1, 2))), {"SPLIT": 2})
        with pytest.raises(UsageError, match=f"have changed since answer {old}: .* SPLIT is missing"):
            store.roll_back(old)

    def test_a_pinned_problem_keeps_its_answer(self, store: Store) -> None:
        old, new = answered(store), answered(store)
        store.pins.add(new)
        before = store.tip()
        with pytest.raises(UsageError, match=f"{new} is that of {PROBLEM.text}; run tuner unpin first"):
            store.roll_back(old)
        assert store.tip() == before


def served_config(store: Store) -> object:
    stored = Table(H200.id, store.answers()).find(HERE_NOW).stored
    return None if stored is None else stored.answer.config


def with_knob(knob: Knob) -> Signature:
    return replace(SCALE, knobs=(*SCALE.knobs, knob))


def answered_as(store: Store, signature: Signature, values: dict[str, int], provenance: Provenance = NEWER) -> int:
    run = store.start_run(signature, PROBLEM, provenance, SETTINGS)
    split = replace(answer(), config=signature.config({**config(), **values}))
    return store.add_answer(run, split, provenance, "trials", SECONDS, COMPARISON)
