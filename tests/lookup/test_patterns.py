"""Answers to captured calls of one function whose arguments are sizes in one call and not in another."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from called import LARGE, REFERENCE, SIZED, SMALL, UNSIZED, X, answered, call, described
from helpers import H200
from stored import HERE

from tuner.client.sources import HeldSource
from tuner.client.tables import TableCache
from tuner.db.store import Store
from tuner.errors import UsageError
from tuner.exchange.convert import answers_of_bundle
from tuner.kernels.spec import Kernel, Launch, Operand, Signature
from tuner.lookup import bundle, patterns
from tuner.lookup.bundle import Bundle
from tuner.lookup.neighbours import Neighbour
from tuner.lookup.offered import not_offered_by, not_offered_now
from tuner.lookup.query import Query
from tuner.lookup.service import LookupService, StoredTables
from tuner.lookup.table import LookupResult

OP = "main_kernel"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with closing(Store.open(tmp_path / "tuner.db")) as made:
        for number in (SIZED, UNSIZED, replace(UNSIZED, key={**UNSIZED.key, "n": 65})):
            answered(made, number)
        yield made


@pytest.fixture
def held(store: Store, tmp_path: Path) -> Bundle:
    return bundle.write(tmp_path / "a.json.gz", store.snapshot, [*store.signatures().values()], store.answers())


def configs(answers: Any) -> list[dict[str, Any]]:
    return [dict(stored.answer.config) for stored in answers]


def test_each_answer_is_read_by_the_signature_of_its_run(store: Store) -> None:
    answers = store.answers()
    assert store.unreadable.counts == {}
    assert configs(answers) == [SMALL, LARGE, LARGE]
    assert [stored.answer.problem.text for stored in answers] == [
        "main_kernel n=64 k=3 dtype=fp32 y_dtype=bf16",
        'main_kernel n=64 dtype=fp32 act="a [b] \u00fc" k="None" y_dtype=bf16',
        'main_kernel n=65 dtype=fp32 act="a [b] \u00fc" k="None" y_dtype=bf16',
    ]
    for given, stored in zip((SIZED, UNSIZED), answers, strict=False):
        signature, problem = described(given)
        assert (stored.signature, stored.answer.problem) == (signature, problem)
    assert store.patterns() == {OP: (described(UNSIZED)[0], described(SIZED)[0])}
    assert [run.signature for run in store.runs(2)] == [described(UNSIZED)[0]] * 2


def test_a_lookup_finds_the_answer_of_its_own_call(store: Store) -> None:
    service = LookupService(StoredTables(store), refused=not_offered_now(store.signatures_by_source()))
    for given, config in ((SIZED, SMALL), (UNSIZED, LARGE)):
        found = service.find(Query(described(given)[1], triton="3.6.0", source=HERE.source))
        assert found.stored is not None
        assert (found.match, dict(found.stored.answer.config)) == ("exact", config)
    missed = service.find(Query(described(replace(SIZED, key={"n": 64, "k": 4}))[1]))
    assert (missed.match, missed.nearest) == ("none", ("main_kernel n=64 k=3 dtype=fp32 y_dtype=bf16",))
    assert missed.command == "tuner search --captured main_kernel"


def test_values_are_read_by_the_signature_that_they_fit() -> None:
    sized, unsized = described(SIZED)[0], described(UNSIZED)[0]

    def meant(**values: object) -> Signature:
        return patterns.described((unsized, sized), values, Signature.problem)[0]

    assert meant(n=64, k=3) == sized
    assert meant(n="64", k="3") == sized
    assert meant(n=64, k=None) == unsized
    assert meant(n=64, k="None") == meant(n=64) == meant(n=64, k="0", act="relu") == unsized
    with pytest.raises(UsageError, match="main_kernel is described by n, dtype, k, act, x_dtype, y_dtype, not by 'm'"):
        meant(m=1)
    with pytest.raises(UsageError, match="n is a whole number"):
        meant(n="x", act="relu")


def test_a_bundle_keeps_both(held: Bundle, store: Store) -> None:
    assert held.skipped == ()
    assert held.answers == tuple(store.answers())
    assert [stored.signature for stored in held.answers] == [stored.signature for stored in store.answers()]
    assert held.signatures.keys() == {OP}


def test_a_bundle_is_imported_with_both(held: Bundle, tmp_path: Path) -> None:
    imported, skipped = answers_of_bundle(held, "a.json.gz")
    assert skipped == []
    with closing(Store.open(tmp_path / "other.db")) as other:
        other.import_answers(imported)
        assert configs(other.answers()) == [SMALL, LARGE, LARGE]
        assert [stored.answer.basis for stored in other.answers()] == ["agreement"] * 3
        assert len(other.patterns()[OP]) == 2


def test_a_bundle_of_an_older_version_is_read(held: Bundle) -> None:
    plain = replace(held.answers[0], signature=None)
    data = bundle.packed("a", [described(SIZED)[0]], [plain])
    old = bundle.unpacked(data, "old")
    assert b'"signature"' not in data.partition(b'"answers"')[2]
    assert configs(old.answers) == [SMALL]


def kernel_of(signature: Signature) -> Kernel:
    return Kernel(
        signature=signature,
        operands=lambda problem: {"x": Operand((3,), "fp32", "inout")},
        launch=lambda problem, config, tensors: tuple[Launch, ...](),
        reference=lambda problem, tensors, rows: {},
        default=lambda problem, limits: {knob.name: knob.choices[0] for knob in signature.knobs},
    )


@pytest.mark.parametrize(("given", "config"), [(SIZED, SMALL), (UNSIZED, LARGE)], ids=["sized", "unsized"])
def test_a_kernel_in_the_process_finds_its_own(held: Bundle, given: Any, config: dict[str, Any]) -> None:
    signature, problem = described(given)
    tables = TableCache(HeldSource(held, "held"))
    best, _ = tables.best(kernel_of(signature), H200.id, problem.values)
    assert best.config is not None
    assert dict(best.config) == config
    assert best.answer is not None
    assert best.answer.basis == "agreement"


def test_the_answer_of_another_script_is_refused_unless_the_kernel_offers_it(
    held: Bundle, caplog: pytest.LogCaptureFixture
) -> None:
    """Functions of two scripts have one op, `main_kernel`, and other source hashes."""
    (other, *_) = held.answers
    today = kernel_of(described(call(SIZED.key, {**SMALL, "BLOCK": 16}))[0])
    assert not_offered_by(today, other) == "config: the kernel has no BLOCK=64 now"
    lacking = kernel_of(described(call(SIZED.key, {**SMALL, "TILE": 1}))[0])
    assert not_offered_by(lacking, other) == "config: the kernel has TILE now, and the config does not state it"
    tables = TableCache(HeldSource(held, "held"))
    with caplog.at_level(logging.WARNING, "tuner"):
        best, _ = tables.best(today, H200.id, other.answer.problem.values)
    assert (best.config, best.match) == (None, "none")
    assert "is refused: config: the kernel has no BLOCK=64 now; tuner search --captured main_kernel" in caplog.text
    offered = kernel_of(described(call(SIZED.key, SMALL, {**SMALL, "num_warps": 2}))[0])
    assert not_offered_by(offered, other) == ""


def test_an_optional_tensor_is_another_problem_or_the_same_one_and_is_read_in_either_case(tmp_path: Path) -> None:
    biased = replace(SIZED, arguments={**SIZED.arguments, "bias": X})
    without = replace(SIZED, arguments={**SIZED.arguments, "bias": None})
    scaled = replace(SIZED, arguments={**SIZED.arguments, "bias": 2.0})
    problems = [described(each)[1] for each in (biased, without, scaled)]
    assert [problem.text for problem in problems] == [
        "main_kernel n=64 k=3 dtype=fp32 y_dtype=bf16",
        'main_kernel n=64 k=3 dtype=fp32 bias_dtype="None" y_dtype=bf16',
        "main_kernel n=64 k=3 dtype=fp32 y_dtype=bf16",
    ]
    for order in ((biased, without, scaled), (scaled, without, biased)):
        with closing(Store.open(tmp_path / f"{order[0].arguments['bias']!r:.5}.db")) as store:
            for each in order:
                answered(store, each)
            assert [stored.answer.problem for stored in store.answers()] == [described(each)[1] for each in order]
            assert [run.problem for run in store.runs(3)] == [described(each)[1] for each in reversed(order)]
            assert store.unreadable.counts == {}


class TestBasis:
    def test_a_strict_query_refuses_an_answer_that_only_agrees(self, store: Store) -> None:
        service, problem = LookupService(StoredTables(store)), described(SIZED)[1]
        query = Query(problem, triton="3.6.0", source=HERE.source)
        assert service.find(query).match == "exact"
        strict = service.find(replace(query, strict=True))
        assert (strict.match, strict.stored) == ("none", None)
        assert strict.reason == (
            f"the answer for {problem.text} on nvidia-h200 is refused: basis: agreeing, not verified: its outputs were "
            "compared with those of other configs, not with a reference"
        )

    def test_it_gets_the_one_with_a_reference(self, store: Store) -> None:
        answered(store, SIZED, basis=REFERENCE)
        answered(store, SIZED)
        service, query = LookupService(StoredTables(store)), Query(described(SIZED)[1], triton="3.6.0", strict=True)
        found = service.find(query)
        assert found.stored is not None
        assert (found.match, found.stored.id) == ("exact", 4)
        newest = service.find(replace(query, strict=False)).stored
        assert newest is not None
        assert newest.id == 5

    def test_a_neighbour_keeps_the_label(self, store: Store) -> None:
        (stored, *_) = store.answers()
        neighbour = Neighbour(stored.answer.problem, 0.5, 0.01, 3)
        found = LookupResult(described(UNSIZED)[1], H200.id, "neighbour", stored, neighbour=neighbour)
        document = found.as_json("")
        assert (document["basis"], document["latency_us"]) == ("agreement", None)

    def test_a_kernel_without_a_reference_compares_no_definition(self) -> None:
        query = Query.for_environment(described(SIZED)[1], HERE.environment, HERE.source, definition="")
        assert query.definition is None
