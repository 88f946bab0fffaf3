"""A client of one's own: its source, its interval, and what a clear forgets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from fresh_client import forget
from helpers import H200, until
from served import answer, problem

import tuner
from tuner import Client
from tuner.client import default_client
from tuner.client.sources import BundleSource
from tuner.db.store import Store
from tuner.errors import UsageError
from tuner.lookup import bundle

DEVICE = H200.id


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Return the store that TUNER_DB names, with one answer; the default client is fresh."""
    for name in ("TUNER_SNAPSHOT", "TUNER_URL", "TUNER_DISABLE", "TUNER_REFRESH_S"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    made = Store.open(tmp_path / "tuner.db")
    answer(made, problem(M=64))
    forget()
    yield made
    made.close()
    forget()


def exported(store: Store, file: Path) -> BundleSource:
    bundle.write(file, store.snapshot, [*store.signatures().values()], store.answers())
    return BundleSource(file)


def match(client: Client, M: int) -> str:
    return client.best_config("gemm", device=DEVICE, M=M).match


def test_two_clients_share_nothing(store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    first, second = Client(), Client()
    assert match(first, 128) == "none"
    answer(store, problem(M=128))
    assert (match(first, 128), match(second, 128)) == ("none", "exact")
    match(second, 1)
    match(first, 1)
    assert len([line for line in caplog.messages if line.startswith("gemm M=1 ")]) == 2


def test_the_module_functions_are_the_default_clients(store: Store) -> None:
    best = tuner.best_config("gemm", device=DEVICE, M=64)
    assert default_client().best_config("gemm", device=DEVICE, M=64) is best
    assert default_client().kept == 1


def test_a_given_source_is_read_again_by_a_refresh(store: Store, tmp_path: Path) -> None:
    client = Client(exported(store, tmp_path / "answers.json"))
    assert (match(client, 64), match(client, 128)) == ("exact", "none")
    answer(store, problem(M=128))
    exported(store, tmp_path / "answers.json")
    assert match(client, 128) == "none"
    client.refresh()
    assert match(client, 128) == "exact"
    (tmp_path / "tuner.db").unlink()  # which the environment names
    client.clear()
    assert match(client, 128) == "exact"


def test_all_answers_of_an_op_come_with_their_evidence(store: Store) -> None:
    (stored,) = Client().answers("gemm", device=DEVICE)
    assert (stored.answer.problem, stored.provenance.device) == (problem(M=64), H200)


def test_an_interval_refreshes_until_the_client_is_closed(store: Store) -> None:
    client = Client(refresh_s=0.05)
    assert not client.is_refreshing
    assert match(client, 128) == "none"
    assert client.is_refreshing
    answer(store, problem(M=128))
    until(lambda: match(client, 128) == "exact", seconds=5)
    client.close()
    assert not client.is_refreshing
    until(lambda: all(thread.name != "tuner-refresh" for thread in threading.enumerate()), seconds=5)
    assert match(client, 128) == "exact"


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_an_interval_is_a_positive_number(seconds: float) -> None:
    with pytest.raises(UsageError, match="refresh_s is a number of seconds above 0, not "):
        Client(refresh_s=seconds)


def test_clearing_is_like_a_new_process(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    client = Client()
    assert match(client, 128) == "none"
    answer(store, problem(M=128))
    client.clear()
    assert client.kept == 0
    assert match(client, 128) == "exact"
    match(client, 1)
    client.clear()
    match(client, 1)
    assert len([line for line in caplog.messages if line.startswith("gemm M=1 ")]) == 2
