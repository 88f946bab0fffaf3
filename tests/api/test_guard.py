"""The gate: who writes, how much comes in, what is logged, and how it fails."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from helpers import until
from served import TOKEN, answer, problem, serving
from starlette.requests import Request
from starlette.routing import Route

from tuner.api.app import create_app
from tuner.api.attempts import AttemptSettings
from tuner.api.settings import ServiceSettings
from tuner.db.store import Store

JOB = {"op": "gemm", "M": 64, "device": "nvidia-h200"}


@pytest.fixture(scope="module")
def logged() -> list[str]:
    return []


@pytest.fixture
def lines(logged: list[str]) -> list[str]:
    logged.clear()
    return logged


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("guarded")


@pytest.fixture(scope="module")
def client(folder: Path, logged: list[str]) -> Iterator[httpx.Client]:
    store = Store.open(folder / "tuner.db")
    answer(store, problem(M=64))
    many = ServiceSettings(attempts=AttemptSettings(wrong=1000))
    app = create_app(store, token=TOKEN, log=logged.append, settings=many)

    async def fail(request: Request) -> Any:
        raise KeyError("a fault of ours")

    app.router.routes.insert(0, Route("/fail", fail))
    with serving(app) as made:
        yield made
    store.close()


class TestTokens:
    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH"])
    @pytest.mark.parametrize("path", ["/jobs", "/best-config", "/runs/1", "/table", "/anything"])
    def test_writing_needs_the_token(self, client: httpx.Client, method: str, path: str) -> None:
        missing = client.request(method, path, json=JOB)
        assert missing.status_code == 401
        assert missing.headers["www-authenticate"] == "Bearer"
        assert client.request(method, path, json=JOB, auth=("user", TOKEN)).status_code == 401
        for wrong in ("wrong", TOKEN[:-1], f"{TOKEN}x"):
            got = client.request(method, path, json=JOB, headers={"authorization": f"Bearer {wrong}"})
            assert got.status_code == 403
        assert client.get("/jobs").json()["items"] == []  # this class's first test: nobody wrote yet

    def test_without_one_of_its_own_the_service_writes_nothing(self, tmp_path: Path) -> None:
        with serving(create_app(Store.open(tmp_path / "tuner.db"))) as client:
            got = client.post("/jobs", json=JOB, headers={"authorization": "Bearer None"})
            assert got.status_code == 403
            assert "started without TUNER_TOKEN" in got.json()["error"]

    def test_no_token_is_logged(self, client: httpx.Client, lines: list[str], caplog: pytest.LogCaptureFixture) -> None:
        with caplog.at_level(logging.DEBUG):
            written = client.post("/jobs", json=JOB, headers={"authorization": f"bearer {TOKEN}"})
            client.post("/jobs", json=JOB, headers={"authorization": "Bearer guess"})
        assert written.status_code in (200, 201)
        until(lambda: len(lines) == 2)
        assert TOKEN not in caplog.text + "".join(lines)
        assert "guess" not in caplog.text + "".join(lines)


NAMES = [
    "../../x",
    "/etc/passwd",
    "gemm%00",
    "..%5C..%5Cx",
    "x" * 10_000,
    "%F0%9F%92%A9",
    "%FF%FE",
    "%0d%0aset-cookie:x",
]


@pytest.mark.parametrize("name", NAMES, ids=lambda name: str(name)[:20])
def test_a_name_is_looked_up_and_never_a_path(client: httpx.Client, folder: Path, name: str) -> None:
    before = sorted(folder.rglob("*"))
    for query in (f"op={name}&M=1", f"op=gemm&M=1&device={name}", f"op=gemm&M=64&dtype={name}", f"op=gemm&{name}=1"):
        for path in ("/best-config", "/table"):
            got = client.get(f"{path}?{query}")
            assert got.status_code in (404, 422)
            assert len(got.json()["error"]) < 400
    for path in (f"/{name}", f"/runs/{name}", f"/best-config/{name}"):
        assert client.get(path).status_code in (404, 422)
    assert sorted(folder.rglob("*")) == before


def test_a_strange_header_is_no_name_either(client: httpx.Client) -> None:
    for given in (b"../../x", b"a b", b"x" * 65, b"<script>", "é".encode()):
        got = client.get("/healthz", headers={b"x-request-id": given})
        assert len(got.headers["x-request-id"]) == 32


class TestSizes:
    def test_a_body_that_says_it_is_too_large_is_not_read(self, client: httpx.Client) -> None:
        got = client.post("/best-configs", content=b"x" * 1_000_001)
        assert got.status_code == 413
        assert got.json() == {"error": "a body has at most 1,000,000 bytes"}

    def test_nor_is_one_that_does_not_say(self, client: httpx.Client) -> None:
        got = client.post("/best-configs", content=(b"x" * 100_000 for _ in range(11)))
        assert got.status_code == 413

    def test_the_largest_is_read(self, client: httpx.Client) -> None:
        body = json.dumps({"problems": [{"op": "gemm", "M": 64}]}).ljust(1_000_000)
        assert client.post("/best-configs", content=body).status_code == 200


class TestLog:
    def test_a_line_of_json_for_every_request(self, client: httpx.Client, lines: list[str]) -> None:
        got = client.get("/best-config?op=gemm&M=64", headers={"x-request-id": "trace-7"})
        assert got.headers["x-request-id"] == "trace-7"
        until(lambda: any("trace-7" in line for line in lines))
        (line,) = (line for line in lines if "trace-7" in line)  # the one before may be late
        assert line.endswith("}\n")
        assert line.count("\n") == 1
        entry = json.loads(line)
        assert entry.pop("ms") > 0
        assert entry.pop("at").startswith("20")
        assert entry == {
            "request_id": "trace-7",
            "client": "127.0.0.1",
            "method": "GET",
            "path": "/best-config",
            "status": 200,
            "bytes": len(got.content),
        }

    def test_a_request_without_an_id_gets_one(self, client: httpx.Client, lines: list[str]) -> None:
        ids = {client.get("/healthz").headers["x-request-id"] for _ in range(3)}
        until(lambda: len(lines) == 3)  # a line is written once its answer is out
        assert ids == {json.loads(line)["request_id"] for line in lines}
        assert len(ids) == 3

    def test_a_path_cannot_forge_a_line(self, client: httpx.Client, lines: list[str]) -> None:
        client.get('/x%0a{"status":200}')
        until(lambda: bool(lines))
        (line,) = lines
        assert line.count("\n") == 1
        assert json.loads(line)["status"] == 404


def test_a_bug_is_reported_without_its_trace(
    client: httpx.Client, lines: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    got = client.get("/fail", headers={"x-request-id": "trace-8"})
    assert got.status_code == 500
    assert got.json() == {"error": "the service failed; its log says why"}
    assert got.headers["x-request-id"] == "trace-8"
    assert "request trace-8 failed" in caplog.text
    assert "a fault of ours" in caplog.text
    until(lambda: bool(lines))
    assert json.loads(lines[0])["status"] == 500
    assert client.get("/healthz").status_code == 200


def test_what_is_not_there_is_refused_in_a_sentence(client: httpx.Client) -> None:
    assert client.get("/nope").json() == {"error": "nothing is here; /docs lists what there is"}
    wrong = client.request("OPTIONS", "/best-config")
    assert wrong.status_code == 405
    assert set(wrong.headers["allow"].split(", ")) == {"GET", "HEAD"}
