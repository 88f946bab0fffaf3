"""Counts of what is stored, and its removal, over SQLite and PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from helpers import A100
from stored import COMPARISON, HERE, SCALE, SECONDS, SETTINGS, answer, answered, change, measured, rows, started

from tuner.db.database import Database
from tuner.db.revisions import HEAD
from tuner.db.store import Store
from tuner.db.upkeep import Counts, Info, Pruned
from tuner.records import Provenance

LONG_AGO = "2020-01-01T00:00:00.000+00:00"
MONTHS = timedelta(days=90)
OTHER = replace(HERE, source="another-source")


def searched(store: Store, provenance: Provenance = HERE, *, known: int = 0, gives: bool = True) -> int:
    """Store a run of two trials and a comparison, with an answer or without, and return its id."""
    run = store.start_run(SCALE, answer().problem, provenance, SETTINGS | {"known": known})
    store.add_trial(run, measured(block=64))
    store.add_trial(run, measured(block=128))
    if gives:
        store.add_answer(run, answer(), provenance, "trials", SECONDS, COMPARISON)
    else:
        store.end_run(run, "interrupted", "interrupted", SECONDS, COMPARISON)
    return run


def age(database: Database) -> None:
    """Set all dates of runs and trials to long ago."""
    change(database, f"UPDATE runs SET started_at = '{LONG_AGO}', ended_at = '{LONG_AGO}' WHERE ended_at IS NOT NULL")
    change(database, f"UPDATE runs SET started_at = '{LONG_AGO}'")
    change(database, f"UPDATE trials SET ended_at = '{LONG_AGO}'")


def runs_with(database: Database, table: str) -> list[int]:
    return [run for (run,) in rows(database, f"SELECT DISTINCT run_id FROM {table} ORDER BY run_id")]


class TestPrune:
    def test_runs_that_gave_no_answer_lose_what_they_measured(self, store: Store, database: Database) -> None:
        kept, gone = searched(store), searched(store, OTHER, gives=False)
        age(database)
        assert store.prune(MONTHS, dry_run=True) == Pruned(runs=1, trials=2, rounds=2)
        assert runs_with(database, "trials") == [kept, gone]
        assert store.prune(MONTHS) == Pruned(runs=1, trials=2, rounds=2)
        assert runs_with(database, "trials") == runs_with(database, "rounds") == [kept]
        assert store.prune(MONTHS) == Pruned(0, 0, 0)
        assert [run.id for run in store.runs(5)] == [gone, kept]
        assert len(store.answers()) == 1

    def test_younger_ones_stay(self, store: Store, database: Database) -> None:
        searched(store, gives=False)
        assert store.prune(timedelta(days=1)) == Pruned(0, 0, 0)

    def test_one_that_was_killed_is_as_old_as_its_last_trial(self, store: Store, database: Database) -> None:
        run = started(store)
        store.add_trial(run, measured())
        change(database, f"UPDATE runs SET started_at = '{LONG_AGO}'")
        assert store.prune(MONTHS) == Pruned(0, 0, 0)
        age(database)
        assert store.prune(MONTHS) == Pruned(runs=1, trials=1, rounds=0)

    def test_answers_that_serve_no_longer_keep_nothing(self, store: Store, database: Database) -> None:
        superseded, serves = searched(store), searched(store)
        age(database)
        assert store.prune(MONTHS) == Pruned(runs=1, trials=2, rounds=2)
        assert runs_with(database, "trials") == [serves]
        assert [stored.run_id for stored in store.answers()] == [superseded, serves]

    def test_a_later_replay_takes_no_measured_answers_place(self, store: Store, database: Database) -> None:
        searched(store)
        searched(store, replace(HERE, recorded="some-space"))
        age(database)
        assert store.prune(MONTHS) == Pruned(0, 0, 0)

    def test_what_a_rollback_restores_stays(self, store: Store, database: Database) -> None:
        restored, replaced = searched(store), searched(store)
        store.roll_back(next(stored.id for stored in store.answers() if stored.run_id == restored))
        age(database)
        store.prune(MONTHS)
        assert runs_with(database, "trials") == [restored, replaced]

    def test_trials_that_a_serving_run_took_over_stay(self, store: Store, database: Database) -> None:
        """`tuner explain` shows them, and the next search starts from them."""
        elsewhere = searched(store, OTHER, gives=False)
        taken_over = searched(store, gives=False)
        serves = searched(store, known=2)
        after = searched(store, gives=False)
        age(database)
        before = store.known_to(next(run for run in store.runs(9) if run.id == serves))
        assert store.prune(MONTHS) == Pruned(runs=2, trials=4, rounds=4)
        assert runs_with(database, "trials") == [taken_over, serves]
        assert {elsewhere, after}.isdisjoint(runs_with(database, "rounds"))
        assert store.known_to(next(run for run in store.runs(9) if run.id == serves)) == before

    def test_a_thousand_runs_go_at_once(self, store: Store, database: Database) -> None:
        started(store)
        columns = "kernel_id, problem_id, device_id, environment_id, policy, settings, status, tuner, started_at"
        for _ in range(10):
            change(database, f"INSERT INTO runs ({columns}) SELECT {columns} FROM runs")
        change(
            database,
            "INSERT INTO rounds (run_id, number, latencies) SELECT id, 0, '{}' FROM runs",
        )
        age(database)
        assert store.prune(MONTHS) == Pruned(runs=1024, trials=0, rounds=1024)


class TestInfo:
    def test_it_counts_by_device(self, store: Store, database: Database) -> None:
        searched(store)
        searched(store, gives=False)
        answered(store, provenance=replace(HERE, device=A100))
        info = Store.info(database)
        h200, a100 = HERE.device.id, A100.id
        assert info.devices == {a100: Counts(1, 0, 1), h200: Counts(2, 4, 1)}
        assert list(info.devices) == [a100, h200]
        assert info.total == Counts(3, 4, 2)
        assert (info.database, info.schema) == (str(database), HEAD)
        assert info.engine.partition(" ")[0] in ("sqlite", "postgresql")
        assert info.bytes > 50_000

    def test_it_describes_any_schema(self, store: Store, database: Database) -> None:
        answered(store)
        change(database, "ALTER TABLE answers DROP COLUMN marks")
        for revision in ("0001", "9999"):
            change(database, f"UPDATE alembic_version SET version_num = '{revision}'")
            info = Store.info(database)
            assert (info.schema, info.total.answers) == (revision, 1)

    def test_it_describes_a_database_without_tables(self, nothing: Database) -> None:
        change(nothing, "CREATE TABLE x (y INTEGER)")
        change(nothing, "DROP TABLE x")
        info = Store.info(nothing)
        assert info == Info(str(nothing), info.engine, None, info.bytes, Counts(), {})
