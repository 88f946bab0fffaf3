"""The service, through a real server on a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from databases import sqlite_store
from helpers import A100, H200, until
from served import GEMM, TOKEN, answer, problem, serving

import tuner
from tuner import recorded
from tuner.api.app import create_app
from tuner.api.settings import ServiceSettings
from tuner.db.store import Store

RECORDED = ", ".join(sorted(recorded.signatures()))
"""The ops that a service knows from the start, as messages list them."""

HUGE = "9" * 5000


def served(store: Store) -> Any:
    return serving(create_app(store, signatures=recorded.signatures()))


store = sqlite_store


@pytest.fixture
def client(store: Store) -> Iterator[httpx.Client]:
    with serving(
        create_app(store, signatures=recorded.signatures(), token=TOKEN, settings=ServiceSettings(flush_s=0.5))
    ) as made:
        yield made


PLAIN = {"layout": "nn", "bias": False, "activation": "none"}
"""gemm's attributes at their defaults."""


def test_health(client: httpx.Client, store: Store) -> None:
    assert client.get("/healthz").json() == {"status": "ok", "version": tuner.__version__}
    ready = client.get("/readyz").json()
    assert ready.pop("age_s") < 5
    assert ready == {"status": "ready", "snapshot": store.snapshot, "answers": 0}


class TestBestConfig:
    def test_an_exact_answer_in_full(self, store: Store) -> None:
        answer(store, problem(M=4096))
        with served(store) as client:
            got = client.get("/best-config", params={"op": "gemm", "M": 4096, "triton": "3.6.0", "source": GEMM.source})
            assert got.status_code == 200
            body = got.json()
            assert body["match"] == "exact"
            assert body["problem"] == {"M": 4096, "N": 4096, "K": 4096, "dtype": "bf16", **PLAIN}
            assert body["config"] == dict(GEMM.default_config(problem(M=4096), H200.limits))
            assert body["latency_us"] == 10.0
            assert body["tflops"] == 100.0
            assert body["gb_per_s"] == 100.0
            assert body["stale"] == []
            assert body["snapshot"] == store.snapshot

    def test_another_definition_makes_it_stale(self, store: Store) -> None:
        answer(store, problem(M=4096))
        ask = {"op": "gemm", "M": 4096, "triton": "3.6.0", "source": GEMM.source}
        with served(store) as client:
            exact = client.get("/best-config", params={**ask, "definition": GEMM.definition}).json()
            assert (exact["match"], exact["tuned_with"]["definition"]) == ("exact", GEMM.definition)
            stale = client.get("/best-config", params={**ask, "definition": "ffff"}).json()
            reason = f"definition: tuned with {GEMM.definition}, the query has ffff"
            assert (stale["match"], stale["stale"]) == ("stale", [reason])
            refused = client.get("/best-config", params={**ask, "definition": "ffff", "strict": 1})
            assert (refused.status_code, refused.json()["match"]) == (404, "none")
            parameters = client.get("/openapi.json").json()["paths"]["/best-config"]["get"]["parameters"]
            assert "definition" in {parameter["name"] for parameter in parameters}

    def test_the_problem_is_the_same_however_it_is_spelled(self, store: Store) -> None:
        answer(store, problem(M=64, N=32, K=16, dtype="fp16", layout="nt"))
        spelled = "/best-config?layout=nt&K=16&dtype=torch.float16&N=32&op=gemm&M=64"
        with served(store) as client:
            assert client.get(spelled).json()["match"] == "exact"

    def test_another_triton_is_stale_and_strictly_a_miss(self, store: Store) -> None:
        answer(store, problem(M=64), triton="3.1.0")
        answer(store, problem(M=64), triton="3.2.0")
        params: dict[str, str | int] = {"op": "gemm", "M": 64, "triton": "3.3.0"}
        with served(store) as client:
            body = client.get("/best-config", params=params).json()
            assert body["match"] == "stale"
            assert body["stale"] == ["triton: tuned with 3.2.0, the query has 3.3.0"]
            strict = client.get("/best-config", params={**params, "strict": 1})
            assert strict.status_code == 404
            assert strict.json()["match"] == "none"

    def test_a_replayed_answer_says_so(self, store: Store) -> None:
        answer(store, problem(M=64), replayed="a-space")
        with served(store) as client:
            body = client.get("/best-config", params={"op": "gemm", "M": 64}).json()
            assert body["recorded"] == "a-space"
            assert body["match"] == "stale"

    def test_a_miss_is_404_with_the_command_that_would_tune_it(self, store: Store) -> None:
        answer(store, problem(M=64))
        with served(store) as client:
            got = client.get("/best-config", params={"op": "gemm", "M": 65})
            assert got.status_code == 404
            assert got.json() == {
                "op": "gemm",
                "problem": {"M": 65, "N": 65, "K": 65, "dtype": "bf16", **PLAIN},
                "device": "nvidia-h200",
                "match": "none",
                "reason": "no answer is stored for gemm M=65 N=65 K=65 dtype=bf16 on nvidia-h200",
                "nearest": ["gemm M=64 N=64 K=64 dtype=bf16"],
                "command": "tuner search gemm --M 65 --N 65 --K 65 --dtype bf16",
                "snapshot": store.snapshot,
            }

    def test_a_new_answer_is_seen_within_two_seconds(self, client: httpx.Client, store: Store) -> None:
        params: dict[str, str | int] = {"op": "gemm", "M": 128, "device": "nvidia-h200"}
        says = client.get("/best-config", params=params).json()["error"]
        assert says == f"no device has answers, so none is called {params['device']!r}; tuner search OP finds some"
        answer(store, problem(M=128))
        until(lambda: client.get("/best-config", params=params).status_code == 200, seconds=2)

    def test_a_request_that_has_the_answer_gets_no_body(self, client: httpx.Client, store: Store) -> None:
        answer(store, problem(M=64))
        url = "/best-config?op=gemm&M=64"
        until(lambda: client.get(url).status_code == 200)
        first = client.get(url)
        assert first.headers["cache-control"] == "no-cache"
        again = client.get(url, headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        answer(store, problem(M=65))  # another problem's: the snapshot moves on, this answer stays
        until(lambda: client.get(url).json()["snapshot"] == store.snapshot)
        assert client.get(url, headers={"if-none-match": f'"x", {first.headers["etag"]}'}).status_code == 304
        answer(store, problem(M=64))
        until(lambda: client.get(url).headers["etag"] != first.headers["etag"])
        assert client.get(url, headers={"if-none-match": first.headers["etag"]}).status_code == 200

    def test_another_dtype_is_another_problem(self, client: httpx.Client, store: Store) -> None:
        answer(store, problem(M=64, dtype="fp16"))
        until(lambda: client.get("/best-config?op=gemm&M=64&dtype=fp16").status_code == 200)
        for dtype in ("fp32", "bf16"):
            got = client.get(f"/best-config?op=gemm&M=64&dtype={dtype}")
            assert got.status_code == 404
            assert got.json()["nearest"] == ["gemm M=64 N=64 K=64 dtype=fp16"]
        assert client.get("/best-config?op=gemm&M=64&dtype=fp8e4m3").status_code == 422


class TestDevice:
    def test_the_only_one_stored_needs_no_name(self, store: Store) -> None:
        answer(store, problem(M=64), A100)
        with served(store) as client:
            assert client.get("/best-config?op=gemm&M=64").json()["device"] == "nvidia-a100-sxm4-80gb"

    def test_of_several_one_must_be_named(self, store: Store) -> None:
        answer(store, problem(M=64), A100)
        answer(store, problem(M=64), H200)
        with served(store) as client:
            got = client.get("/best-config?op=gemm&M=64")
            assert got.status_code == 422
            assert got.json() == {
                "error": "device is missing; answers are stored for nvidia-a100-sxm4-80gb, nvidia-h200"
            }
            assert client.get("/best-config?op=gemm&M=64&device=nvidia-h200").json()["device"] == "nvidia-h200"

    def test_the_servers_own_card_comes_first(self, store: Store) -> None:
        answer(store, problem(M=64), A100)
        answer(store, problem(M=64), H200)
        with serving(create_app(store, device="nvidia-h200")) as client:
            assert client.get("/best-config?op=gemm&M=64").json()["device"] == "nvidia-h200"


REFUSED: list[tuple[str, int, str]] = [
    ("", 422, f"op is missing; it is one of {RECORDED}"),
    ("op=convolution&M=1", 404, f"no op is called 'convolution'; known are {RECORDED}"),
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
    ("op=gemm&M=64&Q=1", 422, "gemm is described by M, N, K, dtype, layout, bias, activation, precision, not by 'Q'"),
    ("op=gemm&M=64&dtype=int4", 422, "or torch's name for it, not 'int4'"),
    ("op=gemm&M=64&dtype=", 422, "or torch's name for it, not ''"),
    ("op=gemm&M=64&strict=yes", 422, "strict is 0 or 1, not 'yes'"),
    ("op=gemm&M=64&strict=1", 422, "strict=1 compares versions, so it needs triton"),
    ("op=gemm&M=64&device=gpu", 404, "no device is called 'gpu'; there are nvidia-h200"),
]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    store = Store.open(tmp_path_factory.mktemp("filled") / "tuner.db")
    answer(store, problem(M=64))
    with served(store) as client:
        yield client
    store.close()


@pytest.mark.parametrize(("query", "status", "message"), REFUSED, ids=lambda value: str(value)[:40])
def test_bad_input_is_refused_in_a_sentence(filled: httpx.Client, query: str, status: int, message: str) -> None:
    got = filled.get(f"/best-config?{query}")
    assert got.status_code == status
    assert message in got.json()["error"]
    assert len(got.json()["error"]) < 300


class TestMany:
    def test_each_is_answered_in_its_place(self, filled: httpx.Client) -> None:
        tuned = {"op": "gemm", "M": 64}
        given: list[object] = [
            tuned,
            {"op": "gemm", "M": 65},
            {"op": "nope"},
            7,
            {"op": "gemm", "M": "64", "strict": 1},
        ]
        got = filled.post("/best-configs", json={"problems": given})
        assert got.status_code == 200
        hit, miss, unknown, number, strict = got.json()["results"]
        assert hit == filled.get("/best-config", params={"op": "gemm", "M": 64}).json()
        assert miss == filled.get("/best-config", params={"op": "gemm", "M": 65}).json()
        assert unknown == {"error": f"no op is called 'nope'; known are {RECORDED}"}
        assert number == {"error": "a problem is an object with op and its dims, not int"}
        assert strict == {"error": "strict=1 compares versions, so it needs triton"}

    def test_a_thousand_and_no_more(self, filled: httpx.Client) -> None:
        problems = [{"op": "gemm", "M": 1 + number} for number in range(1000)]
        results = filled.post("/best-configs", json={"problems": problems}).json()["results"]
        assert [result["match"] for result in results].count("exact") == 1
        assert results[63]["match"] == "exact"
        assert results[999]["problem"]["M"] == 1000
        assert filled.post("/best-configs", json={"problems": [*problems, problems[0]]}).status_code == 422

    @pytest.mark.parametrize(
        ("body", "message"),
        [
            (b"", "cannot be parsed"),
            (b"[]", "the body must be one JSON object, not list"),
            (b"[" * 100_000, "cannot be parsed"),
            (b'{"problems": %s}' % (b"9" * 5000), "cannot be parsed"),
            (b'{"problems": []}', "problems is a list of 1 to 1000 objects"),
            (b'{"problems": [{}], "kernel": "import os"}', "the body has problems, not 'kernel'"),
            (b'\xff\xfe{"problems": [{}]}', "cannot be parsed"),
        ],
        ids=lambda value: str(value)[:30],
    )
    def test_an_invalid_body_is_refused(self, filled: httpx.Client, body: bytes, message: str) -> None:
        got = filled.post("/best-configs", content=body)
        assert got.status_code == 422
        assert message in got.json()["error"]

    @pytest.mark.parametrize(
        "given",
        [
            {"op": "__import__('os').system('touch i06')", "M": 1},
            {"op": "gemm", "M": "__import__('os').getpid()"},
            {"op": "gemm", "M": "1+1"},
            {"op": "gemm", "M": {"py/object": "os.system"}},
            {"op": "gemm", "M": 64, "dtype": "{0.__class__}"},
            {"op": "gemm", "M": 64, "device": "${jndi:ldap://x}"},
            {"op": "gemm", "M": 64, "device": ["nvidia-h200"]},
            {"op": "gemm", "M": True},
            {"op": "gemm", "M": 64.5},
            {"op": "\ud800", "M": 64},
        ],
        ids=lambda given: str(given)[:40],
    )
    def test_an_expression_is_an_unknown_name(self, filled: httpx.Client, given: dict[str, object]) -> None:
        (result,) = filled.post("/best-configs", content=json.dumps({"problems": [given]})).json()["results"]
        assert result.keys() == {"error"}


def test_openapi_lists_the_parameters_of_every_op(client: httpx.Client) -> None:
    page: dict[str, Any] = client.get("/openapi.json").json()
    parameters = {item["name"]: item for item in page["paths"]["/best-config"]["get"]["parameters"]}
    assert {"op", "M", "N", "K", "dtype", "layout", "precision", "device", "triton", "strict"} <= parameters.keys()
    assert parameters["op"]["schema"]["enum"] == sorted(recorded.signatures())
    assert "404" in page["paths"]["/best-config"]["get"]["responses"]
    assert page["paths"]["/jobs"]["post"]["security"] == [{"token": []}]
    for path, operations in page["paths"].items():
        for operation in operations.values():
            assert operation["description"], path


def test_an_op_that_was_searched_since_is_described_too(store: Store) -> None:
    with serving(create_app(store)) as client:
        assert (
            "enum" not in client.get("/openapi.json").json()["paths"]["/best-config"]["get"]["parameters"][0]["schema"]
        )
        answer(store, problem(M=64))
        until(lambda: client.get("/best-config?op=gemm&M=64").status_code == 200, seconds=2)
        parameters = client.get("/openapi.json").json()["paths"]["/best-config"]["get"]["parameters"]
    assert parameters[0]["schema"]["enum"] == ["gemm"]
