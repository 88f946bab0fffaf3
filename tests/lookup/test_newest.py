"""Answers beside the newest kernels and software of a store, and the expected gain of tuning a missed problem."""

from __future__ import annotations

from dataclasses import replace

import pytest
from helpers import A100, H200
from stored import HERE, SCALE, answer

from tuner.kernels.spec import Problem
from tuner.lookup.expected import expected_gain, value_of_tuning
from tuner.lookup.newest import Newest
from tuner.lookup.query import Query
from tuner.lookup.ranking import is_exact
from tuner.lookup.service import LookupService
from tuner.lookup.table import LookupResult, Table
from tuner.records import Device, Environment, Provenance, StoredAnswer

NEWER = replace(HERE, environment=Environment("3.7.1", "12.9", "2.11.0", "590.1"))
EDITED = replace(HERE, source="edited0000000000")
ON_A100 = replace(HERE, device=A100)


def problem(M: int) -> Problem:
    return SCALE.problem({"M": M, "N": 4096})


def stored(
    id: int, M: int, provenance: Provenance = HERE, kind: str = "tuned", speedup: float | None = 1.25
) -> StoredAnswer:
    given = replace(answer(problem(M)), kind=kind, speedup=speedup)
    return StoredAnswer(id, given, provenance, "2026-07-01T12:00:00.000+00:00", run_id=id)


class TestNewest:
    def test_a_kernel_is_that_of_the_newest_answer_on_any_card(self) -> None:
        newest = Newest.of([stored(2, 64, replace(EDITED, device=A100)), stored(1, 64), stored(3, 64, ON_A100)])
        assert newest.query(problem(1), H200.id).source == HERE.source
        newest = Newest.of([stored(1, 64), stored(2, 64, replace(EDITED, device=A100))])
        assert newest.query(problem(1), H200.id).source == EDITED.source
        assert newest.query(problem(1), H200.id).definition == HERE.definition

    def test_a_card_has_its_newest_triton_whatever_was_stored_last(self) -> None:
        newest = Newest.of([stored(1, 64, NEWER), stored(2, 128), stored(3, 64, ON_A100)])
        query = newest.query(problem(1), H200.id)
        assert (query.triton, query.ptxas, query.driver) == ("3.7.1", "12.9", "590.1")
        assert newest.query(problem(1), A100.id).triton == "3.6.0"

    def test_recorded_and_imported_answers_do_not_count(self) -> None:
        recorded = replace(NEWER, recorded="gemm-h200")
        newest = Newest.of([stored(1, 64, recorded), stored(2, 64, NEWER, kind="imported")])
        query = newest.query(problem(1), H200.id)
        assert (query.source, query.definition, query.triton, query.driver) == (None, None, None, None)

    def test_an_answer_that_is_not_exact_has_a_reason(self) -> None:
        exact, recorded = stored(3, 64, NEWER), stored(4, 64, replace(NEWER, recorded="gemm-h200"))
        old, imported = stored(1, 64), stored(2, 64, NEWER, kind="imported")
        answers = [exact, old, recorded, imported]
        newest = Newest.of(answers)
        reasons = [[each.partition(":")[0] for each in newest.stale(one)] for one in answers]
        assert reasons == [[], ["triton", "driver"], ["recorded"], ["imported"]]
        query = newest.query(problem(1), H200.id)
        assert [not each for each in reasons] == [is_exact(one, query) for one in answers]


class TestServed:
    def test_it_is_what_each_query_finds(self) -> None:
        answers = [stored(1, 64), stored(2, 64, NEWER), stored(3, 128), stored(4, 128, EDITED), stored(5, 256, EDITED)]
        answers += [stored(6, 512, replace(NEWER, recorded="gemm-h200")), stored(7, 1024, NEWER, kind="imported")]
        table = Table(H200.id, answers)
        query = Newest.of(answers[:2]).query(problem(1), H200.id)

        def refused(one: StoredAnswer) -> str:
            return "no such choice" if one.id in (4, 5) else ""

        found = list(table.served(query, refused))
        assert [(one.id, exact) for one, exact in found] == [
            (2, True), (3, False), (6, False), (7, False)
        ]  # fmt: skip
        for one, exact in found:
            result = table.find(replace(query, problem=one.answer.problem), refused=refused)
            assert result.stored is one
            assert result.match == ("exact" if exact else "stale")

    def test_an_answer_of_another_policy_does_not_serve(self) -> None:
        table = Table(H200.id, [stored(1, 64)])
        assert list(table.served(Query(problem(1), policy="warm-graph-1"))) == []


class Tables:
    def __init__(self, *answers: StoredAnswer) -> None:
        self._answers = answers

    def devices(self) -> list[str]:
        return sorted({each.provenance.device.id for each in self._answers})

    def cards(self) -> list[Device]:
        return []

    def table(self, op: str, device: str) -> Table:
        return Table(device, [each for each in self._answers if each.provenance.device.id == device])


def missed(service: LookupService, M: int, device: str = H200.id) -> LookupResult:
    return service.find_on(device, Query(problem(M)))


class TestExpectedGain:
    def test_it_is_that_of_the_nearest_problems(self) -> None:
        service = LookupService(Tables(*[stored(M, M, speedup=2.0) for M in (32, 64, 128)], stored(9, 9000)))
        assert expected_gain(missed(service, 65), service) == pytest.approx(0.5)

    def test_other_cards_count_if_the_card_has_no_answer(self) -> None:
        service = LookupService(Tables(stored(1, 64, ON_A100, speedup=1.25), stored(2, 128, ON_A100, speedup=None)))
        assert expected_gain(missed(service, 65), service) == pytest.approx(0.2)

    def test_without_a_speedup_it_is_not_known(self) -> None:
        service = LookupService(Tables(stored(1, 64, speedup=None)))
        assert expected_gain(missed(service, 65), service) is None

    def test_the_value_grows_with_misses_and_gain(self) -> None:
        assert value_of_tuning(10, 0.3) > value_of_tuning(10, 0.2) > value_of_tuning(9, 0.2)
        assert value_of_tuning(10, None) == 1.0
        assert value_of_tuning(10, 0.0) > 0
