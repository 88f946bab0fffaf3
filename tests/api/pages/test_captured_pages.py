"""The pages of a problem and of a lookup for ops of captured calls."""

from __future__ import annotations

import re
from contextlib import closing
from html import unescape
from pathlib import Path

import pytest
from called import SIZED, UNSIZED, answered, call
from helpers import H200
from starlette.testclient import TestClient

from tuner.api.app import create_app
from tuner.db.store import Store

OP = "main_kernel"


@pytest.fixture
def client(tmp_path: Path) -> TestClient:
    with closing(Store.open(tmp_path / "tuner.db")) as store:
        answered(store, SIZED)
        answered(store, UNSIZED)
    store = Store.open(tmp_path / "tuner.db")
    store.captured.add(call({"n": 1}, op="other_kernel"), H200)
    return TestClient(create_app(store))


def test_each_of_several_signatures_has_its_problems(client: TestClient) -> None:
    for key in ({"n": "64", "k": "3"}, {"n": "64", "k": "None", "act": str(UNSIZED.key["act"])}):
        query = {"op": OP, "dtype": "fp32", "y_dtype": "bf16", "device": H200.id, **key}
        page = client.get("/pages/problem", params=query)
        assert page.status_code == 200, page.text[-500:]
        assert "agreeing, not verified" in page.text
        assert "other configs of the kernel" in page.text
        looked_up = unescape(client.get("/pages/lookup", params=query).text)
        assert '"match": "exact"' in looked_up


def test_one_without_an_answer_has_its_command_and_nearest(client: TestClient) -> None:
    query = {"op": OP, "dtype": "fp32", "y_dtype": "bf16", "device": H200.id, "n": "65", "k": "3"}
    page = unescape(client.get("/pages/problem", params=query).text)
    assert "tuner search --captured main_kernel" in page
    nearest = re.findall(r"<li><a href=\"(problem\?[^\"]*|[^\"]*pages/problem[^\"]*)\"", page)
    assert nearest
    for address in nearest:
        assert client.get(f"/pages/{address.removeprefix('../pages/')}").status_code == 200


def test_the_form_has_the_fields_of_all_signatures_and_needs_none(client: TestClient) -> None:
    page = client.get(f"/pages/lookup?op={OP}").text
    names = re.findall(r'<(?:input|select) name="(\w+)"', page)
    assert {"n", "k", "act", "y_dtype"} <= {*names}
    assert " required" not in page


def test_an_op_that_was_captured_and_not_searched_says_so(client: TestClient) -> None:
    page = client.get("/pages/problem?op=other_kernel&n=1")
    assert page.status_code == 404
    assert "other_kernel has captured calls and was not searched; run tuner search other_kernel --captured" in page.text
