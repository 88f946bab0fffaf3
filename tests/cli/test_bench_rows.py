"""A table of rows from one card or from two."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from helpers import A100, H200
from scripted import BEST, DEFAULT, TOY, ScriptedMeasurer

from tuner.cli.bench_rows import print_rows
from tuner.cli.grid import Output
from tuner.kernels.spec import Config
from tuner.records import COLD, Device, Environment, Provenance
from tuner.tuning.bench import Subject, bench
from tuner.tuning.bench_row import Row
from tuner.tuning.bench_summary import document


def row(size: int, card: Device, vendor_us: float, answer: Config | None = BEST) -> Row:
    made = Provenance(card, Environment("3.6.0", "12.8", "2.11.0", "580.1"), "9f2c", COLD.text)
    found = bench(Subject(TOY.problem({"N": size}), made, answer, DEFAULT), ScriptedMeasurer(vendor_us=vendor_us))
    assert found is not None
    return found


def printed(rows: list[Row]) -> list[str]:
    written = StringIO()
    print_rows("toys", rows, Output(file=written, width=160, color_system=None))
    return [line.strip() for line in written.getvalue().splitlines() if line.strip()]


ALONE = [row(1, H200, 120.0), row(2, H200, 270.0)]
TWO = [*ALONE, row(3, A100, 50.0), replace(row(4, A100, 90.0), kind="failed", error="crashed")]


def cells(line: str) -> list[str]:
    return [cell for cell in line.split("  ") if cell.strip()]


def test_untuned_and_tuned_stand_beside_each_other_in_the_rows_and_in_the_means() -> None:
    _, head, _, first, _, untuned, *rest = printed([*ALONE, row(3, H200, 100.0, answer=None)])
    assert " ".join(head.split()) == (
        "problem timed answer us ± % untuned x torch tuned x torch ± % x default TFLOP/s GB/s roofline"
    )
    assert first.split()[:9] == ["toy", "1", "fp32", "cold", "tuned", "100.00", "0.0", "0.480", "1.200"]
    assert untuned.split()[:8] == ["toy", "3", "fp32", "cold", "untuned", "250.00", "0.0", "0.400"]
    means = {
        " ".join(" ".join(cells(line)[:-6]).split()): [cell.strip() for cell in cells(line)[-6:]] for line in rest[2:5]
    }
    assert list(means) == ["toy untuned x torch", "tuned x torch", "untuned x tuned"]
    assert means["toy untuned x torch"] == ["3", "0.592", "0.416", "0.400", "2", "2"]
    assert means["tuned x torch"] == ["2", "1.800", "1.350", "1.200", "0", "0"]
    assert means["untuned x tuned"] == ["2", "0.400", "0.400", "0.400", "2", "2"]
    assert [line for line in rest if line.startswith("worst")] == [
        "worst untuned    0.400 x torch, toy 3 fp32",
        "worst untuned    0.480 x torch, toy 1 fp32; tuned 1.200",
        "worst untuned    1.080 x torch, toy 2 fp32; tuned 2.700",
    ]
    assert "untuned          1: the default is served; --search 60s tunes first" in rest


def test_without_an_answer_there_is_no_column_of_tuned_speeds() -> None:
    _, head, *_ = printed([row(3, H200, 100.0, answer=None)])
    assert "tuned x torch ± %" in " ".join(head.split())
    assert "x default" not in head
    assert head.count("tuned x torch") == head.count("untuned x torch") == 1


def test_each_op_has_its_means_and_all_have_theirs() -> None:
    other = replace(ALONE[1], problem=replace(ALONE[1].problem, op="other", text="other N=2"))
    lines = printed([ALONE[0], other])
    starts = [line.split()[0] for line in lines[1:] if " untuned x torch  " in line and "problem" not in line]
    assert starts == ["toy", "other", "all"]


def test_rows_of_one_card_have_one_document() -> None:
    assert document("toys", ALONE).keys() == {"suite", "summary", "rows"}


def test_of_two_cards_each_row_names_its_own_and_each_card_has_means() -> None:
    _, head, _, *rows = printed(TWO)
    assert head.split()[:4] == ["problem", "device", "timed", "answer"]
    assert [line.split()[3] for line in rows[:4]] == [H200.id, H200.id, A100.id, A100.id]
    assert rows[3].split()[-1] == "failed"
    means = [cells(line) for line in rows if " untuned x torch  " in line]
    assert [(mean[1].strip(), mean[4].strip()) for mean in means] == [(A100.id, "0.200"), (H200.id, "0.720")]
    told = document("toys", TWO)["devices"]
    assert {device: each["rows"] for device, each in told.items()} == {A100.id: 2, H200.id: 2}
    assert told[H200.id]["tuned"]["torch"]["mean"] == pytest.approx(1.8)
    assert told[A100.id]["tuned"]["torch"]["mean"] == pytest.approx(0.5)
