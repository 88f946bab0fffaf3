"""The view of the store: new answers are added, and a store that cannot be read changes nothing."""

from __future__ import annotations

from pathlib import Path

from databases import sqlite_store
from helpers import A100, H200, until
from served import answer, problem, serving

from tuner.api.app import create_app
from tuner.api.settings import ServiceSettings
from tuner.api.view import View, Watcher
from tuner.db.store import Store
from tuner.errors import StoreError
from tuner.lookup.query import Query

store = sqlite_store


def served_by(view: View, **values: object) -> int | None:
    """Id of the answer that serves."""
    found = view.table("gemm", "nvidia-h200").find(Query(problem(**values)))
    return None if found.stored is None else found.stored.id


def test_only_what_is_new_is_read_and_the_old_view_stays(store: Store) -> None:
    first = answer(store, problem(M=64))
    answer(store, problem(M=64), A100)
    watcher = Watcher(store, {}, print)
    watcher.poll()
    old = watcher.view
    newer, other = answer(store, problem(M=64)), answer(store, problem(M=128))
    watcher.poll()
    assert watcher.view.answers == 4
    assert watcher.view.snapshot == store.snapshot
    assert (served_by(watcher.view, M=64), served_by(watcher.view, M=128)) == (newer, other)
    assert (served_by(old, M=64), served_by(old, M=128)) == (first, None)
    untouched = ("gemm", A100.id)
    assert watcher.view.tables[untouched] is old.tables[untouched]
    same = watcher.view
    watcher.poll()
    assert watcher.view is same


def test_it_grows_to_what_one_that_reads_all_would_see(store: Store) -> None:
    watcher = Watcher(store, {}, print)
    for size in (64, 65, 66, 64, 1000, 65):
        answer(store, problem(M=size))
        watcher.poll()
    whole = Watcher(store, {}, print)
    whole.poll()
    assert watcher.view.answers == whole.view.answers == 6
    for size in (64, 65, 66, 70, 1000, 4096):
        query = Query(problem(M=size))
        assert watcher.view.table("gemm", H200.id).find(query) == whole.view.table("gemm", H200.id).find(query)
    assert served_by(watcher.view, M=64) == 4
    assert watcher.view.devices() == [H200.id]


def test_a_store_that_is_away_leaves_the_last_view_serving(tmp_path: Path) -> None:
    path = tmp_path / "tuner.db"
    store = Store.open(path)
    answer(store, problem(M=64))
    with serving(create_app(store, settings=ServiceSettings(poll_s=0.1, max_age_s=2.0))) as client:
        assert client.get("/readyz").status_code == 200
        store.close()
        for file in tmp_path.iterdir():
            file.write_bytes(b"overwritten" * 100)
        until(lambda: client.get("/readyz").status_code == 503)
        assert "could not be read for" in client.get("/readyz").json()["error"]
        assert client.get("/healthz").status_code == 200
        assert client.get("/best-config?op=gemm&M=64").json()["match"] == "exact"
        runs = client.get("/runs")
        assert runs.status_code == 503
        assert "cannot be read" in runs.json()["error"]
        errors = next(
            line for line in client.get("/metrics").text.splitlines() if line.startswith("tuner_store_errors_")
        )
        assert float(errors.split()[1]) > 1


def test_a_service_whose_store_was_never_read_says_so(tmp_path: Path) -> None:
    path = tmp_path / "tuner.db"
    store = Store.open(path)
    store.close()
    path.rename(tmp_path / "kept.db")
    path.write_bytes(b"overwritten" * 100)
    with serving(create_app(store)) as client:
        assert client.get("/readyz").status_code == 503
        got = client.get("/best-config?op=gemm&M=64")
        assert got.status_code == 503
        assert got.json()["error"] == "the store has not been read yet; /readyz is 200 once it has"
        store.close()
        (tmp_path / "kept.db").replace(path)
        until(lambda: client.get("/readyz").status_code == 200)


def test_another_store_in_its_place_is_read_anew(tmp_path: Path) -> None:
    store, other = Store.open(tmp_path / "one.db"), Store.open(tmp_path / "other.db")
    answer(store, problem(M=64))
    answer(other, problem(M=128))
    watcher = Watcher(store, {}, print)
    watcher.poll()
    watcher._store = other
    watcher.poll()
    assert watcher.view.snapshot == other.snapshot
    assert (served_by(watcher.view, M=64), watcher.view.answers) == (None, 1)
    failed: list[StoreError] = []
    Watcher(store, {}, failed.append).poll()
    assert not failed
