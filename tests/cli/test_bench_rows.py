"""A table of rows from one card or from two."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from helpers import A100, H200
from scripted import BEST, DEFAULT, TOY, ScriptedMeasurer

from tuner.cli.bench_rows import print_rows
from tuner.cli.grid import Output
from tuner.records import COLD, Device, Environment, Provenance
from tuner.tuning.bench import Subject, bench
from tuner.tuning.bench_row import Row, document


def row(size: int, card: Device, vendor_us: float) -> Row:
    made = Provenance(card, Environment("3.6.0", "12.8", "2.11.0", "580.1"), "9f2c", COLD.text)
    found = bench(Subject(TOY.problem({"N": size}), made, BEST, DEFAULT), ScriptedMeasurer(vendor_us=vendor_us))
    assert found is not None
    return found


def printed(rows: list[Row]) -> list[str]:
    written = StringIO()
    print_rows("toys", rows, Output(file=written, width=160, color_system=None))
    return [line.strip() for line in written.getvalue().splitlines() if line.strip()]


ALONE = [row(1, H200, 120.0), row(2, H200, 270.0)]
TWO = [*ALONE, row(3, A100, 50.0), replace(row(4, A100, 90.0), kind="failed", error="crashed")]


def test_rows_of_one_card_have_one_mean() -> None:
    _, head, _, first, *rest = printed(ALONE)
    assert head.split()[:3] == ["problem", "timed", "answer"]
    assert first.split()[:5] == ["toy", "1", "fp32", "cold", "tuned"]
    assert [line for line in rest if "mean" in line] == ["geometric mean   1.800 x torch, 2.500 x default"]
    assert document("toys", ALONE).keys() == {"suite", "summary", "rows"}


def test_of_two_cards_each_row_names_its_own_and_each_card_has_a_mean() -> None:
    _, head, _, *rows = printed(TWO)
    assert head.split()[:4] == ["problem", "device", "timed", "answer"]
    assert [line.split()[3] for line in rows[:4]] == [H200.id, H200.id, A100.id, A100.id]
    assert rows[3].split()[-1] == "failed"
    assert [line for line in rows if "mean" in line] == [
        "geometric mean   0.500 x torch, 2.500 x default on nvidia-a100-sxm4-80gb",
        "geometric mean   1.800 x torch, 2.500 x default on nvidia-h200",
    ]
    told = document("toys", TWO)["devices"]
    assert {device: each["rows"] for device, each in told.items()} == {A100.id: 2, H200.id: 2}
    assert told[H200.id]["vendor_speedup"] == pytest.approx(1.8)
    assert told[A100.id]["vendor_speedup"] == pytest.approx(0.5)
