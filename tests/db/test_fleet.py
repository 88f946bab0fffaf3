"""Many writers of one database at once: what must hold although none waits for all others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier, Event
from time import monotonic, sleep
from typing import TypeVar

import postgres
import pytest
from faults import CAPTURED
from helpers import H200
from stored import COMPARISON, HERE, PROBLEM, SCALE, SECONDS, answer, answered, measured, rows, started

from tuner.db import schema
from tuner.db.database import Database
from tuner.db.postgresql import PostgreSQL
from tuner.db.queue import Job, JobFilter
from tuner.db.rows import answer_values, utc_now
from tuner.db.settings import ConnectionSettings
from tuner.db.store import Store, database_at
from tuner.db.writes import insert_row
from tuner.errors import StoreError
from tuner.kernels.spec import Problem

ABLE = [JobFilter(H200.id, frozenset(["scale"]))]
T = TypeVar("T")


def size(M: int) -> Problem:
    return SCALE.problem({"M": M})


def at_once(work: Callable[[int], T], threads: int = 8) -> list[T]:
    """Return what the work returns in each of several threads, which start at one moment."""
    barrier = Barrier(threads)

    def started_together(number: int) -> T:
        barrier.wait()
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return [*pool.map(started_together, range(threads))]


@pytest.fixture
def served(cluster: postgres.Cluster) -> Iterator[Store]:
    """Return the store of a PostgreSQL."""
    Store.upgrade(cluster.empty())
    store = Store.open(cluster.url)
    yield store
    store.close()


class TestOrder:
    def test_an_answer_waits_for_one_with_a_lower_id_and_nothing_else_waits(self, served: Store) -> None:
        run, other = started(served), started(served)
        served.queue.add(size(1), H200.id)
        with ThreadPoolExecutor(1) as pool:
            with served._write_in_order() as connection:
                first = insert_row(connection, schema.AnswerRow, **answer_values(run, answer(), HERE, utc_now()))
                second = pool.submit(served.add_answer, other, answer(), HERE, "trials", SECONDS, COMPARISON)
                sleep(0.1)
                since = monotonic()
                served.add_trial(run, measured())
                job = served.queue.claim("me", ABLE, 60)
                assert job is not None
                assert served.queue.renew(job, 60)
                served.count_requests({("scale", size(1).text, H200.id): 1})
                started(served, size(2))
                assert monotonic() - since < 2
                assert not second.done()
                assert served.tip().answer == 0
            assert (first, second.result()) == (1, 2)

    def test_a_host_that_is_suspended_in_its_turn_loses_it(self, served: Store) -> None:
        """The server ends its transaction after some time, and the others go on."""
        database = served._database
        assert isinstance(database, PostgreSQL)
        suspended = Store.open(replace(database, wait=ConnectionSettings(idle_s=0.2)))
        run = started(served)

        def write() -> None:
            with suspended._write_in_order():
                served.add_answer(run, answer(), HERE, "trials", SECONDS, COMPARISON)

        with pytest.raises(StoreError, match="idle-in-transaction"):
            write()
        assert [stored.id for stored in served.answers()] == [1]
        assert answered(suspended) == 2  # over a new connection
        suspended.close()

    def test_a_row_that_is_read_by_id_is_written_in_order(self, store: Store) -> None:
        run = started(store)
        with store._write() as connection, pytest.raises(AssertionError, match="answers are read by id"):
            insert_row(connection, schema.AnswerRow, **answer_values(run, answer(), HERE, utc_now()))

    def test_a_reader_by_id_skips_no_answer(self, store: Store) -> None:
        over, seen = Event(), list[int]()

        def read() -> None:
            tip, is_last = 0, False
            while not is_last:
                is_last = over.is_set()
                newest = store.tip().answer
                seen.extend(stored.id for stored in store.answers_between(tip, newest))
                tip = newest

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read)
            written = at_once(lambda number: [answered(store, answer(size(number + 1))) for _ in range(8)], 4)
            over.set()
            reading.result()
        assert sorted(seen) == sorted(id for ids in written for id in ids)
        assert len(seen) == 32


class TestSharedRows:
    def test_one_of_several_writers_makes_a_row_that_all_point_to(self, store: Store, database: Database) -> None:
        runs = at_once(lambda number: [started(store, size(M)) for M in range(1, 6)])
        assert len({run for several in runs for run in several}) == 40
        for table, count in (("kernels", 1), ("problems", 5), ("devices", 1), ("environments", 1)):
            assert rows(database, f"SELECT count(*) FROM {table}") == [(count,)]

    def test_a_row_that_another_is_writing_is_waited_for(self, served: Store) -> None:
        with ThreadPoolExecutor(1) as pool:
            with served._write() as connection:
                values = {"op": PROBLEM.op, "text": PROBLEM.text, "parameters": PROBLEM.values}
                number = insert_row(connection, schema.ProblemRow, **values)
                run = pool.submit(started, served)
                sleep(0.1)
                assert not run.done()
            found = served.run(run.result())
        assert found is not None
        assert served.rows(schema.ProblemRow, 10)[0]["id"] == number

    def test_calls_and_misses_are_all_counted(self, store: Store) -> None:
        misses = [("scale", size(M).text, H200.id) for M in range(1, 21)]

        def write(number: int) -> None:
            for _ in range(3):
                store.count_requests(dict.fromkeys(misses if number % 2 else reversed(misses), 1))
                store.captured.add(CAPTURED, H200)
                store.engine_files.put("triton", "key", str(number))

        at_once(write)
        assert {row["count"] for row in store.requests(100)} == {24}
        assert [stored.count for stored in store.captured.all()] == [24]
        assert len(store.engine_files.newest("triton", 10)) == 1


class TestJobs:
    def test_a_problem_gets_one_job(self, store: Store) -> None:
        added = at_once(lambda number: store.queue.add(PROBLEM, H200.id, number))
        assert [new for _, new in added].count(True) == 1
        (job,) = store.queue.jobs(10)
        assert job.priority == 7

    @pytest.mark.parametrize("missed", [False, True])
    def test_eight_claim_each_job_once(self, store: Store, missed: bool) -> None:
        if missed:
            store.count_requests({("scale", size(M).text, H200.id): M for M in range(1, 25)})
        else:
            for M in range(1, 25):
                store.queue.add(size(M), H200.id)

        def claimed(number: int) -> Sequence[Job]:
            return [*iter(lambda: store.queue.claim(f"worker-{number}", ABLE, 60, missed=missed), None)]

        jobs = [job for several in at_once(claimed) for job in several]
        assert sorted(job.problem for job in jobs) == sorted(size(M).text for M in range(1, 25))

    def test_a_claim_does_not_wait_for_another(self, served: Store) -> None:
        first, _ = served.queue.add(size(1), H200.id, 1)
        second, _ = served.queue.add(size(2), H200.id)
        with served._write() as connection:
            connection.exec_driver_sql(f"UPDATE jobs SET status = 'running' WHERE id = {first.id}")
            since = monotonic()
            job = served.queue.claim("me", ABLE, 60)
            assert job is not None
            assert job.id == second.id
            assert served.queue.claim("me", ABLE, 60) is None
            assert monotonic() - since < 2

    def test_a_worker_that_comes_back_late_leaves_the_job_to_its_successor(self, store: Store) -> None:
        """Both have one name, as two lanes of a process do."""
        store.queue.add(PROBLEM, H200.id)
        late = store.queue.claim("me", ABLE, 0)
        sleep(0.005)
        again = store.queue.claim("me", ABLE, 60)
        assert late is not None
        assert again is not None
        assert (late.id, late.tries, again.tries) == (again.id, 1, 2)
        assert not store.queue.renew(late, 60)
        assert not store.queue.release(late)
        assert not store.queue.failed(late, "too late")
        run = started(store)
        store.add_trial(run, measured())
        newer = started(store)
        store.add_trial(newer, measured(9.0))
        assert not store.queue.done(late, run)
        (job,) = store.queue.jobs(10)
        assert job == again
        assert store.queue.done(again, newer)
        counts = rows(store._database, "SELECT run_id, latency_us FROM trials ORDER BY run_id")
        assert counts == [(run, 10.0), (newer, 9.0)]  # what each has measured

    def test_a_job_whose_worker_died_is_claimed_in_its_place(self, store: Store) -> None:
        for M in (1, 2):
            store.queue.add(size(M), H200.id, 1)
        dead = store.queue.claim("dead", ABLE, 0)
        sleep(0.005)
        assert dead is not None
        assert store.queue.has_work(ABLE)
        claimed = [store.queue.claim("me", ABLE, 60) for _ in range(3)]
        assert [job and job.problem for job in claimed] == [size(2).text, size(1).text, None]


def test_pgbouncer_in_transaction_mode_serves(cluster: postgres.Cluster) -> None:
    """Transactions of several clients share two server processes, so none leaves anything in one."""
    Store.upgrade(cluster.empty())
    with postgres.pooled(cluster) as url:
        Store.upgrade(url)
        stores = [Store.open(url) for _ in range(4)]

        def work(number: int) -> list[int]:
            store, ids = stores[number % 4], []
            store.queue.add(size(number + 1), H200.id)
            while (job := store.queue.claim(f"worker-{number}", ABLE, 60)) is not None:
                problem = size(int(job.problem.split()[1].removeprefix("M=")))
                run = started(store, problem)
                for block in (64, 128, 256):
                    for _ in range(4):  # more often than psycopg waits before it prepares a statement
                        store.add_trial(run, measured(block=block))
                ids.append(store.add_answer(run, answer(problem), HERE, "trials", SECONDS, COMPARISON))
                assert store.queue.renew(job, 60)
                assert store.queue.done(job, run)
            return ids

        ids = [id for several in at_once(work) for id in several]
        assert len(stores[0].answers()) == len({*ids}) == len(ids)
        assert rows(database_at(cluster.url), "SELECT count(*) FROM trials") == [(3 * len(ids),)]
        assert rows(database_at(cluster.url), "SHOW lock_timeout") == [("0",)]
        for store in stores:
            store.close()
