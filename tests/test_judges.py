"""The judges of the samplers: rivals that the package does not need, where they are installed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from scripted import SPACE, bowl

from tuner.records import Measurement, Outcome
from tuner.search.replay import ReplaySpace

pytest.importorskip("sklearn", reason="scikit-learn is not installed")
TOY = ReplaySpace("toy", tuple(Measurement(config, Outcome.OK, (bowl(config),)) for config in SPACE))


def test_a_classifier_finds_the_best_and_is_not_run_again(tmp_path: Path) -> None:
    from samplers import gap_table, judged, ours

    kept = tmp_path / "scores.json"
    scores = judged([TOY], ["forest", "random"], partial(ours, seeds=2), kept, "2 seeds", 1)
    assert [len(shares) for score in scores for shares in score.shares] == [60] * 4
    assert judged([TOY], ["forest", "random"], partial(ours, seeds=0), kept, "2 seeds", 1) == scores
    table = gap_table(scores, (10, 60)).splitlines()
    assert table[0] == "| space | sampler | 10 | 60 |"
    assert table[-2].startswith("| toy | `forest` |")
    assert table[-2].endswith("| 0.0000 |")


def test_kernel_tuners_strategies_run_on_what_ours_run_on(tmp_path: Path) -> None:
    pytest.importorskip("kernel_tuner", reason="kernel-tuner is not installed")
    from judges import judge, write

    failing = ReplaySpace("toy", (*TOY.measurements[:-1], Measurement(SPACE[-1], Outcome.CRASHED)))
    write(failing, tmp_path)
    ours, theirs = map(partial(judge, failing, seeds=2, folder=tmp_path), ("random", "random_sample"))
    assert [len(shares) for shares in (*ours.shares, *theirs.shares)] == [60] * 4
    assert (ours.gap(60), theirs.gap(60)) == (0, 0)
