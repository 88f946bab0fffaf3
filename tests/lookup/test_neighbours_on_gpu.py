"""On a card: searches warm each other, and the benchmark measures what their winners lose on one another's problems."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from helpers import reaching

from tuner.db import schema
from tuner.db.store import Store

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).parents[2]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"TUNER_DB": str(folder / "tuner.db")} | reaching(ROOT)
    return subprocess.run(
        [sys.executable, *words], env=environment, cwd=folder, capture_output=True, text=True, check=False
    )


def test_neighbours_are_measured_judged_and_served(tmp_path: Path) -> None:
    for rows in ("1024", "1536", "2048"):
        searched = run(tmp_path, "-P", "-m", "tuner", "search", "softmax", "--M", rows, "--N", "4096", "--trials", "12")
        assert searched.returncode == 0, searched.stderr
    with closing(Store.open(tmp_path / "tuner.db")) as store:
        warm = store.rows(schema.TransferRow, 100)
        assert {row["from_answer_id"] for row in warm} >= {1}
        assert store.runs(1)[0].settings["winners"]
    words = (str(ROOT / "benchmarks" / "neighbours.py"), "--out", "neighbours.json", "--json")
    judged = run(tmp_path, *words)
    assert judged.returncode in (0, 1), judged.stderr
    verdict: dict[str, Any] = json.loads(judged.stdout)
    rows_kept = json.loads((tmp_path / "neighbours.json").read_text())["rows"]
    assert verdict["problems"] == len(rows_kept) == 3
    for row in rows_kept:
        assert row["rounds"] >= 20
        assert all(0.9 < tried["slowdown"] < 50 for tried in row["tried"] if tried["valid"])
    again = run(tmp_path, *words)
    assert "neighbours, " not in again.stderr  # nothing is measured twice
    assert json.loads(again.stdout) == verdict
    elsewhere = run(tmp_path, *words, "--evaluate")
    assert json.loads(elsewhere.stdout) == verdict
