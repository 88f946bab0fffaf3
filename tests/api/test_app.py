"""The service, through a real server on a real socket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any

import httpx
import pytest
import uvicorn
from fastapi import FastAPI
from helpers import A100, H200

import tuner
from tuner import catalog
from tuner.api.app import create_app
from tuner.db.store import Store
from tuner.kernels.spec import Problem
from tuner.measure import recorded
from tuner.records import Answer, Device, Duel, Environment, Policy, Provenance

GEMM = catalog.load("gemm")
HUGE = "9" * 5000


def problem(**values: object) -> Problem:
    return GEMM.signature.problem(values)


def answer(
    store: Store, about: Problem, device: Device = H200, triton: str = "3.6.0", recorded: str | None = None
) -> int:
    config = GEMM.default_config(about, device.limits)
    provenance = Provenance(
        device, Environment(triton, "12.8", "2.11.0", "580.1"), GEMM.source, Policy().text, recorded, tuner.__version__
    )
    settings = {"trials": 10, "budget_s": None, "space": 100, "known": 0}
    run = store.start_run(GEMM.signature, about, provenance, settings)
    given = Answer(about, "tuned", config, 10.0, (9.9, 10.1), 1.2, (1.1, 1.3), 12.0, 11.0, flops=10**9, bytes=10**6)
    return store.add_answer(run, given, provenance, "trials", {}, Duel((config.text, "vendor"), ((10.0, 11.0),)))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.open(tmp_path / "tuner.db")


@contextmanager
def serving(app: FastAPI) -> Iterator[httpx.Client]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    with httpx.Client(base_url=f"http://127.0.0.1:{port}") as made:
        yield made
    server.should_exit = True
    thread.join()


@pytest.fixture
def client(store: Store) -> Iterator[httpx.Client]:
    with serving(create_app(store, signatures=recorded.signatures())) as made:
        yield made


def test_health(client: httpx.Client, store: Store) -> None:
    assert client.get("/healthz").json() == {
        "status": "ok",
        "version": tuner.__version__,
        "snapshot": store.snapshot,
    }


class TestBestConfig:
    def test_an_exact_answer_in_full(self, client: httpx.Client, store: Store) -> None:
        answer(store, problem(M=4096))
        got = client.get("/best-config", params={"op": "gemm", "M": 4096, "triton": "3.6.0", "source": GEMM.source})
        assert got.status_code == 200
        body = got.json()
        assert body["match"] == "exact"
        assert body["problem"] == {"M": 4096, "N": 4096, "K": 4096, "dtype": "bf16", "layout": "nn"}
        assert body["config"] == dict(GEMM.default_config(problem(M=4096), H200.limits))
        assert body["latency_us"] == 10.0
        assert body["tflops"] == 100.0
        assert body["gb_per_s"] == 100.0
        assert body["stale"] == []
        assert body["snapshot"] == store.snapshot

    def test_the_problem_is_the_same_however_it_is_spelled(self, client: httpx.Client, store: Store) -> None:
        answer(store, problem(M=64, N=32, K=16, dtype="fp16", layout="nt"))
        spelled = "/best-config?layout=nt&K=16&dtype=torch.float16&N=32&op=gemm&M=64"
        assert client.get(spelled).json()["match"] == "exact"

    def test_b09_another_triton_is_stale_and_strictly_a_miss(self, client: httpx.Client, store: Store) -> None:
        answer(store, problem(M=64), triton="3.1.0")
        answer(store, problem(M=64), triton="3.2.0")
        asked: dict[str, str | int] = {"op": "gemm", "M": 64, "triton": "3.3.0"}
        body = client.get("/best-config", params=asked).json()
        assert body["match"] == "stale"
        assert body["stale"] == ["triton: tuned with 3.2.0, asked for 3.3.0"]
        strict = client.get("/best-config", params={**asked, "strict": 1})
        assert strict.status_code == 404
        assert strict.json()["match"] == "none"

    def test_a_replayed_answer_says_so(self, client: httpx.Client, store: Store) -> None:
        answer(store, problem(M=64), recorded="a-space")
        body = client.get("/best-config", params={"op": "gemm", "M": 64}).json()
        assert body["recorded"] == "a-space"
        assert body["match"] == "stale"

    def test_a_miss_is_404_with_the_command_that_would_tune_it(self, client: httpx.Client, store: Store) -> None:
        answer(store, problem(M=64))
        got = client.get("/best-config", params={"op": "gemm", "M": 65})
        assert got.status_code == 404
        assert got.json() == {
            "op": "gemm",
            "problem": {"M": 65, "N": 65, "K": 65, "dtype": "bf16", "layout": "nn"},
            "device": "nvidia-h200",
            "match": "none",
            "reason": "no answer is stored for gemm M=65 N=65 K=65 dtype=bf16 on nvidia-h200",
            "nearest": ["gemm M=64 N=64 K=64 dtype=bf16"],
            "command": "tuner search gemm --M 65 --N 65 --K 65 --dtype bf16 --layout nn",
            "snapshot": store.snapshot,
        }

    def test_a_new_answer_is_seen_at_once(self, client: httpx.Client, store: Store) -> None:
        answer(store, problem(M=64))
        asked: dict[str, str | int] = {"op": "gemm", "M": 128, "device": "nvidia-h200"}
        assert client.get("/best-config", params=asked).status_code == 404
        answer(store, problem(M=128))
        assert client.get("/best-config", params=asked).status_code == 200


class TestDevice:
    def test_the_only_one_stored_needs_no_name(self, client: httpx.Client, store: Store) -> None:
        answer(store, problem(M=64), A100)
        assert client.get("/best-config?op=gemm&M=64").json()["device"] == "nvidia-a100-sxm4-80gb"

    def test_of_several_one_must_be_named(self, client: httpx.Client, store: Store) -> None:
        answer(store, problem(M=64), A100)
        answer(store, problem(M=64), H200)
        got = client.get("/best-config?op=gemm&M=64")
        assert got.status_code == 422
        assert got.json() == {"error": "device is missing; answers are stored for nvidia-a100-sxm4-80gb, nvidia-h200"}
        assert client.get("/best-config?op=gemm&M=64&device=nvidia-h200").json()["device"] == "nvidia-h200"

    def test_the_servers_own_card_comes_first(self, store: Store) -> None:
        answer(store, problem(M=64), A100)
        answer(store, problem(M=64), H200)
        with serving(create_app(store, device="nvidia-h200")) as client:
            assert client.get("/best-config?op=gemm&M=64").json()["device"] == "nvidia-h200"


REFUSED: list[tuple[str, int, str]] = [
    ("", 422, "op is missing; it is one of gemm, softmax, transpose"),
    ("op=convolution&M=1", 404, "no op is called 'convolution'; known are gemm, softmax, transpose"),
    ("op=../../x&M=1", 404, "no op is called '../../x'"),
    ("op=gemm%00&M=1", 404, "no op is called 'gemm\\x00'"),
    ("op=gemm", 422, "gemm needs M; give M=SIZE"),
    ("op=gemm&M=0", 422, "gemm: M is a whole number from 1 to 2147483647, not '0'"),
    ("op=gemm&M=-1", 422, "gemm: M is a whole number from 1 to 2147483647, not '-1'"),
    ("op=gemm&M=1.5", 422, "gemm: M is a whole number from 1 to 2147483647, not '1.5'"),
    ("op=gemm&M=9223372036854775808", 422, "gemm: M is a whole number"),
    (f"op=gemm&M={HUGE}", 422, "gemm: M is a whole number from 1 to 2147483647, not '999"),
    ("op=gemm&M=4%D9%A3", 422, "gemm: M is a whole number"),
    ("op=gemm&M=64&M=65", 422, "M is given more than once"),
    ("op=gemm&M=64&Q=1", 422, "gemm is described by M, N, K, dtype, layout, precision, not by 'Q'"),
    ("op=gemm&M=64&dtype=int4", 422, "or torch's name for it, not 'int4'"),
    ("op=gemm&M=64&dtype=", 422, "or torch's name for it, not ''"),
    ("op=gemm&M=64&strict=yes", 422, "strict is 0 or 1, not 'yes'"),
    ("op=gemm&M=64&strict=1", 422, "strict=1 compares versions, so it needs triton"),
    ("op=gemm&M=64&device=gpu", 404, "no device is called 'gpu'; there are nvidia-h200"),
]


@pytest.mark.parametrize(("query", "status", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_bad_input_is_refused_in_a_sentence(
    client: httpx.Client, store: Store, query: str, status: int, message: str
) -> None:
    answer(store, problem(M=64))
    got = client.get(f"/best-config?{query}")
    assert got.status_code == status
    assert message in got.json()["error"]
    assert len(got.json()["error"]) < 300


def test_an_unreadable_store_is_503(tmp_path: Path) -> None:
    path = tmp_path / "tuner.db"
    store = Store.open(path)
    app = create_app(store)
    store.close()
    for file in tmp_path.iterdir():
        file.write_bytes(b"overwritten" * 100)
    with serving(app) as client:
        got = client.get("/healthz")
    assert got.status_code == 503
    assert "cannot be read" in got.json()["error"]


def test_openapi_lists_the_parameters_of_every_op(client: httpx.Client) -> None:
    page: dict[str, Any] = client.get("/openapi.json").json()
    parameters = {item["name"]: item for item in page["paths"]["/best-config"]["get"]["parameters"]}
    assert {"op", "M", "N", "K", "dtype", "layout", "precision", "device", "triton", "strict"} <= parameters.keys()
    assert parameters["op"]["schema"]["enum"] == ["gemm", "softmax", "transpose"]
    assert "404" in page["paths"]["/best-config"]["get"]["responses"]
