"""What a search leaves in the store: answers of a card that was measured alone are not replaced by others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import H200
from scripted import BEST, DEFAULT, SPACE, TOY, ScriptedMeasurer

from tuner.cli.search import run_search, stored_answer
from tuner.cli.source import Source
from tuner.db.store import Store
from tuner.errors import NoDevice
from tuner.kernels.spec import Config
from tuner.measure.measurer import Measurer
from tuner.records import COLD, CardState, Duel, Environment, Measurement, Provenance
from tuner.search import Budget

PROBLEM = TOY.problem({"N": 64})
PROVENANCE = Provenance(H200, Environment("3.6.0", "12.8", "2.11.0", "580.1"), "9f2c", COLD.text)


class Beside(ScriptedMeasurer):
    """Measures on a card that others use in every round."""

    def duel(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Duel | Measurement:
        duel = super().duel(configs, rounds, seconds, seed)
        assert isinstance(duel, Duel)
        return replace(duel, states=(CardState(foreign=(4711,)),) * len(duel.rounds))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    store = Store.open(tmp_path / "tuner.db")
    yield store
    store.close()


def source(measurer: type[ScriptedMeasurer] = ScriptedMeasurer) -> Source:
    return Source(SPACE, DEFAULT, PROVENANCE, COLD, flops=0, bytes=1, measurer=measurer)


def searched(store: Store, measurer: type[ScriptedMeasurer]) -> tuple[str, ...]:
    """Searches anew; the marks of the answer that serves then."""
    run_search(source(measurer), store, TOY, PROBLEM, sampler="grid", seed=0, budget=Budget(), reuse=lambda m: False)
    found = stored_answer(store, source(), PROBLEM).stored
    assert found is not None
    assert found.answer.config == BEST
    return found.answer.marks


def test_d07_a_contended_answer_does_not_replace_a_clean_one(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert searched(store, ScriptedMeasurer) == ()
    assert searched(store, Beside) == ()
    assert "there is an answer from when nobody did: it stays" in capsys.readouterr().err
    assert [(run.status, run.stopped) for run in store.runs(2)] == [("done", "contended"), ("done", "exhausted")]
    assert len(store.answers()) == 1


def test_d07_it_is_kept_where_there_is_no_better_and_a_clean_one_replaces_it(store: Store) -> None:
    assert searched(store, Beside) == ("contended",)
    assert searched(store, Beside) == ("contended",)
    assert len(store.answers()) == 2
    assert searched(store, ScriptedMeasurer) == ()


def test_a_search_that_may_not_begin_is_no_run(store: Store) -> None:
    def refused() -> Measurer:
        raise NoDevice("GPU 0 is in use")

    with pytest.raises(NoDevice, match="in use"):
        run_search(replace(source(), measurer=refused), store, TOY, PROBLEM, sampler="grid", seed=0, budget=Budget())
    assert store.runs(5) == []
