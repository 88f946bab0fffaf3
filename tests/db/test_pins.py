"""Pins in the store: one for each problem and device, until it is removed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers import A100, H200
from stored import HERE, PROBLEM, SCALE, answer, answered, config

from tuner.db.import_rules import ImportedAnswer, ImportOutcome
from tuner.db.store import Store
from tuner.errors import UnknownName, UsageError

OTHER = SCALE.problem({"M": 64})


def test_an_answer_is_pinned_by_problem_and_device(store: Store) -> None:
    here, there = answered(store), answered(store, provenance=replace(HERE, device=A100))
    pin = store.pins.add(here, "tested")
    assert (pin.op, pin.problem, pin.device, pin.answer_id) == ("scale", PROBLEM.text, H200.id, here)
    assert (dict(pin.config), pin.note, pin.because) == (dict(config()), "tested", " (tested)")
    assert store.pins.of_problem(PROBLEM, H200.id) == pin
    assert store.pins.of_problem(PROBLEM, A100.id) is None
    assert store.pins.of_problem(OTHER, H200.id) is None
    elsewhere = store.pins.add(there)
    assert store.pins.of() == [pin, elsewhere]
    assert store.pins.of(A100.id) == [elsewhere]
    assert elsewhere.because == ""


def test_a_later_pin_of_the_problem_takes_its_place(store: Store) -> None:
    first, second = answered(store), answered(store)
    store.pins.add(first, "a")
    pin = store.pins.add(second, "b")
    assert store.pins.of() == [pin]
    assert (pin.answer_id, pin.note) == (second, "b")


def test_it_is_removed_once(store: Store) -> None:
    store.pins.add(answered(store))
    assert not store.pins.remove(OTHER, H200.id)
    assert store.pins.remove(PROBLEM, H200.id)
    assert not store.pins.remove(PROBLEM, H200.id)
    assert store.pins.of() == []


def test_only_an_answer_in_service_is_pinned(store: Store) -> None:
    id = answered(store)
    store.forget([id])
    for none in (id, id + 1, 99):
        with pytest.raises(UnknownName, match=f"an answer in service is pinned, and there is none of id {none}"):
            store.pins.add(none)


def test_it_stays_in_service_when_others_are_forgotten(store: Store) -> None:
    first, second = answered(store), answered(store)
    store.pins.add(second)
    assert store.forget([first, second]) == 1
    assert [stored.id for stored in store.answers()] == [second]
    store.pins.remove(PROBLEM, H200.id)
    assert store.forget([second]) == 1


def test_no_import_takes_its_place(store: Store) -> None:
    id = answered(store)
    store.pins.add(id)
    newer = replace(HERE, environment=replace(HERE.environment, triton="3.7.1"))
    others = [
        ImportedAnswer(SCALE, answer(latency_us=9.0), HERE, "bundle"),
        ImportedAnswer(SCALE, answer(latency_us=9.0), newer, "bundle"),
        ImportedAnswer(SCALE, answer(OTHER), HERE, "bundle"),
        ImportedAnswer(SCALE, answer(), replace(HERE, device=A100), "bundle"),
    ]
    kept, stored = ImportOutcome.KEPT_PINNED, ImportOutcome.STORED
    assert store.import_answers(others, replace=True) == [kept, kept, stored, stored]
    assert next(each.id for each in store.answers(device=H200.id)) == id
    store.pins.remove(PROBLEM, H200.id)
    assert store.import_answers(others[:1], replace=True) == [ImportOutcome.REPLACED_MEASURED]


def test_one_of_a_card_holds_back_none_of_a_recorded_space_nor_the_other_way_round(store: Store) -> None:
    replayed = replace(HERE, recorded="space-1")
    here, there = answered(store), answered(store, provenance=replayed)
    pin = store.pins.add(here)
    assert (store.pins.holding(PROBLEM, HERE), store.pins.holding(PROBLEM, replayed)) == (pin, None)
    pin = store.pins.add(there)
    assert pin.recorded == "space-1"
    assert (store.pins.holding(PROBLEM, HERE), store.pins.holding(PROBLEM, replayed)) == (None, pin)
    assert store.pins.holding(PROBLEM, replace(replayed, recorded="space-2")) == pin
    newer = replace(HERE, environment=replace(HERE.environment, triton="3.7.1"))
    assert store.import_answers([ImportedAnswer(SCALE, answer(), newer, "bundle")]) == [ImportOutcome.STORED]
    with pytest.raises(UsageError, match=f"a pinned answer is not replaced, and answer {there} is that of"):
        store.roll_back(there)
    store.roll_back(here)
    assert store.pins.holding(OTHER, replayed) is None
