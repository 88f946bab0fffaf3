"""The lookup service: devices, aliases, tables and results, the same over a database, a bundle and tables in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import A100, H200
from served import GEMM, answer, problem

from tuner.api.view import Watcher
from tuner.client.sources import BundleSource
from tuner.client.tables import TableCache
from tuner.db.store import Store
from tuner.errors import UnknownName, UsageError
from tuner.kernels.spec import Kernel, Knob
from tuner.lookup import bundle
from tuner.lookup.completed import completed
from tuner.lookup.query import Query
from tuner.lookup.readers import BundleReader
from tuner.lookup.service import LookupService, StoredTables, Tables
from tuner.records import IMPORTED, Environment, RooflineLimits

RENAMED = replace(H200, name="H200 SXM5 141GB")
"""The H200 as another host calls it."""
NEWER = Environment("3.7.1", "12.9", "2.11.0", "590.1")


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    """Return a store with answers of two cards, and with another name of one of them."""
    answer(sqlite_store, problem(M=64))
    answer(sqlite_store, problem(M=128))
    answer(sqlite_store, problem(M=64), A100)
    sqlite_store.keep_roofline_limits(RENAMED, RooflineLimits(3000.0, {}, {}))
    return sqlite_store


def of_bundle(store: Store, folder: Path) -> Tables:
    return StoredTables(BundleReader(written(store, folder)))


def of_memory(store: Store, folder: Path) -> Tables:
    watcher = Watcher(store, {}, print)
    watcher.poll()
    return watcher.view


def of_client(store: Store, folder: Path) -> Tables:
    written(store, folder)
    return TableCache(BundleSource(folder / "answers.json"))


def written(store: Store, folder: Path) -> bundle.Bundle:
    return bundle.write(folder / "answers.json", store.snapshot, [*store.signatures().values()], store.answers())


@pytest.mark.parametrize(
    "made",
    [lambda store, folder: StoredTables(store), of_bundle, of_memory, of_client],
    ids=["store", "bundle", "memory", "client"],
)
def test_all_tables_give_the_same_results(store: Store, tmp_path: Path, made: Callable[[Store, Path], Tables]) -> None:
    lookup = LookupService(made(store, tmp_path))
    assert list(lookup.devices) == [A100.id, H200.id]
    found = lookup.find(Query(problem(M=128)), H200.id)
    assert (found.match, found.device, found.alias) == ("exact", H200.id, None)
    assert found.stored is not None
    assert found.stored.answer.config == GEMM.default_config(problem(M=128), H200.limits)
    assert lookup.find(Query(problem(M=128)), A100.id).match == "none"


class TestDevices:
    def test_a_named_device_comes_before_the_callers(self, store: Store) -> None:
        lookup = LookupService(StoredTables(store), card=H200)
        assert (lookup.resolve_device(), lookup.resolve_device(A100.id)) == (H200.id, A100.id)

    def test_without_either_there_must_be_one(self, store: Store) -> None:
        with pytest.raises(UsageError, match=f"device is missing; answers are stored for {A100.id}, {H200.id}"):
            LookupService(StoredTables(store)).resolve_device()

    def test_an_alias_is_resolved_and_named_in_the_result(self, store: Store) -> None:
        found = LookupService(StoredTables(store)).find(Query(problem(M=64)), RENAMED.id)
        assert (found.match, found.device, found.alias) == ("exact", H200.id, RENAMED.id)

    def test_the_callers_card_may_be_the_alias(self, store: Store) -> None:
        other = replace(H200, name="H200 of another host")
        lookup = LookupService(StoredTables(store), card=other)
        assert lookup.own_device == H200.id
        assert lookup.find(Query(problem(M=64))).alias == other.id

    def test_an_unknown_device_is_refused_unless_the_caller_knows_it(self, store: Store) -> None:
        lookup = LookupService(StoredTables(store))
        with pytest.raises(UnknownName, match="no device is called 'nvidia-l4'; there are nvidia-a100"):
            lookup.resolve_device("nvidia-l4")
        assert lookup.resolve_device("nvidia-l4", known={"nvidia-l4"}) == "nvidia-l4"
        assert lookup.find_on("nvidia-l4", Query(problem(M=64))).match == "none"


class TestQuery:
    def test_the_callers_software_is_compared(self, store: Store) -> None:
        lookup = LookupService(StoredTables(store), card=H200, environment=NEWER)
        query = lookup.query(problem(M=64), kernel=lambda: GEMM)
        assert (query.triton, query.driver, query.ptxas) == ("3.7.1", "590.1", "12.9")
        assert (query.source, query.definition) == (GEMM.source, GEMM.definition)
        assert lookup.find(query).match == "stale"

    @pytest.mark.parametrize(("device", "triton"), [(A100.id, None), (None, "3.6.0")])
    def test_it_is_not_compared_if_another_card_or_version_is_named(
        self, store: Store, device: str | None, triton: str | None
    ) -> None:
        def unused() -> Kernel:
            raise AssertionError("loading a kernel takes long")

        lookup = LookupService(StoredTables(store), card=H200, environment=NEWER)
        query = lookup.query(problem(M=64), device=device, triton=triton, kernel=unused)
        assert query == Query(problem(M=64), triton=triton)


def test_a_table_is_read_once(store: Store) -> None:
    tables = StoredTables(store)
    first = tables.table("gemm", H200.id)
    answer(store, problem(M=256))
    assert tables.table("gemm", H200.id) is first
    assert len(StoredTables(store).table("gemm", H200.id)) == len(first) + 1


def test_a_config_has_the_knobs_that_the_kernel_has_got_since(store: Store) -> None:
    wide = replace(GEMM.signature, knobs=(*GEMM.signature.knobs, Knob("WIDE", (False, True), default=False)))
    before = LookupService(StoredTables(store)).find(Query(problem(M=64)), H200.id).stored
    assert before is not None
    for signature, added in ((wide, {"WIDE": False}), (GEMM.signature, {}), (replace(wide, knobs=wide.knobs[1:]), {})):
        lookup = LookupService(StoredTables(store), signature_of={"gemm": signature}.get)
        found = lookup.find(Query(problem(M=64)), H200.id)
        assert found.stored is not None
        assert found.stored.answer.config == {**before.answer.config, **added}
        assert found.stored.answer.config.text == before.answer.config.text
        assert found.as_json("")["config"] == {**before.answer.config, **added}
        assert lookup.completed(before) == found.stored
    imported = replace(before, answer=replace(before.answer, kind=IMPORTED))
    assert completed(imported, wide) is imported
