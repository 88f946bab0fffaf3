"""A kernel whose reference was mended: what was found by the older one, right or wrong, is no answer and not known."""

from __future__ import annotations

from dataclasses import replace

import pytest
from databases import sqlite_store
from helpers import H200
from scripted import BEST, DEFAULT, SPACE, TOY, ScriptedMeasurer, only

from tuner.db.store import Store
from tuner.records import COLD, Environment, Outcome, Provenance
from tuner.suites.suite import Entry
from tuner.tuning.effort import Effort
from tuner.tuning.events import Events, StopToken
from tuner.tuning.run import stored_answer
from tuner.tuning.several import tune_target
from tuner.tuning.target import Target

BEFORE = Provenance(H200, Environment("3.6.0", "12.8", "2.11.0", "580.1"), "9f2c", COLD.text, definition="4d2c")
MENDED = replace(BEFORE, definition="5e3d")
ENTRY = Entry("toy", TOY, TOY.problem({"N": 64}))


store = sqlite_store


def target(made: Provenance, measurer: ScriptedMeasurer) -> Target:
    return Target(SPACE, DEFAULT, made, COLD, flops=0, bytes=1, measurer=lambda: measurer)


def tune(store: Store, made: Provenance, measurer: ScriptedMeasurer) -> object:
    outcome = tune_target(ENTRY, target(made, measurer), Effort.named("exhaustive"), store, Events(), StopToken())
    assert outcome.answer is not None
    return outcome.answer.config


def test_a_config_that_an_older_reference_found_wrong_is_checked_again(store: Store) -> None:
    assert tune(store, BEFORE, ScriptedMeasurer(outcome=only(BEST, Outcome.WRONG_RESULT))) != BEST
    mended = ScriptedMeasurer()
    assert tune(store, MENDED, mended) == BEST
    assert set(mended.submitted) == set(SPACE)


def test_an_answer_that_an_older_reference_let_pass_is_stale_and_says_so(store: Store) -> None:
    assert tune(store, BEFORE, ScriptedMeasurer()) == BEST
    found = stored_answer(store, target(MENDED, ScriptedMeasurer()), ENTRY)
    assert (found.match, found.stale) == ("stale", ("definition: tuned with 4d2c, the query has 5e3d",))
    assert tune(store, MENDED, ScriptedMeasurer(outcome=only(BEST, Outcome.WRONG_RESULT))) != BEST
    assert stored_answer(store, target(BEFORE, ScriptedMeasurer()), ENTRY).match == "exact"


@pytest.mark.parametrize(("stored", "asked"), [("", "5e3d"), ("4d2c", "")])
def test_one_that_is_not_known_is_not_compared(store: Store, stored: str, asked: str) -> None:
    tune(store, replace(BEFORE, definition=stored), ScriptedMeasurer())
    again = ScriptedMeasurer()
    assert tune(store, replace(BEFORE, definition=asked), again) == BEST
    assert again.submitted == []
