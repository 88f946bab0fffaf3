"""Retunes in the store: findings come back whole, each answer has one, and a killed retune is found again."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from found import finding
from helpers import A100, H200
from sqlalchemy.exc import IntegrityError
from stored import COMPARISON, HERE, PROBLEM, SCALE, SECONDS, answer, answered, change, config, rows, started

from tuner.db.database import Database
from tuner.db.store import Store
from tuner.errors import StoreError, UsageError
from tuner.kernels.spec import Knob
from tuner.records.retune import Action, Cause, Finding
from tuner.records.retune_codec import finding_from_json, finding_to_json, retune_as_json

SETTINGS = {"all": True, "threshold": 0.02, "budget_s": None, "problems": ("a", "b")}
ENVIRONMENT = {"triton": "3.6.0", "host": "node-1"}


def begun(store: Store, *planned: int, device: str = H200.id) -> int:
    return store.retunes.start(device, SETTINGS, planned, ENVIRONMENT)


class TestCodec:
    def test_a_finding_comes_back_whole(self) -> None:
        whole = finding(7)
        assert finding_from_json(json.loads(json.dumps(finding_to_json(whole))), SCALE) == whole

    def test_one_with_nothing_but_an_error_does(self) -> None:
        bare = Finding(PROBLEM, 7, config(), Cause.NOT_MEASURED, Action.KEPT, "not measured", error="CUDA error\n\x00")
        assert finding_from_json(finding_to_json(bare), SCALE) == bare

    def test_configs_may_have_the_knobs_of_another_kernel(self) -> None:
        wider = replace(SCALE, knobs=(*SCALE.knobs, Knob("SPLIT", (1, 2))))
        new = wider.config({**config(), "SPLIT": 2})
        found = finding_from_json(finding_to_json(replace(finding(7), new_config=new)), SCALE)
        assert found.new_config == new

    @pytest.mark.parametrize(
        ("changed", "message"),
        [
            ({"cause": "boredom"}, "a cause is unchanged, slower: kernel or compiler, .*, not 'boredom'"),
            ({"action": 3}, "a finding has a text as action, not '3'"),
            ({"op": "shift"}, "a finding is of the op of its answer, scale, not 'shift'"),
            ({"problem": {"M": 0}}, "M is a whole number from 1"),
            ({"config": {"BLOCK": [1]}}, "'BLOCK' is not a knob whose value is"),
            ({"gain": -1.0}, "a finding has a positive number as gain"),
            ({"now": {}}, "now has contenders, and here it is missing"),
        ],
        ids=str,
    )
    def test_a_field_of_another_kind_is_refused(self, changed: dict[str, Any], message: str) -> None:
        with pytest.raises(UsageError, match=message):
            finding_from_json(finding_to_json(finding(7)) | changed, SCALE)

    def test_the_document_of_a_retune_is_plain(self, store: Store) -> None:
        first, second = answered(store), answered(store)
        number = begun(store, first, second)
        store.retunes.add(number, finding(first))
        retune = store.retunes.get(number)
        assert retune is not None
        document = json.loads(json.dumps(retune_as_json(retune)))
        assert (document["id"], document["planned"], document["left"]) == (number, [first, second], [second])
        assert document["findings"][0]["then"]["measured_with"] == HERE.as_json()


class TestRetune:
    def test_it_comes_back_whole_with_its_findings_in_order(self, store: Store) -> None:
        answers = [answered(store) for _ in range(3)]
        number = begun(store, *answers)
        for each in (answers[2], answers[0]):
            assert store.retunes.add(number, finding(each))
        store.retunes.end(number, "done")
        (retune,) = store.retunes.newest(10)
        assert retune == store.retunes.get(number)
        assert (retune.device, retune.planned, retune.environment) == (H200.id, tuple(answers), ENVIRONMENT)
        assert retune.settings == SETTINGS | {"problems": ["a", "b"]}
        assert retune.findings == (finding(answers[2]), finding(answers[0]))
        assert retune.left == [answers[1]]
        assert retune.ended_at is not None
        assert retune.started_at <= retune.ended_at

    def test_each_answer_has_one_finding(self, store: Store, database: Database) -> None:
        first, number = answered(store), begun(store, 1)
        assert store.retunes.add(number, finding(first))
        assert not store.retunes.add(number, replace(finding(first), text="another"))
        assert store.retunes.add(begun(store, 1), finding(first))
        with pytest.raises(IntegrityError):
            change(database, "UPDATE findings SET retune_id = 1")

    def test_those_of_a_device_are_listed_newest_first(self, store: Store) -> None:
        here, there = [begun(store) for _ in range(3)], begun(store, device=A100.id)
        assert [retune.id for retune in store.retunes.newest(10)] == [there, *reversed(here)]
        assert [retune.id for retune in store.retunes.newest(2, H200.id)] == [here[2], here[1]]
        assert [retune.id for retune in store.retunes.newest(9, H200.id, before=here[1])] == [here[0]]

    @pytest.mark.parametrize("id", [0, 1, 2**31, 2**70])
    def test_there_is_none_of_another_number(self, store: Store, id: int) -> None:
        assert store.retunes.get(id) is None

    def test_the_findings_of_a_problem_are_found(self, store: Store) -> None:
        here, other = answered(store), answered(store, answer(SCALE.problem({"M": 64})))
        of_other = replace(finding(other), problem=SCALE.problem({"M": 64}))
        there = answered(store, provenance=replace(HERE, device=A100))
        first, second = begun(store), begun(store, device=f"{A100.id},{H200.id}")
        for number in (first, second):
            store.retunes.add(number, finding(here))
        store.retunes.add(first, of_other)
        store.retunes.add(second, finding(there))
        found = store.retunes.of_problem(PROBLEM.text, H200.id)
        assert found == [(first, finding(here)), (second, finding(here))]


class TestResuming:
    def test_a_killed_or_interrupted_one_is_found(self, store: Store) -> None:
        number = begun(store, 1)
        found = store.retunes.unfinished(H200.id, SETTINGS)
        assert found is not None
        assert (found.id, found.status) == (number, "running")
        store.retunes.end(number, "interrupted")
        assert store.retunes.unfinished(H200.id, SETTINGS) is not None
        store.retunes.resume(number)
        resumed = store.retunes.unfinished(H200.id, SETTINGS)
        assert resumed is not None
        assert (resumed.status, resumed.ended_at) == ("running", None)

    def test_others_are_not(self, store: Store, database: Database) -> None:
        number = begun(store, 1)
        assert store.retunes.unfinished(A100.id, SETTINGS) is None
        assert store.retunes.unfinished(H200.id, SETTINGS | {"all": False}) is None
        change(database, "UPDATE retunes SET started_at = '2020-01-01T00\\:00\\:00.000+00\\:00'")
        assert store.retunes.unfinished(H200.id, SETTINGS) is None
        for status in ("done", "failed"):
            store.retunes.end(begun(store, 1), status)
        assert store.retunes.unfinished(H200.id, SETTINGS) is None
        assert store.retunes.get(number) is not None

    def test_none_is_once_a_later_one_is_done(self, store: Store) -> None:
        store.retunes.end(begun(store, 1), "interrupted")
        store.retunes.end(begun(store, 1), "done")
        assert store.retunes.unfinished(H200.id, SETTINGS) is None

    def test_one_that_goes_on_on_another_host_is_left_alone(self, store: Store, database: Database) -> None:
        answers = [answered(store) for _ in range(2)]
        number = begun(store, *answers)
        assert store.retunes.unfinished(H200.id, SETTINGS, "node-1") is not None
        assert store.retunes.unfinished(H200.id, SETTINGS, "node-2") is None
        minutes_ago = (datetime.now(UTC) - timedelta(minutes=20)).isoformat(timespec="milliseconds")
        change(database, f"UPDATE retunes SET started_at = '{minutes_ago}'".replace(":", "\\:"))
        assert store.retunes.unfinished(H200.id, SETTINGS, "node-2") is not None
        store.retunes.add(number, finding(answers[0]))
        assert store.retunes.unfinished(H200.id, SETTINGS, "node-2") is None
        store.retunes.end(number, "interrupted")
        assert store.retunes.unfinished(H200.id, SETTINGS, "node-2") is not None


class TestAnswerWithFinding:
    def test_both_are_written(self, store: Store) -> None:
        old, number = answered(store), begun(store, 1)

        def found(new: int) -> Finding:
            return replace(finding(old), new_answer_id=new)

        new = store.add_answer(
            started(store), answer(), HERE, "trials", SECONDS, COMPARISON, retune=number, finding=found
        )
        retune = store.retunes.get(number)
        assert retune is not None
        assert [each.new_answer_id for each in retune.findings] == [new]

    def test_or_neither_if_another_process_went_on(self, store: Store, database: Database) -> None:
        old, number = answered(store), begun(store, 1)
        store.retunes.add(number, finding(old))
        run, before = started(store), rows(database, "SELECT count(*) FROM answers")
        with pytest.raises(StoreError, match=f"retune {number} has that of answer {old}; another process"):
            store.add_answer(
                run,
                answer(),
                HERE,
                "trials",
                SECONDS,
                COMPARISON,
                retune=number,
                finding=lambda new: replace(finding(old), new_answer_id=new),
            )
        assert rows(database, "SELECT count(*) FROM answers") == before
        assert rows(database, f"SELECT status FROM runs WHERE id = {run}") == [("running",)]
