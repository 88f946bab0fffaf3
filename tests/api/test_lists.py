"""Pages of the store's rows, missed queries, and jobs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from databases import sqlite_store
from helpers import A100, until
from served import GEMM, TOKEN, answer, problem, serving

from tuner import recorded
from tuner.api.app import create_app
from tuner.api.settings import ServiceSettings
from tuner.db.store import Store

WRITER = {"authorization": f"Bearer {TOKEN}"}


store = sqlite_store


@pytest.fixture
def client(store: Store) -> Iterator[httpx.Client]:
    with serving(
        create_app(store, signatures=recorded.signatures(), token=TOKEN, settings=ServiceSettings(flush_s=0.5))
    ) as made:
        yield made


def pages(client: httpx.Client, path: str, limit: int) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    after: int | None = 0
    while after is not None:
        page = client.get(path, params={"limit": limit, "after": after}).json()
        assert len(page["items"]) <= limit
        found += page["items"]
        after = page["next"]
    return found


def test_lists_come_in_pages_that_miss_nothing(client: httpx.Client, store: Store) -> None:
    for size in (64, 65, 66, 67, 68):
        answer(store, problem(M=size))
    answer(store, problem(M=64), A100)
    assert [run["run"] for run in pages(client, "/runs", 4)] == [6, 5, 4, 3, 2, 1]
    assert [run["run"] for run in pages(client, "/runs", 3)] == [6, 5, 4, 3, 2, 1]
    assert [kept["parameters"]["M"] for kept in pages(client, "/problems", 2)] == [64, 65, 66, 67, 68]
    assert [card["slug"] for card in pages(client, "/devices", 1)] == ["nvidia-h200", "nvidia-a100-sxm4-80gb"]
    (kernel,) = pages(client, "/kernels", 10)
    assert (kernel["source"], kernel["signature"]["op"]) == (GEMM.source, "gemm")


def test_one_run_in_full(client: httpx.Client, store: Store) -> None:
    id = answer(store, problem(M=64))
    run = client.get("/runs/1").json()
    assert run["status"] == "done"
    assert run["settings"]["trials"] == 10
    assert run["tuned_with"]["source"] == GEMM.source
    assert [answered["id"] for answered in run["answers"]] == [id]
    assert client.get("/runs/2").json() == {"error": "there is no run 2; /runs lists them"}


WRONG_PARTS = """
/runs?limit=0 /runs?limit=1001 /runs?after=-1 /runs?after=99999999999 /runs?nope=1 /runs/0 /runs/x /runs/1?x=1
/problems?limit=x /kernels?after=1.5 /devices?id=1 /requests?x /jobs?x=1
"""


def test_what_is_no_part_of_a_list_is_refused(client: httpx.Client) -> None:
    for path in WRONG_PARTS.split():
        got = client.get(path)
        assert got.status_code == 422, path
        assert got.json().keys() == {"error"}


def test_misses_are_counted_the_most_frequent_first(client: httpx.Client, store: Store) -> None:
    answer(store, problem(M=64))
    until(lambda: client.get("/best-config?op=gemm&M=64").status_code == 200)
    for size, times in ((65, 1), (66, 3), (67, 2)):
        for _ in range(times):
            assert client.get(f"/best-config?op=gemm&M={size}").status_code == 404
    client.post("/best-configs", json={"problems": [{"op": "gemm", "M": 67}, {"op": "gemm", "M": 67}]})
    until(lambda: len(client.get("/requests").json()["items"]) == 3)
    listed = pages(client, "/requests", 1)
    assert [(row["problem"], row["count"]) for row in listed] == [
        ("gemm M=67 N=67 K=67 dtype=bf16", 4),
        ("gemm M=66 N=66 K=66 dtype=bf16", 3),
        ("gemm M=65 N=65 K=65 dtype=bf16", 1),
    ]
    metrics = client.get("/metrics").text
    assert 'tuner_lookups_total{match="none",op="gemm"} 8.0' in metrics
    assert 'tuner_request_seconds_count{path="/best-config"}' in metrics


def test_misses_are_written_down_at_the_end(store: Store) -> None:
    answer(store, problem(M=64))
    with serving(create_app(store)) as client:
        client.get("/best-config?op=gemm&M=65")
    (row,) = store.requests(10)
    assert (row["problem"], row["device"], row["count"]) == ("gemm M=65 N=65 K=65 dtype=bf16", "nvidia-h200", 1)


def test_misses_outlive_a_store_that_is_away(tmp_path: Path) -> None:
    path = tmp_path / "tuner.db"
    store = Store.open(path)
    answer(store, problem(M=64))
    with serving(create_app(store, settings=ServiceSettings(flush_s=0.1))) as client:
        client.get("/readyz")
        path.rename(tmp_path / "away.db")
        store.close()
        client.get("/best-config?op=gemm&M=65")
        until(lambda: "tuner_store_errors_total 0.0" not in client.get("/metrics").text)
        assert not path.exists()
        (tmp_path / "away.db").rename(path)
    assert [row["count"] for row in store.requests(10)] == [1]
    store.close()


class TestJobs:
    def test_the_same_problem_is_the_same_job(self, client: httpx.Client, store: Store) -> None:
        answer(store, problem(M=64))
        job = {"op": "gemm", "M": 4096, "device": "nvidia-h200"}
        first = client.post("/jobs", json=job, headers=WRITER)
        assert first.status_code == 201
        assert first.json()["status"] == "pending"
        assert first.json()["problem"] == "gemm M=4096 N=4096 K=4096 dtype=bf16"
        again = client.post("/jobs", json=job | {"N": 4096, "priority": 5}, headers=WRITER)
        assert (again.status_code, again.json()) == (200, first.json() | {"priority": 5})
        other = client.post("/jobs", json=job | {"device": "nvidia-h100-80gb-hbm3", "priority": 5}, headers=WRITER)
        assert (other.status_code, other.json()["priority"]) == (201, 5)  # a card without runs
        assert [job["id"] for job in pages(client, "/jobs", 1)] == [1, 2]

    def test_code_and_files_cannot_be_sent(self, client: httpx.Client) -> None:
        refused: list[tuple[dict[str, object], int, str]] = [
            ({"op": "nope"}, 404, "no op is called 'nope'"),
            ({"op": "../../x"}, 404, "no op is called '../../x'"),
            ({"M": 0}, 422, "M is a whole number"),
            ({"device": "../../x"}, 422, "device is the id of a card"),
            ({"device": 7}, 422, "device is the id of a card"),
            ({"priority": "high"}, 422, "priority is a whole number from -1000 to 1000"),
            ({"priority": True}, 422, "priority is a whole number"),
            ({"source": "import os"}, 422, "a job is a problem, a device and a priority, not 'source'"),
            ({"kernel": "import os"}, 422, "not by 'kernel'"),
            ({"file": "/etc/passwd"}, 422, "not by 'file'"),
        ]
        for more, status, message in refused:
            got = client.post("/jobs", json={"op": "gemm", "M": 64, "device": "nvidia-h200"} | more, headers=WRITER)
            assert got.status_code == status, more
            assert message in got.json()["error"]
        assert client.get("/jobs").json()["items"] == []
