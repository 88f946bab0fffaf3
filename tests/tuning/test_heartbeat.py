"""The state of a search while it runs: what the store says of it, and what is left of one that was killed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from databases import sqlite_store
from helpers import until
from scripted import DEFAULT, SPACE, ScriptedMeasurer
from sqlalchemy import update
from stored import HERE, PROBLEM, SCALE, outside

from tuner.db import schema
from tuner.db.store import Store, database_at
from tuner.records.progress import COMPARING, MEASURING, WAITING, InProgress, LiveRun, RunState
from tuner.tuning.heartbeat import Heartbeat, HeartbeatSettings

OFTEN = HeartbeatSettings(change_s=0.01, beat_s=0.05)


class Shown(ScriptedMeasurer):
    """Says what it works on."""

    waits = True

    @property
    def waits_for_device(self) -> bool:
        return self.waits

    @property
    def in_progress(self) -> InProgress:
        return InProgress(7, 2, None if self.waits else DEFAULT.text)


store = sqlite_store


def start(store: Store) -> int:
    return store.start_run(SCALE, PROBLEM, HERE, {"trials": 10})


def live(store: Store, run: int) -> LiveRun | None:
    return store.progress.of([run]).get(run)


def stage(store: Store, run: int) -> str | None:
    found = live(store, run)
    return None if found is None else found.state.stage


def test_it_says_what_compiles_is_measured_and_compared(store: Store) -> None:
    run, measurer = start(store), Shown()
    with Heartbeat(store, [run], measurer, OFTEN) as heartbeat:
        until(lambda: stage(store, run) == WAITING)
        measurer.waits = False
        until(lambda: stage(store, run) == MEASURING)
        found = live(store, run)
        assert found is not None
        assert found.state == RunState(MEASURING, 7, 2, DEFAULT.text)
        assert found.age_s < 5
        assert ":" in found.host
        heartbeat.round(5, 3)
        until(lambda: stage(store, run) == COMPARING)
        found = live(store, run)
        assert found is not None
        assert (found.state.rounds, found.state.contenders) == (5, 3)
    assert live(store, run) is None


def test_it_is_written_although_nothing_changes(store: Store) -> None:
    run = start(store)
    with Heartbeat(store, [run], ScriptedMeasurer(), OFTEN):
        until(lambda: live(store, run) is not None)
        first = live(store, run)
        assert first is not None
        until(lambda: (now := live(store, run)) is not None and now.at > first.at)


def test_a_search_of_less_than_a_second_writes_nothing(store: Store) -> None:
    run = start(store)
    with Heartbeat(store, [run], ScriptedMeasurer()):
        pass
    assert live(store, run) is None


def test_a_joint_search_has_several_runs(store: Store) -> None:
    runs = [start(store), start(store)]
    with Heartbeat(store, runs, ScriptedMeasurer(), OFTEN):
        until(lambda: store.progress.of([*runs, 99]).keys() == {*runs})
    assert store.progress.of(runs) == {}


def test_the_state_of_a_killed_search_ages(store: Store, tmp_path: Path) -> None:
    run = start(store)
    store.progress.write([run], "node-7:4711", RunState(MEASURING, 1, 0, SPACE[0].text))
    with outside(database_at(tmp_path / "tuner.db")).begin() as connection:
        connection.execute(update(schema.RunStateRow).values(at="2026-01-01T00:00:00.000+00:00"))
    found = live(store, run)
    assert found is not None
    assert found.age_s > 3600
    assert found.host == "node-7:4711"


@pytest.mark.parametrize("wrong", [{"stage": "asleep"}, {"compiling": -1}, {"rounds": "many"}, {"measuring": 3}])
def test_a_state_that_cannot_be_read_is_left_out(store: Store, tmp_path: Path, wrong: dict[str, Any]) -> None:
    run = start(store)
    store.progress.write([run], "host:1", RunState(MEASURING))
    with outside(database_at(tmp_path / "tuner.db")).begin() as connection:
        connection.execute(update(schema.RunStateRow).values(state=asdict(RunState(MEASURING)) | wrong))
    assert live(store, run) is None
    assert store.unreadable.counts == {"run_states": 1}
