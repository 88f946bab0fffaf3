"""A retune that is killed goes on: each answer of the plan has one finding, and nothing is done twice."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from dataclasses import replace
from pathlib import Path
from time import sleep

import pytest
from nights import after, before, only_slower

from tuner.db.store import Store
from tuner.kernels.spec import Problem
from tuner.recorded import RecordedSpace
from tuner.records import Measurement
from tuner.records.retune import Action, Cause, Finding, Retune
from tuner.retuning.retune import How, Retuning
from tuner.retuning.selection import Selection, Wanted, select_recorded
from tuner.suites.suite import Entry
from tuner.tuning.effort import Effort
from tuner.tuning.events import Events, StopToken
from tuner.tuning.gpu import MeasureOptions
from tuner.tuning.several import tune_target
from tuner.tuning.target import recorded_target

KILLS = 10
EFFORT = Effort.named("quick", sampler="random")
SPACES = [
    replace(before(), problem=before().signature.problem({"M": size, "N": 8192, "dtype": "fp32"}))
    for size in range(1000, 1012)
]
"""Spaces of twelve problems."""


class Told(Events):
    """Writes a byte to a pipe at each step, and takes a moment, so that a kill meets an answer in any state."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def search_started(self, problem: Problem | None, trials: int, known: int) -> None:
        self._step()

    def trial(self, problem: Problem | None, measurement: Measurement) -> None:
        sleep(0.001)

    def found(self, finding: Finding, done: int, total: int) -> None:
        self._step()

    def _step(self) -> None:
        os.write(self._pipe, b".")
        sleep(0.01)


def search(store: Store, space: RecordedSpace) -> None:
    entry = Entry("softmax", space.signature, space.problem)
    tune_target(entry, recorded_target(space, space.problem), EFFORT, store, Events(), StopToken())


def next_day(store: Store) -> list[RecordedSpace]:
    """Return the spaces of a night: as before, stale, moved, moved and stale, with one wrong config, or all wrong."""
    served = {stored.answer.problem.text: stored.answer.config for stored in store.answers()}

    def changed(number: int, space: RecordedSpace) -> RecordedSpace:
        config = served[space.problem.text]
        every = [measurement.config for measurement in space.measurements]
        return (
            space,
            after(space, changed={"triton": "3.7.1"}),
            only_slower(space, config, 1.2),
            only_slower(space, config, 1.2, {"triton": "3.7.1"}),
            after(space, wrong=[config]),
            after(space, wrong=every),
        )[number % 6]

    return [changed(number, space) for number, space in enumerate(SPACES)]


def begun(store: Store, selection: Selection) -> Retune:
    found = store.retunes.unfinished("cards", {})
    if found is not None:
        return found
    started = store.retunes.get(store.retunes.start("cards", {}, [each.stored.id for each in selection.chosen], {}))
    assert started is not None
    return started


def run(database: Path, spaces: list[RecordedSpace], events: Events) -> Retune:
    store = Store.open(database)
    selection = select_recorded(store, Wanted(), spaces)
    how = How(MeasureOptions(), EFFORT, events=events)
    found = Retuning(store, begun(store, selection), selection, how).run([None])
    store.close()
    return found


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_ten_kills_lose_nothing_and_repeat_nothing(tmp_path: Path) -> None:
    database, dice = tmp_path / "tuner.db", random.Random(7)
    store = Store.open(database)
    for space in SPACES:
        search(store, space)
    spaces = next_day(store)
    store.close()
    for _ in range(KILLS):
        reads, writes = os.pipe()
        child = os.fork()
        if child == 0:
            run(database, spaces, Told(writes))
            os._exit(0)
        os.close(writes)
        os.read(reads, 1)
        sleep(0.03 * dice.random())
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reads)
    retune = run(database, spaces, Events())
    assert (retune.id, retune.status, retune.left) == (1, "done", [])
    assert sorted(finding.answer_id for finding in retune.findings) == sorted(retune.planned)
    assert Counter((finding.cause, finding.action) for finding in retune.findings) == {
        (Cause.UNCHANGED, Action.KEPT): 2,
        (Cause.UNCHANGED, Action.CONFIRMED): 2,
        (Cause.ORDER, Action.REPLACED): 2,
        (Cause.SLOWER_CODE, Action.REPLACED): 2,
        (Cause.BROKEN, Action.REPLACED): 2,
        (Cause.BROKEN, Action.RETIRED): 2,
    }
    store = Store.open(database)
    new = [finding.new_answer_id for finding in retune.findings if finding.new_answer_id is not None]
    assert sorted(new) == [stored.id for stored in store.answers(forgotten=True)][len(SPACES) :]
    assert len(store.answers()) == len(SPACES) + len(new) - 2
    store.close()
    again = run(database, spaces, Events())
    assert {(finding.cause, finding.action) for finding in again.findings} == {(Cause.UNCHANGED, Action.KEPT)}
    assert len(again.findings) == len(SPACES) - 2
