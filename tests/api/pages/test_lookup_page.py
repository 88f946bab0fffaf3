"""The page to look up a problem: a form for each op, and the result and the errors of the API."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from helpers import A100, H200
from served import GEMM, answer, problem
from starlette.testclient import TestClient

from tuner.api.app import create_app
from tuner.db.store import Store
from tuner.kernels.spec import Attribute, Dim, Knob, Signature

OPEN = Signature(
    "open",
    (Dim("M"), Dim("N", default="M"), Dim("K", default=64)),
    ("fp16", "fp8e4m3"),
    (Knob("num_warps", (4,)), Knob("num_stages", (1,))),
    (Attribute("act", None, "none"), Attribute("scale", ("row", "block"), "row", dtypes=("fp8e4m3",))),
)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    store = Store.open(tmp_path_factory.mktemp("lookup") / "tuner.db")
    answer(store, problem(M=64))
    answer(store, problem(M=64), device=A100)
    yield TestClient(create_app(store, signatures={"gemm": GEMM.signature, "open": OPEN}))
    store.close()


def reply_of(page: str) -> Any:
    """Return the JSON that a page shows."""
    found = re.search(r'aria-label="Reply"><code>(.*?)</code>', page, re.DOTALL)
    assert found is not None
    return json.loads(unescape(found[1]))


class TestTheForm:
    def test_it_begins_with_the_op(self, client: TestClient) -> None:
        page = client.get("/pages/lookup").text
        assert re.findall(r"<option>(\w+)</option>", page) == ["gemm", "open"]
        assert 'name="M"' not in page

    def test_it_has_the_fields_of_the_signature(self, client: TestClient) -> None:
        page = client.get("/pages/lookup?op=open").text
        fields = re.findall(r'<(?:input|select) name="(\w+)"[^>]*>', page)
        problem_fields = ["op", "M", "N", "K", "dtype", "act", "scale", "device"]
        assert fields == [*problem_fields, "triton", "source", "definition", "driver", "ptxas", "policy"]
        assert re.search(r'name="M"[^>]* required', page)
        assert not re.search(r'name="N"[^>]* required', page)
        for hint in (
            'placeholder="as M"',
            'placeholder="64"',
            'placeholder="none"',
            ">fp16 (default)<",
            ">row (default)<",
        ):
            assert hint in page, hint
        assert "(only fp8e4m3)" in page
        assert "Reply" not in page

    def test_a_card_is_chosen_only_if_the_query_names_one(self, client: TestClient, tmp_path: Path) -> None:
        page = client.get("/pages/lookup?op=gemm&M=64").text
        select = page[page.index('<select name="device" required>') :].partition("</select>")[0]
        assert '<option value="" selected>choose a card</option>' in select
        page = client.get("/pages/lookup?op=gemm&M=64&device=nvidia-l4").text
        assert '<option value="nvidia-l4" selected>' in page
        store = Store.open(tmp_path / "tuner.db")
        empty = TestClient(create_app(store, signatures={"gemm": GEMM.signature}))
        assert 'name="device"' not in empty.get("/pages/lookup?op=gemm").text
        answer(store, problem(M=64))
        one = TestClient(create_app(store))
        assert '<option value="" selected>nvidia-h200 (default)</option>' in one.get("/pages/lookup?op=gemm").text
        store.close()

    def test_it_keeps_what_was_asked(self, client: TestClient) -> None:
        page = client.get("/pages/lookup?op=gemm&M=64&dtype=fp16&triton=3.7.1&strict=1").text
        assert re.search(r'name="M" value="64"', page)
        assert '<option value="fp16" selected>' in page
        assert re.search(r'name="triton" value="3.7.1"', page)
        assert 'name="strict" value="1" checked' in page


class TestTheResult:
    @pytest.mark.parametrize("rest", ["", "&triton=3.6.0", "&triton=3.7.1", "&triton=3.7.1&strict=1", "&M=65"])
    def test_it_is_that_of_the_api(self, client: TestClient, rest: str) -> None:
        query = f"op=gemm&{'' if 'M=' in rest else 'M=64&'}device={H200.id}{rest}"
        page = client.get(f"/pages/lookup?{query}&N=&K=&layout=")  # empty fields of the form are left out
        assert page.status_code == 200
        expected = client.get(f"/best-config?{query}").json()
        assert reply_of(page.text) == expected
        state = "no answer" if expected["match"] == "none" else expected["match"]
        assert re.search(rf'class="badge[^>]*><bdi>{state}<', page.text)

    def test_it_has_the_request_and_the_page_of_the_problem(self, client: TestClient) -> None:
        page = client.get(f"/pages/lookup?op=gemm&M=64&device={H200.id}&N=").text
        assert unescape(page).count(f"curl -s 'http://127.0.0.1:8000/best-config?op=gemm&M=64&device={H200.id}'") == 1
        address = re.search(r'<h2 id="result"><a href="([^"]*)"', page)
        assert address is not None
        assert client.get(f"/pages/{unescape(address[1])}").status_code == 200

    @pytest.mark.parametrize(
        "query",
        [
            "op=gemm&M=x",
            "op=gemm&N=64",
            "op=gemm&M=64",  # two devices, and none is named
            "op=gemm&M=64&device=nvidia-l4",
            "op=gemm&M=64&layout=xx&device=nvidia-h200",
            "op=gemm&M=64&strict=1",
            "op=gemm&M=64&strict=2",
            "op=gemm&M=64&Q=1",
            "op=conv&M=1",
            "M=64",
            "op=open&M=1&scale=block",
        ],
    )
    def test_its_errors_are_those_of_the_api(self, client: TestClient, query: str) -> None:
        expected = client.get(f"/best-config?{query}")
        got = client.get(f"/pages/lookup?{query}")
        assert got.status_code == expected.status_code
        assert expected.json()["error"] in unescape(got.text)
        assert "Reply" not in got.text

    def test_a_lookup_of_the_page_is_not_counted_as_missed(self, client: TestClient, tmp_path: Path) -> None:
        store = Store.open(tmp_path / "tuner.db")
        answer(store, problem(M=64))
        with TestClient(create_app(store)) as own:  # the counts are written when the service ends
            own.get("/pages/lookup?op=gemm&M=65")
            own.get("/best-config?op=gemm&M=66")
        assert [each["problem"] for each in store.requests(9)] == [problem(M=66).text]
        store.close()
