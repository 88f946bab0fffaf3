"""Answers to captured calls in the service: open attributes, several signatures of one op, and the label."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from called import LARGE, SIZED, SMALL, UNSIZED, answered, described
from starlette.testclient import TestClient
from stored import HERE

from tuner.api.app import create_app
from tuner.api.examples import example
from tuner.api.schemas import BestConfigDocument
from tuner.db.store import Store
from tuner.records.signatures import signature_from_json

OP, ACT = "main_kernel", str(UNSIZED.key["act"])


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    with closing(Store.open(tmp_path_factory.mktemp("captured") / "tuner.db")) as store:
        answered(store, SIZED)
        answered(store, UNSIZED)
        with TestClient(create_app(store, token="t" * 20)) as made:
            yield made


def best(client: TestClient, **values: Any) -> Any:
    return client.get("/best-config", params={"op": OP, **values})


def test_the_label_is_a_field(client: TestClient) -> None:
    got = best(client, n=64, k=3, y_dtype="bf16", dtype="fp32")
    assert got.status_code == 200
    document = got.json()
    assert (document["config"], document["basis"], document["match"]) == (SMALL, "agreement", "exact")
    assert BestConfigDocument.model_validate(document).model_dump()["basis"] == "agreement"
    assert example()["basis"] == "reference"


def test_a_strict_query_misses_it(client: TestClient) -> None:
    got = best(client, n=64, k=3, y_dtype="bf16", dtype="fp32", strict=1, triton="3.6.0", source=HERE.source)
    assert got.status_code == 404
    document = got.json()
    assert "refused: basis: agreeing, not verified: its outputs were compared with those of" in document["reason"]
    assert document["command"] == "tuner search --captured main_kernel"


def test_each_query_is_read_by_the_signature_that_its_values_fit(client: TestClient) -> None:
    got = best(client, n=64, k="None", act=ACT, y_dtype="bf16", dtype="fp32").json()
    assert got["config"] == LARGE
    assert got["problem"] == {"n": 64, "dtype": "fp32", "k": "None", "act": ACT, "x_dtype": "", "y_dtype": "bf16"}
    many = {
        "problems": [
            {"op": OP, "n": 64, "k": 3, "dtype": "fp32", "y_dtype": "bf16"},
            {"op": OP, "n": 64, "k": "None", "dtype": "float32", "y_dtype": "bf16", "act": ACT},
            {"op": OP, "n": 64, "k": "None", "dtype": "fp32", "y_dtype": 1.5, "act": True},
            {"op": OP, "n": 64, "k": 3, "act": [1]},
            {"op": OP, "m": 64},
        ]
    }
    results = client.post("/best-configs", json=many).json()["results"]
    assert [result.get("config") for result in results] == [SMALL, LARGE, None, None, None]
    assert (results[2]["problem"]["act"], results[2]["problem"]["y_dtype"]) == ("True", "1.5")
    assert results[3]["error"] == "main_kernel: act is a text of up to 200 printable characters, not [1]"
    assert results[4]["error"] == "main_kernel is described by n, dtype, k, act, x_dtype, y_dtype, not by 'm'"


@pytest.mark.parametrize("act", ["", "x" * 200, "a=b c", '"', "\\", "%00 +&", "\u4e2d\U0001f600"])
def test_an_open_attribute_takes_any_text(client: TestClient, act: str) -> None:
    got = best(client, n=64, act=act)
    assert got.status_code == 404
    assert got.json()["problem"]["act"] == act


@pytest.mark.parametrize("act", ["x" * 201, "a\nb", "\x00", "\u200b"])
def test_up_to_200_printable_characters(client: TestClient, act: str) -> None:
    got = best(client, n=64, act=act)
    assert got.status_code == 422
    assert "act is a text of up to 200 printable characters" in got.json()["error"]


def test_the_table_has_both_and_ladders_of_each(client: TestClient) -> None:
    document = client.get("/table", params={"op": OP}).json()
    assert [record["basis"] for record in document["answers"]] == ["agreement"] * 2
    names = [record["signature"] for record in document["answers"]]
    dims = [[dim["name"] for dim in document["signatures"][name]["dims"]] for name in names]
    assert dims == [["n", "k"], ["n"]]
    attributes = document["signatures"][names[1]]["attributes"]
    assert [(one["name"], one["choices"], one["default"]) for one in attributes] == [
        (name, None, "") for name in ("k", "act", "x_dtype", "y_dtype")
    ]
    ladder = client.get("/table", params={"op": OP, "k": 3, "dtype": "fp32", "y_dtype": "bf16"}).json()
    assert ladder["configs"] == {"64": SMALL}
    other = {"op": OP, "k": "None", "act": ACT, "dtype": "fp32", "y_dtype": "bf16"}
    assert client.get("/table", params=other).json()["configs"] == {"64": LARGE}


def test_the_page_shows_the_parameters_of_both(client: TestClient) -> None:
    parameters = client.get("/openapi.json").json()["paths"]["/best-config"]["get"]["parameters"]
    schemas = {parameter["name"]: parameter["schema"] for parameter in parameters}
    text, size = {"type": "string", "maxLength": 200}, {"type": "integer", "minimum": 1, "maximum": 2**31 - 1}
    assert schemas["act"] == text
    assert schemas["n"] == size
    assert {"anyOf"} == schemas["k"].keys()
    assert sorted(schemas["k"]["anyOf"], key=str) == sorted([text, size], key=str)


def test_answers_keep_their_basis_where_runs_are_listed(client: TestClient) -> None:
    (answer,) = client.get("/runs/1").json()["answers"]
    assert answer["basis"] == "agreement"
    signature = client.get("/kernels").json()["items"][0]["signature"]
    assert signature_from_json(signature) == described(SIZED)[0]
    assert signature["captured"] is True
