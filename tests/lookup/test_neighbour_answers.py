"""When another problem's answer serves, and what it says about itself."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from helpers import H200
from stored import HERE, SCALE, answer

from tuner.kernels.spec import Attribute, Knob, Problem, Value
from tuner.lookup.neighbours import apart, distance
from tuner.lookup.query import Query
from tuner.lookup.table import LookupResult, Table
from tuner.records import Environment, Provenance, StoredAnswer, Transfer

TILED = replace(SCALE, knobs=(*SCALE.knobs, Knob("BLOCK_M", (64,))))
LADDER = (16, 32, 64, 128, 256, 512, 1024)
"""Twelve pairs of these are within reach of one another."""


def problem(M: int, **others: object) -> Problem:
    return SCALE.problem({"M": M, "N": 4096, **others})


def stored(
    id: int, about: Problem, provenance: Provenance = HERE, *, kind: str = "tuned", speedup: float = 1.25
) -> StoredAnswer:
    interval = (speedup - 0.01, speedup + 0.01)
    given = replace(answer(about), kind=kind, speedup=speedup, speedup_interval=interval)
    return StoredAnswer(id, given, provenance, "2026-07-01T12:00:00.000+00:00", run_id=id)


def lost(slowdown: float, *pairs: tuple[StoredAnswer, StoredAnswer]) -> list[Transfer]:
    """Each first one's config took so many times as long as the second's answer on its problem."""
    return [
        Transfer(number, came.id, went.id, distance(came.answer.problem, went.answer.problem), slowdown)
        for number, (came, went) in enumerate(pairs)
    ]


def tuned(sizes: tuple[int, ...] = LADDER) -> list[StoredAnswer]:
    return [stored(id, problem(size)) for id, size in enumerate(sizes, 1)]


def everywhere(answers: list[StoredAnswer], slowdown: float = 1.01) -> list[Transfer]:
    """Every config was tried on every other problem."""
    return lost(slowdown, *permutations(answers, 2))


def find(answers: list[StoredAnswer], transfers: list[Transfer], query: Query) -> LookupResult:
    return Table(H200.id, answers, transfers).find(query)


def serves(found: LookupResult) -> int | None:
    """M of the problem whose answer serves as a neighbour's."""
    assert found.match == ("none" if found.neighbour is None else "neighbour")
    assert (found.stored is None) == (found.neighbour is None)
    return None if found.neighbour is None else int(found.neighbour.problem["M"])


def query(M: int, **others: object) -> Query:
    return Query(problem(M, **others), "3.6.0", HERE.source, "580.95", "12.9", "cold-events-1")


class TestF03Ladder:
    """Which of several serves, where all of them would do."""

    ANSWERS = tuned()
    TRANSFERS = everywhere(ANSWERS)

    @pytest.mark.parametrize(
        ("M", "nearest"), [(200, 256), (150, 128), (2000, 1024), (2048, 1024), (10, 16), (8, 16), (1023, 1024)]
    )
    def test_the_nearest_in_octaves_serves(self, M: int, nearest: int) -> None:
        for order in (self.ANSWERS, self.ANSWERS[::-1], self.ANSWERS[3:] + self.ANSWERS[:3]):
            assert serves(find(order, self.TRANSFERS, query(M))) == nearest

    @pytest.mark.parametrize("M", [2049, 7, 1, 1_000_000])
    def test_nothing_serves_where_a_dim_is_more_than_twice_off(self, M: int) -> None:
        assert serves(find(self.ANSWERS, self.TRANSFERS, query(M))) is None
        assert serves(find(self.ANSWERS, self.TRANSFERS, query(512, N=8193))) is None

    def test_of_two_that_are_as_near_the_larger_problem_serves(self) -> None:
        others = [one for one in self.ANSWERS if one.answer.problem["M"] != 64] + tuned((2048, 4096, 8192, 16384))[-3:]
        others = [replace(one, id=number) for number, one in enumerate(others, 20)]
        for order in (others, others[::-1]):
            assert serves(find(order, everywhere(others), query(64))) == 128

    def test_a_problem_with_an_answer_of_its_own_needs_no_neighbour(self) -> None:
        found = find(self.ANSWERS, self.TRANSFERS, query(128))
        assert (found.match, found.neighbour) == ("exact", None)
        stale = find(self.ANSWERS, self.TRANSFERS, replace(query(128), triton="3.7.0"))
        assert (stale.match, stale.neighbour) == ("stale", None)


class TestAllElseIsEqual:
    ANSWERS = tuned()
    TRANSFERS = everywhere(ANSWERS)

    @pytest.mark.parametrize(
        "question",
        [
            pytest.param(query(200, dtype="fp16"), id="dtype"),
            pytest.param(query(200, layout="nt"), id="attribute"),
            pytest.param(replace(query(200), source="ffff"), id="source"),
            pytest.param(replace(query(200), definition="ffff"), id="definition"),
            pytest.param(replace(query(200), triton="3.7.0"), id="triton"),
            pytest.param(replace(query(200), driver="590.1"), id="driver"),
            pytest.param(replace(query(200), ptxas="13.0"), id="ptxas"),
            pytest.param(replace(query(200), policy="warm-graph-1"), id="policy"),
            pytest.param(replace(query(200), strict=True), id="strict"),
        ],
    )
    def test_else_nothing_serves(self, question: Query) -> None:
        assert serves(find(self.ANSWERS, self.TRANSFERS, query(200))) == 256
        assert serves(find(self.ANSWERS, self.TRANSFERS, question)) is None

    def test_a_replayed_answer_is_no_neighbour(self) -> None:
        replayed = [replace(one, provenance=replace(HERE, recorded="scale")) for one in self.ANSWERS]
        assert serves(find(replayed, self.TRANSFERS, query(200))) is None

    def test_an_older_answer_of_the_nearest_problem_serves_where_it_is_the_exact_one(self) -> None:
        newer = stored(99, problem(256), replace(HERE, environment=Environment("3.7.0", "12.9", "", "580.95")))
        found = find([*self.ANSWERS, newer], self.TRANSFERS, query(200))
        assert found.stored is not None
        assert found.stored.id == 5

    def test_what_is_not_valid_for_the_problem_does_not_serve(self) -> None:
        table = Table(H200.id, self.ANSWERS, self.TRANSFERS)
        assert serves(table.find(query(200), lambda answer: answer.id == 5)) == 256
        assert serves(table.find(query(200), lambda answer: answer.id != 5)) is None


class TestEvidence:
    def test_without_transfers_nothing_serves(self) -> None:
        assert serves(find(tuned(), [], query(200))) is None

    def test_an_answers_own_record_tells_from_three_problems_on(self) -> None:
        answers = tuned((64, 128, 256, 512, 1024))
        near = [(answers[2], answers[1]), (answers[2], answers[3])]
        third = stored(6, problem(300))
        assert serves(find([*answers, third], lost(1.01, *near), query(200))) is None
        found = find([*answers, third], lost(1.01, *near, (answers[2], third)), query(200))
        assert found.neighbour is not None
        assert found.neighbour.expected_loss == pytest.approx(0.01)
        assert found.neighbour.transfers == 3
        assert found.neighbour.distance == pytest.approx(0.356, abs=0.001)

    def test_else_that_of_all_alike_does_where_there_are_ten(self) -> None:
        answers = tuned((200, 400, 800, 1600, 3200, 6400, 64))
        steps = [pair for pair in permutations(answers[:6], 2) if abs(pair[0].id - pair[1].id) == 1]
        assert len(steps) == 10
        assert serves(find(answers, lost(1.01, *steps), query(80))) == 64
        assert serves(find(answers, lost(1.01, *steps[1:]), query(80))) is None
        bad = lost(1.5, (answers[6], stored(8, problem(100))))
        assert serves(find([*answers, stored(8, problem(100))], [*lost(1.01, *steps), *bad], query(60))) is None

    def test_what_was_lost_nearby_says_nothing_of_what_is_far(self) -> None:
        answers = tuned((1000, 1010, 1020, 1030, 64))
        close = list(permutations(answers[:4], 2))
        assert serves(find(answers, lost(1.0, *close), query(65))) == 64
        assert serves(find(answers, lost(1.0, *close), query(100))) is None

    @pytest.mark.parametrize(
        ("slowdown", "speedup", "good"),
        [
            (1.029, 1.25, True),
            (1.031, 1.25, False),
            (1.02, 1.05, True),
            (1.02, 1.02, False),
            (1.0, 1.04, False),
            (float("inf"), 1.25, False),
        ],
        ids=str,
    )
    def test_it_must_lose_little_and_less_than_tuning_gains(self, slowdown: float, speedup: float, good: bool) -> None:
        answers = [
            replace(one, answer=replace(one.answer, speedup=speedup, speedup_interval=(speedup, speedup)))
            for one in tuned()
        ]
        assert (serves(find(answers, everywhere(answers, slowdown), query(200))) == 256) is good

    def test_what_was_seen_of_as_many_tiles_says_nothing_of_more_of_them(self) -> None:
        answers = [
            replace(one, answer=replace(one.answer, config=TILED.config({**one.answer.config, "BLOCK_M": 64})))
            for one in tuned((40, 48, 56, 64, 80, 96, 112, 128))
        ]
        as_many = [pair for pair in permutations(answers, 2) if (pair[0].id <= 4) == (pair[1].id <= 4)]
        more = [pair for pair in permutations(answers, 2) if pair not in as_many]
        seen = [*lost(1.0, *as_many), *lost(1.6, *more)]
        assert serves(find(answers, seen, query(60))) == 64
        assert serves(find(answers, seen, query(65))) is None  # a second row of tiles for the last row
        assert serves(find(answers, seen, query(100))) == 96
        assert serves(find(answers, seen, query(140))) is None
        assert serves(find(answers, [*lost(1.0, *as_many), *lost(1.02, *more)], query(65))) == 64

    @pytest.mark.parametrize("knob", [0, "auto", True])
    def test_a_knob_of_such_a_name_that_is_no_size_tiles_nothing(self, knob: Value) -> None:
        odd = replace(SCALE, knobs=(*SCALE.knobs, Knob("BLOCK_M", (knob,))))
        answers = [
            replace(one, answer=replace(one.answer, config=odd.config({**one.answer.config, "BLOCK_M": knob})))
            for one in tuned()
        ]
        assert serves(find(answers, everywhere(answers, 1.0), query(200))) == 256

    def test_one_in_a_few_that_was_slower_than_the_default_is_too_many(self) -> None:
        answers = [*tuned(), stored(8, problem(700), speedup=1.0)]
        fine = everywhere(answers[:7], 1.0)
        worse = lost(1.02, (answers[5], answers[7]))
        assert serves(find(answers, fine, query(1000))) == 1024
        assert serves(find(answers, [*fine, *worse], query(1000))) is None

    def test_transfers_between_what_is_not_alike_do_not_count(self) -> None:
        answers = tuned((64, 128, 256, 512, 1024))
        others = [
            stored(11, problem(300), replace(HERE, source="ffff")),
            stored(12, problem(300, dtype="fp16")),
            stored(13, problem(300), replace(HERE, policy="warm-graph-1")),
            stored(14, problem(300, N=64)),
            stored(15, problem(300), replace(HERE, definition="ffff")),
        ]
        assert (
            serves(find([*answers, *others], lost(1.0, *((answers[2], other) for other in others)), query(200))) is None
        )

    def test_where_the_default_was_the_best_nearby_the_default_is_used(self) -> None:
        answers = [replace(one, answer=replace(one.answer, kind="default")) if one.id == 5 else one for one in tuned()]
        assert serves(find(answers, everywhere(answers, 1.0), query(200))) is None
        assert serves(find(answers, everywhere(answers, 1.0), query(140))) == 128

    def test_an_answer_that_was_restored_serves_nearby(self) -> None:
        answers = [replace(one, answer=replace(one.answer, kind="rollback")) if one.id == 5 else one for one in tuned()]
        assert serves(find(answers, everywhere(answers), query(200))) == serves(
            find(tuned(), everywhere(tuned()), query(200))
        )


def test_a_table_that_grows_sees_what_one_that_is_made_at_once_sees() -> None:
    answers = tuned()
    transfers = everywhere(answers)
    table = Table(H200.id, answers[:3], transfers[:9])
    assert serves(table.find(query(200))) is None
    grown = table.extended(answers[3:], transfers[9:])
    assert grown.find(query(200)) == find(answers, transfers, query(200))


def test_the_document_names_the_problem_and_what_it_should_cost_and_no_number_of_the_other_problem() -> None:
    answers = tuned()
    document = find(answers, everywhere(answers), query(200)).as_json("uuid:7")
    assert document["match"] == "neighbour"
    assert document["problem"]["M"] == 200
    assert document["neighbour"] == {
        "problem": {"M": 256, "N": 4096, "dtype": "bf16", "layout": "nn"},
        "distance": 0.3561,
        "expected_loss": 0.01,
        "transfers": 12,
    }
    assert document["config"] == dict(answers[4].answer.config)
    for name in (
        "latency_us",
        "interval_us",
        "speedup",
        "default_latency_us",
        "vendor_latency_us",
        "tflops",
        "gb_per_s",
    ):
        assert document[name] is None
    assert document["checked"] == {"inputs": [], "launches": 0}
    assert document["tuned_with"]["triton"] == "3.6.0"


def test_what_sets_two_problems_apart_is_said_in_words() -> None:
    precise = replace(SCALE, attributes=(Attribute("precision", ("ieee", "tf32"), "ieee", dtypes=("fp32",)),))
    tf32 = precise.problem({"M": 64, "dtype": "fp32", "precision": "tf32"})
    ieee, bf16 = precise.problem({"M": 64, "dtype": "fp32"}), precise.problem({"M": 64})
    dtype = "dtype: tuned fp32, the query has bf16"
    assert apart(tf32, bf16) == (dtype, "precision: tuned tf32, a bf16 problem has none")
    assert apart(bf16, tf32)[1] == "precision: the query has tf32, a bf16 problem has none"
    assert apart(tf32, ieee) == ("precision: tuned tf32, the query has ieee",)
    assert apart(tf32, tf32) == ()
