"""What came of several problems, of one card or of two."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import A100, H200
from scripted import DEFAULT, SPACE, TOY, ScriptedMeasurer

from tuner.cli.problem_rows import print_tuned
from tuner.db.store import Store
from tuner.records import COLD, Device, Environment, Provenance
from tuner.search import Budget
from tuner.suites.suite import Entry
from tuner.tuning.effort import Effort
from tuner.tuning.run import run_search, stored_answer
from tuner.tuning.target import Target
from tuner.tuning.tuned import Tuned


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "tuner.db")
    yield store
    store.close()


def searched(store: Store, size: int, card: Device) -> Tuned:
    problem = TOY.problem({"N": size})
    made = Provenance(card, Environment("3.6.0", "12.8", "2.11.0", "580.1"), "9f2c", COLD.text)
    target = Target(SPACE, DEFAULT, made, COLD, flops=0, bytes=1, measurer=ScriptedMeasurer)
    entry = Entry("toy", TOY, problem)
    result = run_search(target, store, entry, Effort(Budget(), sampler="grid"))
    return Tuned(problem, stored_answer(store, target, entry), result)


def printed(rows: list[Tuned], capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_tuned("toys", rows, 1.0)
    return [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]


def test_the_heading_names_every_card_and_the_rows_their_own(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [searched(store, 64, H200), searched(store, 65, A100), Tuned(TOY.problem({"N": 66}), error="crashed")]
    title, head, _, first, second, failed, *_ = printed(rows, capsys)
    assert title == "toys on nvidia-a100-sxm4-80gb, nvidia-h200"
    assert head.split()[:3] == ["problem", "device", "answer"]
    assert first.split()[:5] == ["toy", "64", "fp32", "nvidia-h200", "tuned"]
    assert second.split()[:5] == ["toy", "65", "fp32", "nvidia-a100-sxm4-80gb", "tuned"]
    assert failed.split()[:4] == ["toy", "66", "fp32", "failed"]


def test_one_card_is_named_once(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    title, head, _, first, *_ = printed([searched(store, 64, H200)], capsys)
    assert title == "toys on nvidia-h200"
    assert head.split()[:2] == ["problem", "answer"]
    assert first.split()[:4] == ["toy", "64", "fp32", "tuned"]
