"""The generations of an answer and the retunes, over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import httpx
import pytest
from databases import sqlite_store
from found import finding
from helpers import A100, H200, until
from served import GEMM, answer, problem, serving
from stored import SCALE
from stored import answered as answered_scale

from tuner.api.app import create_app
from tuner.db.store import Store

store = sqlite_store


@pytest.fixture
def client(store: Store) -> Iterator[httpx.Client]:
    with serving(create_app(store, signatures={"gemm": GEMM.signature, "scale": SCALE})) as made:
        yield made


def test_the_history_has_all_generations_of_one_problem(client: httpx.Client, store: Store) -> None:
    first, second = answer(store, problem(M=64)), answer(store, problem(M=64), triton="3.7.1")
    answer(store, problem(M=65))
    third = store.roll_back(first)
    store.pins.add(third, "tested")
    ask = "/history?op=gemm&M=64&device=nvidia-h200"
    until(lambda: client.get(ask).json().get("serves") == third)
    document = client.get(ask).json()
    assert [each["id"] for each in document["generations"]] == [first, second, third]
    assert [each["restored"] for each in document["generations"]] == [None, None, first]
    assert document["generations"][1]["changed"] == ["triton 3.7.1, before 3.6.0"]
    assert (document["pinned"]["answer"], document["pinned"]["note"]) == (third, "tested")


def test_what_has_no_history_is_not_found(client: httpx.Client, store: Store) -> None:
    answer(store, problem(M=64))
    until(lambda: client.get("/best-config?op=gemm&M=64").status_code == 200)
    for path, code, error in (
        ("/history?op=gemm&M=65", 404, "no answer was ever stored for gemm M=65 "),
        ("/history?op=gemm&M=64&device=nvidia-l4", 404, "no device is called 'nvidia-l4'"),
        ("/history?op=conv&M=64", 404, "no op is called 'conv'"),
        ("/history?op=gemm&M=64&triton=3.6.0", 422, "a history is of a problem and a device, whatever the triton"),
        ("/history?op=gemm&M=64&M=65", 422, "M is given more than once"),
        ("/history?op=gemm&M=64&x=1", 422, "gemm is described by"),
        ("/history", 422, "op is missing"),
    ):
        got = client.get(path)
        assert (got.status_code, got.json()["error"].startswith(error)) == (code, True), got.text


def test_retunes_come_in_pages_and_each_in_full(client: httpx.Client, store: Store) -> None:
    number = answered_scale(store)
    for device in (H200, A100, H200):
        store.retunes.start(device.id, {"all": True}, [number], {"triton": "3.6.0"})
    found = replace(finding(number), gain=None)
    store.retunes.add(3, found)
    first = client.get("/retunes?limit=2").json()
    assert ([each["id"] for each in first["items"]], first["next"]) == ([3, 2], 2)
    assert [each["id"] for each in client.get("/retunes?after=2").json()["items"]] == [1]
    assert first["items"][0]["summary"]["causes"] == {"order moved": 1}
    whole = client.get("/retunes/3").json()
    assert (whole["planned"], whole["left"], whole["status"]) == ([number], [], "running")
    assert whole["findings"][0]["then"]["contenders"]["vendor"]["ratio"] == 0.975
    assert client.get("/retunes/9").json() == {"error": "there is no retune 9; /retunes lists them"}
    for path in ("/retunes?limit=101", "/retunes?x=1", "/retunes/0", "/retunes/1?x=1"):
        assert client.get(path).status_code == 422, path
