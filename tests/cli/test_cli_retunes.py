"""`tuner retunes`: the list of retunes, and the report of one again."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import H200
from invoked import Invoked
from retuned import CAUSES, stored_retune

from tuner.cli.retune_report import finding_line
from tuner.db.store import Store
from tuner.errors import NothingFound, UsageError


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoked:
    return Invoked.alone(tmp_path, monkeypatch)


@pytest.fixture
def stored(tuner: Invoked) -> Invoked:
    store = Store.open(tuner.db)
    for night in (27, 28):
        stored_retune(store, night)
    store.close()
    return tuner


def test_the_newest_are_listed_with_their_outcome(stored: Invoked) -> None:
    done = stored("retunes")
    assert done.return_value == 0
    head, _, first, _ = (line.split("  ") for line in done.stdout.splitlines() if line.strip())
    assert [word.strip() for word in head if word.strip()][:3] == ["retune", "started UTC", "outcome"]
    assert [word.strip() for word in first if word.strip()][2:] == [
        "2 regressions, 1 not measured", "5", "3", "1", "3", H200.id,
    ]  # fmt: skip
    documents = json.loads(stored("retunes", "--json").stdout)
    assert [document["id"] for document in documents] == [2, 1]
    assert documents[0]["summary"]["exit_code"] == 4
    assert json.loads(stored("retunes", "--device", "nvidia-a100", "--json").stdout) == []


def test_without_any_the_way_to_one_is_named(tuner: Invoked) -> None:
    Store.open(tuner.db).close()
    assert tuner("retunes").stdout == "no retune is stored; tuner retune makes one\n"
    failed = tuner("retunes", "7")
    assert isinstance(failed.exception, NothingFound)
    assert str(failed.exception) == "there is no retune 7; no retune is stored; tuner retune makes one"


def test_one_is_shown_again(stored: Invoked) -> None:
    done = stored("retunes", "2")
    assert done.return_value == 0
    title, _, head, _, *rows = done.stdout.splitlines()
    assert title == f"retune 2 on {H200.id}"
    assert head.split() == ["problem", "cause", "us", "then", "us", "now", "change", "x", "vendor", "done"]
    assert " ".join(rows[1].split()) == (
        "scale 256 x 4352 bf16 slower: kernel or compiler 10.00 11.10 +11.0 % 1.100, now 0.991 kept"
    )
    assert rows[4:] == [
        "broken  scale 512 x 4352 bf16: wrong_result: 3 of 4 rows",
        "not measured  scale 640 x 4352 bf16: other processes use the card: 4711",
        "5 of 9 answers measured again: 2 unchanged, 1 order moved, 1 slower (kernel or compiler), 1 broken, "
        "1 not measured; 24.8 s",
        "1 replaced (1.052 x as fast), 1 retired, 1 confirmed",
        "Latencies on this card are 1.000 x those stored (median).",
        "3 not reached, since the budget was spent: the least valuable ones.",
        "2 regressions found (exit code 4), 2 not repaired.",
    ]
    failed = stored("retunes", "3")
    assert str(failed.exception) == "there is no retune 3; newest: 2, 1"


@pytest.mark.parametrize("width", [60, 80, 120])
def test_no_line_is_wider_than_the_terminal(stored: Invoked, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", str(width))
    for command in (("retunes",), ("retunes", "2")):
        lines = re.sub(r"\x1b\[[0-9;]*m", "", stored(*command).stdout).splitlines()
        assert [line for line in lines if len(line.rstrip()) > width] == []
        assert any("2 regressions" in line for line in lines)


def test_its_files_have_the_history_of_the_store(stored: Invoked) -> None:
    done = stored("retunes", "2", "--report", "out", "--json")
    assert done.stderr == "Report written to out: Markdown, JSON and JUnit, and 2 plots.\n"
    document = json.loads(done.stdout)
    assert document == json.loads((stored.folder / "out/retune.json").read_text())
    assert [row["problem"]["M"] for row in document["left_problems"]] == [128 * place for place in (7, 8, 9)]
    text = (stored.folder / "out/retune.md").read_text()
    assert 'x-axis ["then", "11-27", "now"]' in text  # the night before is a point
    assert len([*(stored.folder / "out/plots").iterdir()]) == 2


def test_a_report_is_of_one(stored: Invoked) -> None:
    failed = stored("retunes", "--report", "out")
    assert isinstance(failed.exception, UsageError)
    assert "name its number" in str(failed.exception)


def test_a_line_of_a_finding_has_no_control_characters() -> None:
    line = finding_line(replace(CAUSES[3], error="\x1b[31mbad\x1b[0m\x07: [red]x\nmore"))
    assert line == "scale 512 x 4352 bf16: broken, bad: [red]x; retired: no config works"
