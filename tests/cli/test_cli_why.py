"""`tuner why`: each stored answer to a problem, and the fields in which it differs from the query."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from databases import sqlite_store
from helpers import A100, H200
from stored import HERE, PROBLEM, SCALE, answer, answered

from tuner.cli.why import command
from tuner.db.store import Store
from tuner.errors import NothingFound, UnknownName
from tuner.records import Environment

NEWER = replace(HERE, environment=Environment("3.7.1", "12.9", "2.11.0", "580.95"))


store = sqlite_store


def why(tmp_path: Path, *words: str) -> int:
    return int(command.main(["scale", "--db", str(tmp_path / "tuner.db"), *words], standalone_mode=False))


def document(capsys: pytest.CaptureFixture[str]) -> Any:
    return json.loads(capsys.readouterr().out)


def test_every_answer_is_compared_with_the_query(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answered(store)
    answered(store, provenance=replace(NEWER, device=A100))
    answered(store, provenance=replace(HERE, policy="warm-graph-1", recorded="scale-4096"))
    words = ["--M", "4096", "--device", H200.id, "--triton", "3.7.1", "--policy", "cold-events-1"]
    assert why(tmp_path, *words, "--json") == 1
    report = document(capsys)
    assert (report["match"], report["serves"], report["device"]) == ("stale", 1, H200.id)
    assert report["asked"] == {
        "triton": "3.7.1",
        "source": None,
        "definition": None,
        "driver": None,
        "ptxas": None,
        "policy": "cold-events-1",
    }
    assert {one["id"]: one["differs"] for one in report["answers"]} == {
        2: [f"device: tuned on {A100.id}, the query has {H200.id}"],
        1: ["triton: tuned with 3.6.0, the query has 3.7.1"],
        3: [
            "triton: tuned with 3.6.0, the query has 3.7.1",
            "policy: tuned with warm-graph-1, the query has cold-events-1",
            "recorded: replayed from scale-4096, not measured here",
        ],
    }
    assert [one["id"] for one in report["answers"]] == [2, 1, 3]
    assert why(tmp_path, *words) == 1
    shown = capsys.readouterr().out
    assert "answer 1 serves, and is stale\n" in shown
    assert shown.count("triton: tuned with 3.6.0, the query has 3.7.1") == 2  # answers 1 and 3, once each
    assert f"device: tuned on {A100.id}, the query has {H200.id}" in shown
    answered(store, provenance=NEWER)
    assert why(tmp_path, *words) == 0
    shown = capsys.readouterr().out
    assert "answer 4 serves, and is exact" in shown
    assert "to tune it" not in shown


def test_without_an_answer_the_nearest_problems_and_the_missed_queries_are_shown(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answered(store, answer(SCALE.problem({"M": 2048, "N": 4096})))
    answered(store, answer(SCALE.problem({"M": 4096, "layout": "nt"})))
    store.count_requests({("scale", PROBLEM.text, H200.id): 1234})
    assert why(tmp_path, "--M", "4096", "--json") == 1
    report = document(capsys)
    assert (report["match"], report["serves"], report["answers"]) == ("none", None, [])
    assert [one["differs"] for one in report["nearest"]] == [
        ["layout: tuned nt, the query has nn"],
        ["M: tuned 2048, the query has 4096"],
    ]
    assert [(one["device"], one["count"]) for one in report["missed"]] == [(H200.id, 1234)]
    assert why(tmp_path, "--M", "4096") == 1
    shown = capsys.readouterr().out
    assert "no answer serves\n" in shown
    assert shown.count("layout: tuned nt, the query has nn") == 1
    assert "missed 1,234 times on nvidia-h200" in shown
    assert "tuner search scale --M 4096" in shown


def test_for_a_card_without_answers_those_of_another_card_are_shown(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answered(store, provenance=replace(HERE, device=replace(H200, name="NVIDIA H20-3e")))
    store.count_requests({("scale", PROBLEM.text, "nvidia-h20"): 1})
    assert why(tmp_path, "--M", "4096", "--device", "nvidia-h20") == 1
    shown = capsys.readouterr().out
    assert "no answer serves\n" in shown
    assert shown.count("device: tuned on nvidia-h20-3e, the query has nvidia-h20") == 1


def test_an_unknown_device_is_refused(store: Store, tmp_path: Path) -> None:
    with pytest.raises(NothingFound, match="there are no answers"):
        command.main(
            ["gemm", "--M", "64", "--device", H200.id, "--db", str(tmp_path / "tuner.db")], standalone_mode=False
        )
    answered(store)
    with pytest.raises(UnknownName, match="no device is called 'nvidia-h100'; there are nvidia-h200"):
        why(tmp_path, "--M", "4096", "--device", "nvidia-h100")
