"""What comes from elsewhere: which of it is let in, beside what is there, over SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from helpers import A100
from stored import HERE, PROBLEM, SCALE, answer, answered, change, config, documents

from tuner.db import schema
from tuner.db.database import Database
from tuner.db.intake import Arrival, Fate
from tuner.db.store import Store
from tuner.kernels.spec import Attribute, Knob
from tuner.lookup.table import LookupResult, Query, Table
from tuner.records import IMPORTED, Answer, Device, Environment, Provenance

CARD = Device.called("NVIDIA H200")
SAID = Provenance(CARD, Environment(""), "", "unknown")
UNTIMED = Answer(PROBLEM, IMPORTED, config(), None, None, None, None, None, None)
EARLY, LATE = "2026-11-01T00:00:00.000+00:00", "2026-11-20T00:00:00.000+00:00"


def claimed(block: int = 128, origin: str = "E=8.json") -> Arrival:
    return Arrival(SCALE, replace(UNTIMED, config=config(block)), SAID, origin)


def measured(latency_us: float, created_at: str = EARLY, provenance: Provenance = HERE) -> Arrival:
    return Arrival(SCALE, answer(latency_us=latency_us), provenance, "bundle 1", created_at)


def serving(store: Store, asked: Query | None = None) -> LookupResult:
    return Table("nvidia-h200", store.answers(device="nvidia-h200")).find(asked or Query(PROBLEM))


def test_an_answer_without_a_timing_comes_back_without_one(store: Store, database: Database) -> None:
    assert store.take_in([claimed()]) == [Fate.STORED]
    (stored,) = store.answers()
    assert stored.answer == UNTIMED
    assert (stored.provenance, stored.taken_from) == (SAID, "E=8.json")
    (run,) = store.runs(1)
    assert (run.status, run.stopped, run.trials, run.answer_us) == ("done", "imported", 0, None)
    assert documents(database, "answers", "interval_us") == [[]]


def test_a_claim_is_never_exact_and_serves_last(store: Store) -> None:
    store.take_in([claimed(64)])
    found = serving(store)
    assert (found.match, found.stale) == ("stale", ("imported: taken from E=8.json, not measured here",))
    assert found.as_json("a:1")["latency_us"] is None
    assert serving(store, Query(PROBLEM, triton="3.6.0", strict=True)).match == "none"
    answered(store, answer(latency_us=9.0), replace(HERE, recorded="some-space"))
    assert serving(store).recorded == "some-space"
    old = replace(HERE, environment=replace(HERE.environment, triton="3.1.0"))
    answered(store, answer(latency_us=11.0), old)
    store.take_in([claimed(256)])
    best = serving(store, Query(PROBLEM, triton="3.6.0")).stored
    assert best is not None
    assert best.answer.latency_us == 11.0  # stale, and yet measured


def test_what_is_there_already_is_not_stored_again_and_a_newer_claim_takes_the_place_of_an_older(store: Store) -> None:
    assert store.take_in([claimed(64), claimed(64)]) == [Fate.STORED, Fate.THERE]
    assert store.take_in([claimed(128)]) == [Fate.REPLACED]
    assert store.take_in([claimed(128)]) == [Fate.THERE]
    assert store.take_in([claimed(64)]) == [Fate.REPLACED]
    best = serving(store).stored
    assert best is not None
    assert best.answer.config["BLOCK"] == 64


def test_what_was_measured_elsewhere_is_exact_where_its_key_is(store: Store) -> None:
    assert store.take_in([measured(10.0)]) == [Fate.STORED]
    asked = Query(PROBLEM, "3.6.0", HERE.source, HERE.environment.driver, HERE.environment.ptxas, HERE.policy)
    found = serving(store, replace(asked, strict=True))
    assert found.match == "exact"
    document = found.as_json("a:1")
    assert (document["imported"], document["tuned_at"]) == ("bundle 1", EARLY)
    assert serving(store, replace(asked, driver="590.1")).match == "stale"


def test_an_import_never_takes_the_place_of_what_was_measured_here_unasked(store: Store) -> None:
    answered(store, answer(latency_us=12.0))
    assert store.take_in([measured(10.0, "2030-01-01T00:00:00.000+00:00")]) == [Fate.MEASURED]
    best = serving(store).stored
    assert best is not None
    assert best.answer.latency_us == 12.0
    assert store.take_in([measured(10.0)], replace=True) == [Fate.OVERRULED]
    best = serving(store).stored
    assert best is not None
    assert best.answer.latency_us == 10.0
    assert store.take_in([measured(10.0)]) == [Fate.THERE]


def test_of_two_imports_the_one_that_was_found_later_serves(store: Store) -> None:
    assert store.take_in([measured(10.0, EARLY), measured(9.0, LATE)]) == [Fate.STORED, Fate.REPLACED]
    assert store.take_in([measured(10.0, EARLY)]) == [Fate.THERE]
    assert store.take_in([measured(8.0, "2026-11-10T00:00:00.000+00:00")]) == [Fate.OLDER]
    best = serving(store).stored
    assert best is not None
    assert best.answer.latency_us == 9.0


def test_an_answer_of_this_very_store_comes_back_to_nothing_new(store: Store) -> None:
    answered(store)
    (own,) = store.answers()
    assert store.take_in([Arrival(SCALE, own.answer, own.provenance, "bundle", own.created_at)]) == [Fate.THERE]


def test_what_was_taken_out_of_service_stays_out(store: Store, database: Database) -> None:
    store.take_in([measured(10.0), measured(11.0, EARLY, replace(HERE, device=A100))])
    change(database, "UPDATE answers SET kind = 'quarantine', about_id = 1 WHERE id = 2")
    assert store.take_in([measured(10.0)], replace=True) == [Fate.OUT]
    assert store.answers() == []


def test_a_signature_of_old_does_not_become_the_one_to_ask_by(store: Store) -> None:
    wider = replace(SCALE, attributes=(*SCALE.attributes, Attribute("bias", (False, True), False)))
    store.start_run(wider, wider.problem({"M": 1}), HERE, {})
    store.take_in([measured(10.0, "2020-01-01T00:00:00.000+00:00")])
    assert store.signatures() == {"scale": wider}
    newest = replace(SCALE, knobs=(*SCALE.knobs, Knob("num_ctas", (1, 2), default=1)))
    store.take_in([replace(measured(9.0, "2099-01-01T00:00:00.000+00:00"), signature=newest)])
    assert store.signatures() == {"scale": newest}


def test_a_card_is_described_by_who_knows_more_than_its_name(store: Store) -> None:
    assert store.device("nvidia-h200") is None
    store.take_in([claimed()])
    assert store.device("nvidia-h200") is None
    answered(store)
    assert store.device("nvidia-h200") == HERE.device


def test_many_go_in_within_a_few_writes(path: Path) -> None:
    store = Store.open(path)
    many = [replace(claimed(), answer=replace(UNTIMED, problem=SCALE.problem({"M": m}))) for m in range(1, 602)]
    assert set(store.take_in(many)) == {Fate.STORED}
    assert set(store.take_in(many)) == {Fate.THERE}
    assert len(store.answers()) == 601
    assert len(store.rows(schema.KernelRow, 10)) == len(store.rows(schema.DeviceRow, 10)) == 1
    store.close()
