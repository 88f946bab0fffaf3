"""A winner whose config the kernel no longer has is no answer: in a table, a service and a client."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from databases import sqlite_store
from helpers import H200, until
from served import GEMM, problem, serving
from stored import COMPARISON, HERE, SCALE, SECONDS, SETTINGS, answer, config

from tuner.api.app import create_app
from tuner.client.tables import TableCache
from tuner.db.store import Store
from tuner.kernels.spec import Config, Knob, Problem, Signature
from tuner.lookup.neighbours import distance
from tuner.lookup.offered import not_offered, not_offered_by, not_offered_now
from tuner.lookup.query import Query
from tuner.lookup.table import Table
from tuner.records import IMPORTED, Answer, StoredAnswer, Transfer

PROBLEM = SCALE.problem({"M": 4096})
FEWER = replace(
    SCALE, knobs=tuple(replace(knob, choices=(64, 256)) if knob.name == "BLOCK" else knob for knob in SCALE.knobs)
)


def stored(id: int, block: int = 128, about: Problem = PROBLEM, kind: str = "tuned") -> StoredAnswer:
    given = replace(answer(about), config=config(block), kind=kind, speedup_interval=(1.2, 1.3))
    return StoredAnswer(id, given, HERE, "2026-07-01T12:00:00.000+00:00", run_id=id)


def refused(one: StoredAnswer) -> str:
    return not_offered(FEWER, one)


class TestSignature:
    def test_a_choice_that_was_removed_is_named(self) -> None:
        assert not_offered(SCALE, stored(1)) == not_offered(FEWER, stored(1, 64)) == ""
        assert not_offered(FEWER, stored(1)) == "config: the kernel has no BLOCK=128 now"

    def test_a_knob_that_was_removed_is_named(self) -> None:
        without = replace(SCALE, knobs=tuple(knob for knob in SCALE.knobs if knob.name != "EVICT"))
        assert not_offered(without, stored(1)) == "config: the kernel has no EVICT now"

    def test_a_knob_that_was_added_takes_its_default(self) -> None:
        assert not_offered(replace(SCALE, knobs=(*SCALE.knobs, Knob("SPLIT", (1, 2), default=1))), stored(1)) == ""

    def test_an_imported_answer_states_values_of_its_own(self) -> None:
        assert not_offered(FEWER, stored(1, kind=IMPORTED)) == ""


def test_the_signature_in_use_refuses_what_the_signature_does() -> None:
    added = replace(SCALE, knobs=(*SCALE.knobs, Knob("SPLIT", (1, 2))))
    removed = replace(SCALE, knobs=SCALE.knobs[1:])
    for signature in (SCALE, FEWER, added, removed):
        refusal = not_offered_now({(SCALE.op, HERE.source): signature})
        for one in (stored(1, 64), stored(2, 128), stored(3, 128, kind=IMPORTED)):
            assert refusal(one) == not_offered(signature, one)
    assert not_offered_now({(SCALE.op, "another"): FEWER})(stored(1)) == ""


def test_a_combination_that_no_part_has_is_named() -> None:
    about = problem(M=64)
    given = Answer(about, "tuned", GEMM.default_config(about, H200.limits))
    fine = StoredAnswer(1, given, HERE, "", run_id=1)
    assert not_offered_by(GEMM, fine) == ""
    variants = next(knob.choices for knob in GEMM.signature.knobs if knob.name == "VARIANT")
    others = tuple(variant for variant in variants if variant != given.config["VARIANT"])
    fewer = replace(GEMM, parts=({"VARIANT": others},))
    assert not_offered_by(fewer, fine) == f"config: the kernel does not combine {given.config.text} now"


class TestTable:
    def test_another_answer_to_the_problem_serves(self) -> None:
        table = Table(H200.id, [stored(1, 64), stored(2, 128)])
        assert table.find(Query(PROBLEM)).stored == stored(2, 128)
        found = table.find(Query(PROBLEM), refused=refused)
        assert (found.match, found.stored) == ("exact", stored(1, 64))

    def test_else_none_with_the_reason(self) -> None:
        found = Table(H200.id, [stored(1)]).find(Query(PROBLEM), refused=refused)
        assert (found.match, found.stored) == ("none", None)
        assert found.reason == (
            f"the answer for {PROBLEM.text} on nvidia-h200 is refused: config: the kernel has no BLOCK=128 now"
        )

    def test_it_is_no_neighbour(self) -> None:
        answers = [stored(id, about=SCALE.problem({"M": 4096 + 64 * id, "N": 4096})) for id in range(6)]
        transfers = [
            Transfer(number, one.id, other.id, distance(one.answer.problem, other.answer.problem), 1.0)
            for number, (one, other) in enumerate((a, b) for a in answers for b in answers if a is not b)
        ]
        table, query = Table(H200.id, answers, transfers), Query(SCALE.problem({"M": 4200, "N": 4096}))
        assert table.find(query).match == "neighbour"
        assert table.find(query, lambda one: not refused(one), refused).match == "none"


store = sqlite_store


def searched(store: Store, signature: Signature, won: Config, about: Problem = PROBLEM) -> int:
    run = store.start_run(signature, about, HERE, SETTINGS)
    given = replace(answer(about), config=won)
    return store.add_answer(run, given, HERE, "trials", SECONDS, COMPARISON)


def test_a_service_serves_what_the_signature_in_use_has(store: Store) -> None:
    searched(store, SCALE, config(128))
    other = SCALE.problem({"M": 64})
    with serving(create_app(store)) as client:
        ask = {"op": "scale", "M": "4096"}
        assert client.get("/best-config", params=ask).json()["match"] == "exact"
        searched(store, FEWER, config(64), other)
        gone = until_changed(client, ask, "none")
        assert "is refused: config: the kernel has no BLOCK=128 now" in gone["reason"]
        searched(store, SCALE, config(64), other)  # the choice is back
        assert until_changed(client, ask, "exact")["config"]["BLOCK"] == 128


def until_changed(client: httpx.Client, ask: dict[str, str], match: str) -> Any:
    """Return the reply once its match is this one."""
    until(lambda: client.get("/best-config", params=ask).json()["match"] == match)
    return client.get("/best-config", params=ask).json()


def test_a_client_gives_the_default_and_says_why(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    about = problem(M=64)
    wider = replace(
        GEMM.signature,
        knobs=tuple(
            replace(knob, choices=(*knob.choices, 4096)) if knob.name == "BLOCK_M" else knob
            for knob in GEMM.signature.knobs
        ),
    )
    won = wider.config({**GEMM.default_config(about, H200.limits), "BLOCK_M": 4096})
    run = store.start_run(wider, about, replace(HERE, source=GEMM.source, definition=GEMM.definition), SETTINGS)
    given = Answer(about, "tuned", won, 10.0, (9.9, 10.1))
    store.add_answer(run, given, replace(HERE, source=GEMM.source), "trials", {}, COMPARISON)
    best, final = TableCache().best("gemm", H200.id, {"M": 64})
    assert (best.config, best.match, final) == (None, "none", True)
    assert "is refused: config: the kernel has no BLOCK_M=4096 now; tuner search gemm" in caplog.text
