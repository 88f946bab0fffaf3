"""Answers that were retired by hand: they serve nothing any more, and nothing of them is removed."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from helpers import A100, H200
from stored import COMPARISON, HERE, PROBLEM, SCALE, SECONDS, SETTINGS, answer, answered, change, config, measured, rows

from tuner.db.database import Database
from tuner.db.import_rules import ImportedAnswer, ImportOutcome
from tuner.db.store import Store
from tuner.lookup.query import Query
from tuner.lookup.table import Table

OTHER = SCALE.problem({"M": 64})


def served(store: Store) -> int | None:
    found = Table(H200.id, store.answers(op="scale", device=H200.id)).find(Query(PROBLEM)).stored
    return None if found is None else found.id


def test_it_serves_no_more_and_a_later_one_does(store: Store) -> None:
    first, other = answered(store), answered(store, answer(OTHER))
    assert store.forget([first]) == 1
    assert served(store) is None
    assert [stored.id for stored in store.answers()] == [other]
    assert store.forget([first]) == 0
    later = answered(store)
    assert served(store) == later > other + 1


def test_no_older_generation_comes_back_unless_it_stays(store: Store) -> None:
    first, second, third = (answered(store, answer(latency_us=float(us))) for us in (12, 11, 10))
    store.forget([third])
    assert served(store) == second
    store.forget([first, second])
    assert served(store) is None


def test_nothing_is_removed(store: Store, database: Database) -> None:
    (id,) = [answered(store)]
    (before,) = store.answers()
    store.forget([id])
    (stored,) = store.answers(forgotten=True)
    assert stored.forgotten_at is not None
    assert replace(stored, forgotten_at=None) == before
    assert store.answers_of(stored.run_id) == [stored]
    assert rows(database, "SELECT id, kind, about_id FROM answers ORDER BY id") == [
        (1, "tuned", None),
        (2, "forgotten", 1),
    ]


def test_a_snapshot_of_before_can_be_rebuilt(store: Store) -> None:
    first, second = answered(store), answered(store, answer(OTHER))
    before = store.tip()
    store.forget([first])
    after = store.tip()
    assert before.snapshot != after.snapshot
    assert [stored.id for stored in store.answers_between(0, before.answer)] == [first, second]
    assert [stored.id for stored in store.answers_between(0, after.answer)] == [second]
    assert store.forgotten_between(before.answer, after.answer) == {first}
    assert store.forgotten_between(0, before.answer) == frozenset()


def test_an_import_of_the_same_replaces_it(store: Store) -> None:
    imported = ImportedAnswer(SCALE, answer(), HERE, "bundle 1", "2026-11-01T00:00:00.000+00:00")
    assert store.import_answers([imported]) == [ImportOutcome.STORED]
    assert store.import_answers([imported]) == [ImportOutcome.ALREADY_STORED]
    store.forget([stored.id for stored in store.answers()])
    assert store.import_answers([imported]) == [ImportOutcome.STORED]
    assert served(store) == 3


def test_a_measured_answer_serves_again_if_an_import_in_its_place_is_retired(store: Store) -> None:
    own = answered(store)
    assert store.import_answers([ImportedAnswer(SCALE, answer(latency_us=9.0), HERE, "bundle 1")], replace=True) == [
        ImportOutcome.REPLACED_MEASURED
    ]
    assert served(store) == own + 1
    store.forget([own + 1])
    assert served(store) == own


def test_its_measurements_are_known_and_may_be_pruned(store: Store) -> None:
    run = store.start_run(SCALE, PROBLEM, HERE, SETTINGS)
    store.add_trial(run, measured())
    id = store.add_answer(run, answer(), HERE, "trials", SECONDS, COMPARISON)
    assert store.prune(timedelta(0)).trials == 0
    store.forget([id])
    assert [m.config for m in store.known(SCALE, PROBLEM, HERE)] == [config()]
    assert store.prune(timedelta(0)).trials == 1


def test_an_answer_that_cannot_be_read_is_retired_too(store: Store, database: Database) -> None:
    id = answered(store)
    change(database, "UPDATE answers SET latency_us = -1")
    assert store.answers() == []
    assert store.forget([id]) == 1


def test_answers_of_other_devices_stay(store: Store) -> None:
    here, there = answered(store), answered(store, provenance=replace(HERE, device=A100))
    store.forget([here])
    assert [stored.id for stored in store.answers()] == [there]
    assert store.devices() == [A100.id]


def test_a_database_of_schema_0004_is_retired_from(tmp_path: Path) -> None:
    import gzip

    old = Path(__file__).parents[1] / "old" / "schema-0004.sqlite.gz"
    file = tmp_path / "tuner.db"
    file.write_bytes(gzip.decompress(old.read_bytes()))
    with closing(Store.open(file)) as store:
        assert store.forget([stored.id for stored in store.answers()]) == 3
        assert store.answers() == []


@pytest.mark.parametrize("ids", [[], [0, 99]])
def test_what_is_not_there_is_not_retired(store: Store, ids: list[int]) -> None:
    answered(store)
    assert store.forget(ids) == 0
    assert served(store) == 1
