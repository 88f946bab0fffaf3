"""Neighbours over HTTP and from the command line: served, shown, counted, and refused to a strict query."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest
from helpers import H200, until
from served import answer, problem, serving

from tuner.api.app import create_app
from tuner.api.schemas import BestConfigDocument, MissDocument, TableDocument
from tuner.api.settings import ServiceSettings
from tuner.cli.best import command as best
from tuner.db.store import Store
from tuner.lookup.neighbours import distance
from tuner.lookup.query import Query
from tuner.lookup.table import Table
from tuner.records import Transfer

ASKED = "/best-config?op=gemm&device=nvidia-h200&M=300&N=4096&K=4096"


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    """Answers for a ladder of M, whose configs were tried on one another's problems."""
    for size in (64, 128, 256, 512, 1024):
        answer(sqlite_store, problem(M=size, N=4096, K=4096))
    return sqlite_store


def tried(store: Store, slowdown: float) -> None:
    """Every config on every other problem."""
    for came, went in permutations(store.answers(), 2):
        away = distance(came.answer.problem, went.answer.problem)
        store.add_transfers(went.run_id, [(came.id, away, slowdown)])


def test_a_neighbour_is_served_once_it_was_tried_elsewhere(store: Store) -> None:
    with serving(create_app(store, settings=ServiceSettings(flush_s=0.1))) as client:
        missed = client.get(ASKED)
        MissDocument.model_validate(missed.json())
        table = client.get("/table?op=gemm&device=nvidia-h200")
        assert (missed.status_code, table.json()["transfers"]) == (404, [])
        answer(store, problem(M=200, N=4096, K=4096))
        answer(store, problem(M=400, N=4096, K=4096))
        tried(store, 1.013)
        until(lambda: client.get(ASKED).status_code == 200)
        body = client.get(ASKED).json()
        BestConfigDocument.model_validate(body)
        assert (body["match"], body["neighbour"]["problem"]["M"]) == ("neighbour", 256)
        assert body["neighbour"]["expected_loss"] == 0.013
        assert body["latency_us"] is body["default_latency_us"] is None
        assert client.get(f"{ASKED}&strict=1&triton=3.6.0").status_code == 404
        assert client.get(f"{ASKED}&triton=3.7.0").status_code == 404
        assert client.get(f"{ASKED}&dtype=fp16").status_code == 404
        wanted = {"M": 300, "N": 4096, "K": 4096, "op": "gemm", "device": "nvidia-h200"}
        (one,) = client.post("/best-configs", json={"problems": [wanted]}).json()["results"]
        assert one == body
        newer = client.get("/table?op=gemm&device=nvidia-h200", headers={"if-none-match": table.headers["etag"]})
        TableDocument.model_validate(newer.json())
        transfers = [Transfer.from_json(values) for values in newer.json()["transfers"]]
        rebuilt = Table(H200.id, store.answers(), transfers).find(Query(problem(M=300, N=4096, K=4096)))
        assert rebuilt.as_json(body["snapshot"]) == body
        assert 'tuner_lookups_total{match="neighbour",op="gemm"}' in client.get("/metrics").text
        until(lambda: len(client.get("/requests").json()["items"]) == 2)  # better tuned, so it counts as missed


def test_tuner_best_names_its_problem_and_its_expected_loss(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer(store, problem(M=400, N=4096, K=4096))
    tried(store, 1.013)
    words = ["gemm", "--M", "300", "--N", "4096", "--K", "4096", "--device", "nvidia-h200"]
    words += ["--db", str(tmp_path / "tuner.db")]
    assert best.main(words, standalone_mode=False) == 0
    shown = capsys.readouterr().out
    assert "neighbour: that of gemm M=256 N=4096 K=4096 dtype=bf16, expected to be 1.3 % slower" in shown
    assert "tuner search gemm --M 300 --N 4096 --K 4096 --dtype bf16" in shown
    assert " us" not in shown
    assert best.main([*words, "--json"], standalone_mode=False) == 0
    assert json.loads(capsys.readouterr().out)["match"] == "neighbour"
    assert best.main([*words, "--strict", "--triton", "3.6.0", "--json"], standalone_mode=False) == 1
    assert json.loads(capsys.readouterr().out)["match"] == "none"
