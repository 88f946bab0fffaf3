"""What came of several problems, of one card or of two."""

from __future__ import annotations

import json
from functools import partial

import pytest
from databases import sqlite_store
from helpers import A100, H200
from scripted import BEST, DEFAULT, SPACE, TOY, ScriptedMeasurer, bowl

from tuner.cli.problem_rows import ended, print_tuned
from tuner.db.store import Store
from tuner.records import COLD, Device, Environment, Provenance
from tuner.search import Budget
from tuner.suites.suite import Entry, Suite
from tuner.tuning.effort import Effort
from tuner.tuning.run import run_search, stored_answer
from tuner.tuning.target import Target
from tuner.tuning.tuned import Tuned

store = sqlite_store


def searched(store: Store, size: int, card: Device, vendor_us: float = 120.0) -> Tuned:
    problem = TOY.problem({"N": size})
    made = Provenance(card, Environment("3.6.0", "12.8", "2.11.0", "580.1"), "9f2c", COLD.text)
    target = Target(
        SPACE, DEFAULT, made, COLD, flops=0, bytes=1, measurer=partial(ScriptedMeasurer, vendor_us=vendor_us)
    )
    entry = Entry("toy", TOY, problem)
    result = run_search(target, store, entry, Effort(Budget(), sampler="grid"))
    return Tuned.of(store, stored_answer(store, target, entry), result)


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


def test_several_problems_have_the_means_of_untuned_and_tuned_beside_the_vendor(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        searched(store, 64, H200),
        searched(store, 65, H200, vendor_us=80.0),
        Tuned(TOY.problem({"N": 66}), error="crashed"),
    ]
    means = [line.split() for line in printed(rows, capsys) if "x torch" in line or "x tuned" in line]
    untuned, tuned, of_tuned = means[-3:]
    slowdown = bowl(DEFAULT) / bowl(BEST)
    assert untuned == ["toy", "untuned", "x", "torch", "2", *_spread(1.2 / slowdown, 0.8 / slowdown), "2", "2"]
    assert tuned == ["tuned", "x", "torch", "2", *_spread(1.2, 0.8), "1", "1"]
    assert of_tuned == ["untuned", "x", "tuned", "2", *_spread(1 / slowdown, 1 / slowdown), "2", "2"]
    assert not any("x tuned" in line for line in printed(rows[:1], capsys))


def test_the_document_of_several_problems_has_the_means_of_each_range(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [searched(store, 64, H200), searched(store, 65, H200, vendor_us=80.0)]
    ended(Suite("toys", tuple(Entry("toy", TOY, row.problem) for row in rows)), rows, 1.0, store, as_json=True)
    speedups = json.loads(capsys.readouterr().out)["speedups"]
    assert [each["label"] for each in speedups] == ["untuned x torch", "tuned x torch", "untuned x tuned"]
    assert {(each["device"], each["group"], each["problems"]) for each in speedups} == {("nvidia-h200", "toy", 2)}
    assert (speedups[1]["least"], speedups[1]["least_problem"]) == (pytest.approx(0.8), "toy N=65 dtype=fp32")


def _spread(one: float, other: float) -> list[str]:
    """Return geometric mean, 10th percentile and least of two speed-ups, as they are printed."""
    least, most = sorted((one, other))
    return [f"{value:.3f}" for value in ((one * other) ** 0.5, least + (most - least) / 10, least)]
