"""Counts and outlines of a store: jobs by status, runs without an end, retunes with the numbers of their findings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from helpers import A100, H200
from retuned import stored_retune
from stored import PROBLEM, SCALE, answered, change, measured, started

from tuner.db.database import Database
from tuner.db.store import Store
from tuner.records.retune import Action, Cause


class TestOverview:
    def test_an_empty_store_has_nothing(self, store: Store) -> None:
        overview = store.overview
        assert (overview.jobs(), overview.missed_problems()) == ({}, 0)
        assert overview.unfinished_runs(5) == []
        assert overview.retunes(5) == []

    def test_jobs_are_counted_by_status(self, store: Store) -> None:
        for size in (1, 2, 3):
            store.queue.add(SCALE.problem({"M": size}), H200.id)
        job, _ = store.queue.add(SCALE.problem({"M": 1}), H200.id, priority=9)
        assert job.priority == 9
        assert store.overview.jobs() == {"pending": 3}

    def test_missed_problems_are_counted_and_filtered(self, store: Store) -> None:
        texts = [SCALE.problem({"M": size}).text for size in (1, 2)]
        missed = {("scale", texts[0], H200.id): 5, ("scale", texts[1], H200.id): 7, ("scale", texts[1], A100.id): 9}
        store.count_requests({**missed, ("other", "other M=1 dtype=bf16", A100.id): 1})
        assert store.overview.missed_problems() == 4
        assert [row["count"] for row in store.requests(9, op="scale", device=H200.id)] == [7, 5]
        assert [row["count"] for row in store.requests(9, device=A100.id)] == [9, 1]

    def test_a_run_without_an_end_has_the_time_of_its_last_trial(self, store: Store) -> None:
        answered(store)
        silent, measuring = started(store), started(store)
        store.add_trial(measuring, measured())
        newest, older = store.overview.unfinished_runs(5)
        assert (newest.run.id, older.run.id) == (measuring, silent)
        assert newest.run.trials == 1
        assert newest.measured_at is not None
        assert newest.active_at >= newest.run.started_at
        assert older.measured_at is None
        assert not older.is_silent(datetime.now(UTC))
        assert older.is_silent(datetime.now(UTC) + timedelta(minutes=16))
        assert [each.run.id for each in store.overview.unfinished_runs(1)] == [measuring]

    def test_a_retune_has_the_numbers_of_its_findings(self, store: Store) -> None:
        first, second = stored_retune(store), stored_retune(store, planned=8)
        assert [each.id for each in store.overview.retunes(5)] == [second, first]
        assert [each.id for each in store.overview.retunes(5, before=second)] == [first]
        assert store.overview.retunes(5, device=A100.id) == []
        (outline,) = store.overview.retunes(1)
        assert (outline.device, outline.status, outline.planned) == (H200.id, "done", 8)
        assert outline.causes == {
            Cause.UNCHANGED: 2, Cause.SLOWER_CODE: 1, Cause.ORDER: 1, Cause.BROKEN: 1, Cause.NOT_MEASURED: 1
        }  # fmt: skip
        assert outline.actions == {Action.KEPT: 3, Action.REPLACED: 1, Action.RETIRED: 1, Action.CONFIRMED: 1}
        assert (outline.measured, outline.worse, outline.replaced) == (5, 2, 1)

    def test_a_retune_that_cannot_be_read_is_left_out(self, store: Store, database: Database) -> None:
        first, second, third = (stored_retune(store) for _ in range(3))
        change(database, f"UPDATE retunes SET planned = '3' WHERE id = {second}")
        change(database, f"UPDATE findings SET cause = 'boredom' WHERE retune_id = {third} AND cause = 'broken'")
        assert [each.id for each in store.overview.retunes(5)] == [first]
        assert store.unreadable.counts == {"retunes": 2}

    def test_answers_between_are_of_one_op_and_device_if_they_are_given(self, store: Store) -> None:
        first, second = answered(store), answered(store)
        given = {"op": "scale", "device": H200.id}
        assert [each.id for each in store.answers_between(0, second, **given)] == [first, second]
        assert [each.id for each in store.answers_between(0, first, op="scale")] == [first]
        assert store.answers_between(0, second, op="other") == store.answers_between(0, second, device=A100.id) == []
        assert PROBLEM.op == "scale"
