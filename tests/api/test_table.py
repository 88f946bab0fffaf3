"""Whole tables and ladders."""

from __future__ import annotations

import gzip
from collections.abc import Iterator

import httpx
import pytest
from helpers import A100, until
from served import GEMM, answer, problem, serving

from tuner import recorded
from tuner.api.app import create_app
from tuner.db.store import Store
from tuner.lookup import bundle

TABLE = "/table?op=gemm&device=nvidia-h200"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    made = Store.open(tmp_path_factory.mktemp("tables") / "tuner.db")
    for about in (problem(M=64, N=32, K=16), problem(M=8, N=32, K=16), problem(M=64, N=32, K=16, dtype="fp16")):
        answer(made, about)
    answer(made, problem(M=64, N=32, K=16), triton="3.5.0")
    answer(made, problem(M=9, N=32, K=16), A100)
    answer(made, problem(M=16))
    yield made
    made.close()


@pytest.fixture(scope="module")
def client(store: Store) -> Iterator[httpx.Client]:
    with serving(create_app(store, signatures=recorded.signatures())) as made:
        yield made


def test_a_table_holds_every_answer_and_the_signature_that_reads_them(client: httpx.Client, store: Store) -> None:
    got = client.get(TABLE)
    table = got.json()
    assert (table["op"], table["device"], table["snapshot"]) == ("gemm", "nvidia-h200", store.snapshot)
    held = bundle.unpacked(got.content, TABLE)
    assert (held.signatures, held.skipped, held.snapshot) == ({"gemm": GEMM.signature}, (), store.snapshot)
    stored = store.answers(op="gemm", device="nvidia-h200")
    assert sorted(held.answers, key=lambda answer: answer.id) == stored
    assert {answer["tuned_with"]["triton"] for answer in table["answers"]} == {"3.5.0", "3.6.0"}


def test_a_ladder_leads_from_the_first_dim_to_configs(client: httpx.Client) -> None:
    ladder = client.get(f"{TABLE}&N=32&K=16").json()
    assert ladder["over"] == "M"
    attributes = {"layout": "nn", "bias": False, "activation": "none"}
    assert ladder["problem"] == {"N": 32, "K": 16, "dtype": "bf16", **attributes}
    assert list(ladder["configs"]) == ["8", "64"]
    single = client.get("/best-config?op=gemm&device=nvidia-h200&M=64&N=32&K=16").json()
    assert ladder["configs"]["64"] == single["config"]
    assert list(client.get(f"{TABLE}&N=32&K=16&dtype=fp16").json()["configs"]) == ["64"]
    assert client.get(f"{TABLE}&N=7&K=16").json()["configs"] == {}


@pytest.mark.parametrize(
    ("query", "status", "message"),
    [
        ("op=gemm", 422, "device is missing; answers are stored for nvidia-a100-sxm4-80gb, nvidia-h200"),
        ("device=nvidia-h200", 422, "op is missing"),
        ("op=nope&device=nvidia-h200", 404, "no op is called 'nope'"),
        ("op=gemm&device=../..", 404, "no device is called '../..'"),
        ("op=gemm&device=nvidia-h200&N=1", 422, "a table of gemm by M needs N, K and no M"),
        ("op=gemm&device=nvidia-h200&N=1&K=1&M=1", 422, "a table of gemm by M"),
        ("op=gemm&device=nvidia-h200&N=1&K=1&triton=3", 422, "not by 'triton'"),
        ("op=gemm&device=nvidia-h200&N=0&K=1", 422, "gemm: N is a whole number"),
        ("op=gemm&device=nvidia-h200&N=1&K=1&Q=1", 422, "not by 'Q'"),
    ],
)
def test_what_is_no_table_is_refused(client: httpx.Client, query: str, status: int, message: str) -> None:
    got = client.get(f"/table?{query}")
    assert got.status_code == status
    assert message in got.json()["error"]


def test_it_is_compressed_if_the_request_accepts_that(client: httpx.Client) -> None:
    with client.stream("GET", TABLE, headers={"accept-encoding": "br, gzip;q=0.5"}) as packed:
        raw = b"".join(packed.iter_raw())
    plain = client.get(TABLE, headers={"accept-encoding": "gzip;q=0"})
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert gzip.decompress(raw) == plain.content
    assert packed.headers["etag"] != plain.headers["etag"]
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"


def test_a_request_that_has_it_gets_304_until_something_is_answered(client: httpx.Client, store: Store) -> None:
    etag = client.get(TABLE).headers["etag"]
    assert client.get(TABLE, headers={"if-none-match": etag}).status_code == 304
    answer(store, problem(M=99))
    until(lambda: client.get(TABLE, headers={"if-none-match": etag}).status_code == 200, seconds=2)
