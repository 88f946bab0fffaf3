"""Importing answers: which of them are stored beside the existing ones, over SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stored import HERE, PROBLEM, SCALE, answer, answered, config, documents

from tuner.db import schema
from tuner.db.database import Database
from tuner.db.import_rules import ImportedAnswer, ImportOutcome
from tuner.db.store import Store
from tuner.kernels.spec import Attribute, Knob
from tuner.lookup.query import Query
from tuner.lookup.table import LookupResult, Table
from tuner.records import IMPORTED, Answer, Device, Environment, Provenance

CARD = Device.called("NVIDIA H200")
STATED = Provenance(CARD, Environment(""), "", "unknown")
UNTIMED = Answer(PROBLEM, IMPORTED, config(), None, None, None, None, None, None)
EARLY, LATE = "2026-11-01T00:00:00.000+00:00", "2026-11-20T00:00:00.000+00:00"


def untimed(block: int = 128, origin: str = "E=8.json") -> ImportedAnswer:
    return ImportedAnswer(SCALE, replace(UNTIMED, config=config(block)), STATED, origin)


def measured(latency_us: float, created_at: str = EARLY, provenance: Provenance = HERE) -> ImportedAnswer:
    return ImportedAnswer(SCALE, answer(latency_us=latency_us), provenance, "bundle 1", created_at)


def serving(store: Store, query: Query | None = None) -> LookupResult:
    return Table("nvidia-h200", store.answers(device="nvidia-h200")).find(query or Query(PROBLEM))


def test_an_answer_without_a_timing_comes_back_without_one(store: Store, database: Database) -> None:
    assert store.import_answers([untimed()]) == [ImportOutcome.STORED]
    (stored,) = store.answers()
    assert stored.answer == UNTIMED
    assert (stored.provenance, stored.imported_from) == (STATED, "E=8.json")
    (run,) = store.runs(1)
    assert (run.status, run.stopped, run.trials, run.answer_us) == ("done", "imported", 0, None)
    assert documents(database, "answers", "interval_us") == [[]]


def test_an_untimed_answer_is_never_exact_and_serves_last(store: Store) -> None:
    store.import_answers([untimed(64)])
    found = serving(store)
    assert (found.match, found.stale) == ("stale", ("imported: taken from E=8.json, not measured here",))
    assert found.as_json("a:1")["latency_us"] is None
    assert serving(store, Query(PROBLEM, triton="3.6.0", strict=True)).match == "none"
    answered(store, answer(latency_us=9.0), replace(HERE, recorded="some-space"))
    assert serving(store).recorded == "some-space"
    old = replace(HERE, environment=replace(HERE.environment, triton="3.1.0"))
    answered(store, answer(latency_us=11.0), old)
    store.import_answers([untimed(256)])
    best = serving(store, Query(PROBLEM, triton="3.6.0")).stored
    assert best is not None
    assert best.answer.latency_us == 11.0  # stale, but measured


def test_an_answer_is_stored_once_and_a_newer_imported_one_replaces_it(store: Store) -> None:
    assert store.import_answers([untimed(64), untimed(64)]) == [ImportOutcome.STORED, ImportOutcome.ALREADY_STORED]
    assert store.import_answers([untimed(128)]) == [ImportOutcome.REPLACED_IMPORTED]
    assert store.import_answers([untimed(128)]) == [ImportOutcome.ALREADY_STORED]
    assert store.import_answers([untimed(64)]) == [ImportOutcome.REPLACED_IMPORTED]
    best = serving(store).stored
    assert best is not None
    assert best.answer.config["BLOCK"] == 64


def test_answers_of_two_definitions_stand_beside_each_other(store: Store) -> None:
    other, unknown = replace(HERE, definition="0123456789abcdef"), replace(HERE, definition="")
    answered(store, answer(latency_us=9.0))
    assert store.import_answers([measured(10.0, provenance=other)]) == [ImportOutcome.STORED]
    assert store.import_answers([measured(11.0, provenance=other)]) == [ImportOutcome.REPLACED_IMPORTED]
    assert store.import_answers([measured(13.0, provenance=unknown)]) == [ImportOutcome.KEPT_MEASURED]
    assert store.import_answers([measured(12.0)]) == [ImportOutcome.KEPT_MEASURED]
    definitions = [stored.provenance.definition for stored in store.answers()]
    assert definitions == [HERE.definition, other.definition, other.definition]


def test_an_answer_measured_elsewhere_is_exact_if_its_key_is(store: Store) -> None:
    assert store.import_answers([measured(10.0)]) == [ImportOutcome.STORED]
    query = Query(PROBLEM, "3.6.0", HERE.source, HERE.environment.driver, HERE.environment.ptxas, HERE.policy)
    found = serving(store, replace(query, strict=True))
    assert found.match == "exact"
    document = found.as_json("a:1")
    assert (document["imported"], document["tuned_at"]) == ("bundle 1", EARLY)
    assert serving(store, replace(query, driver="590.1")).match == "stale"


def test_an_answer_measured_here_is_replaced_only_on_request(store: Store) -> None:
    answered(store, answer(latency_us=12.0))
    assert store.import_answers([measured(10.0, "2030-01-01T00:00:00.000+00:00")]) == [ImportOutcome.KEPT_MEASURED]
    best = serving(store).stored
    assert best is not None
    assert best.answer.latency_us == 12.0
    assert store.import_answers([measured(10.0)], replace=True) == [ImportOutcome.REPLACED_MEASURED]
    best = serving(store).stored
    assert best is not None
    assert best.answer.latency_us == 10.0
    assert store.import_answers([measured(10.0)]) == [ImportOutcome.ALREADY_STORED]


def test_of_two_imported_answers_the_one_found_later_serves(store: Store) -> None:
    assert store.import_answers([measured(10.0, EARLY), measured(9.0, LATE)]) == [
        ImportOutcome.STORED,
        ImportOutcome.REPLACED_IMPORTED,
    ]
    assert store.import_answers([measured(10.0, EARLY)]) == [ImportOutcome.ALREADY_STORED]
    assert store.import_answers([measured(8.0, "2026-11-10T00:00:00.000+00:00")]) == [ImportOutcome.KEPT_NEWER]
    best = serving(store).stored
    assert best is not None
    assert best.answer.latency_us == 9.0


def test_an_answer_of_the_same_store_is_already_stored(store: Store) -> None:
    answered(store)
    (own,) = store.answers()
    assert store.import_answers([ImportedAnswer(SCALE, own.answer, own.provenance, "bundle", own.created_at)]) == [
        ImportOutcome.ALREADY_STORED
    ]


def test_the_signature_of_an_older_answer_does_not_become_the_newest(store: Store) -> None:
    wider = replace(SCALE, attributes=(*SCALE.attributes, Attribute("bias", (False, True), False)))
    store.start_run(wider, wider.problem({"M": 1}), HERE, {})
    store.import_answers([measured(10.0, "2020-01-01T00:00:00.000+00:00")])
    assert store.signatures() == {"scale": wider}
    newest = replace(SCALE, knobs=(*SCALE.knobs, Knob("num_ctas", (1, 2), default=1)))
    store.import_answers([replace(measured(9.0, "2099-01-01T00:00:00.000+00:00"), signature=newest)])
    assert store.signatures() == {"scale": newest}


def test_a_card_is_described_once_more_than_its_name_is_known(store: Store) -> None:
    assert store.device("nvidia-h200") is None
    store.import_answers([untimed()])
    assert store.device("nvidia-h200") is None
    answered(store)
    assert store.device("nvidia-h200") == HERE.device


def test_many_answers_are_imported_in_a_few_writes(path: Path) -> None:
    store = Store.open(path)
    many = [replace(untimed(), answer=replace(UNTIMED, problem=SCALE.problem({"M": m}))) for m in range(1, 602)]
    assert set(store.import_answers(many)) == {ImportOutcome.STORED}
    assert set(store.import_answers(many)) == {ImportOutcome.ALREADY_STORED}
    assert len(store.answers()) == 601
    assert len(store.rows(schema.KernelRow, 10)) == len(store.rows(schema.DeviceRow, 10)) == 1
    store.close()
