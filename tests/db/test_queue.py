"""The queue: which worker gets which job, for how long, and how jobs end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from time import sleep

import pytest
from helpers import A100, H200
from stored import SCALE, address, answered, change, python, rows

from tuner.db.database import Database
from tuner.db.queue import Job, JobFilter, Queue
from tuner.db.rows import utc_now, utc_text
from tuner.db.settings import SETTINGS
from tuner.db.store import Store
from tuner.errors import UnknownName, UsageError
from tuner.kernels.spec import Problem

HERE = [JobFilter(H200.id, frozenset(["scale"]))]


@pytest.fixture
def queue(store: Store) -> Queue:
    return store.queue


def size(M: int) -> Problem:
    return SCALE.problem({"M": M})


def claim(queue: Queue, worker: str = "me", lease_s: float = 60, missed: bool = False) -> Job:
    job = queue.claim(worker, HERE, lease_s, missed=missed)
    assert job is not None
    return job


def test_a_job_is_asked_for_taken_and_done(store: Store, queue: Queue) -> None:
    added, new = queue.add(size(64), H200.id, 3)
    assert new
    assert (added.status, added.priority, added.tries, added.worker, added.ended_at) == ("pending", 3, 0, None, None)
    assert queue.has_work(HERE)
    job = claim(queue)
    assert (job.id, job.status, job.worker, job.tries) == (added.id, "running", "me", 1)
    assert not queue.has_work(HERE)
    assert queue.claim("you", HERE, 60) is None
    assert queue.add(size(64), H200.id) == (job, False)  # adding it again gives the same
    answered(store)
    assert queue.done(job, run_id=1)
    (ended,) = queue.jobs(10)
    assert (ended.status, ended.run_id, ended.error) == ("done", 1, None)
    assert ended.ended_at is not None
    again, new = queue.add(size(64), H200.id)
    assert (again.id, new) == (2, True)


def test_times_are_written_as_in_all_tables(queue: Queue) -> None:
    before = utc_text(datetime.now(UTC) - timedelta(milliseconds=1))
    job, _ = queue.add(size(64), H200.id)
    held = claim(queue, lease_s=90.5)
    assert before <= job.created_at <= utc_now()
    assert held.lease_until is not None
    lease = datetime.fromisoformat(held.lease_until)
    assert utc_text(lease) == held.lease_until
    assert abs((lease - datetime.now(UTC)).total_seconds() - 90.5) < 5


def test_the_most_urgent_comes_first_and_of_these_the_most_missed(store: Store, queue: Queue) -> None:
    for M, priority in ((1, 0), (2, 0), (3, -5), (4, 9), (5, 0)):
        queue.add(size(M), H200.id, priority)
    store.count_requests({("scale", size(5).text, H200.id): 2, ("scale", size(2).text, H200.id): 7})
    store.count_requests({("scale", size(1).text, A100.id): 1000})  # of another card
    queue.add(size(3), H200.id, 10)  # more urgent now
    queue.add(size(4), H200.id, -10)  # as urgent as before
    expected = [size(M).text for M in (3, 4, 2, 5, 1)]
    assert [job.problem for job in queue.jobs(10)] == expected
    assert [claim(queue).problem for _ in range(5)] == expected


def test_a_worker_takes_what_it_can_tune(queue: Queue) -> None:
    queue.add(size(1), A100.id, 5)
    queue.add(size(2), H200.id)
    there = [JobFilter(A100.id, frozenset(["scale"]), frozenset([size(2).text]))]
    for able in ([JobFilter(H200.id, frozenset(["other"]))], there, [JobFilter(H200.id, frozenset())]):
        assert not queue.has_work(able)
        assert queue.claim("me", able, 60) is None
    assert claim(queue).problem == size(2).text
    either = [*HERE, JobFilter(A100.id, frozenset(["scale"]), frozenset([size(1).text]))]
    job = queue.claim("me", either, 60)
    assert job is not None
    assert job.device == A100.id


def test_a_lease_that_is_not_renewed_lapses_and_its_worker_has_no_say(queue: Queue) -> None:
    queue.add(size(64), H200.id)
    lost = claim(queue, "dead", lease_s=0.2)
    kept = lost
    for _ in range(3):
        sleep(0.1)
        assert queue.renew(kept, 0.2)
    assert queue.claim("me", HERE, 60) is None
    sleep(0.3)
    assert queue.has_work(HERE)
    job = claim(queue)
    assert (job.id, job.worker, job.tries) == (lost.id, "me", 2)
    assert not queue.renew(lost, 60)
    assert not queue.done(lost, 1)
    assert not queue.failed(lost, "too late")
    assert not queue.release(lost)
    (still,) = queue.jobs(10)
    assert still == job


def test_a_job_that_fails_is_tried_again_after_its_equals_and_then_says_why(queue: Queue) -> None:
    queue.add(size(1), H200.id)
    queue.add(size(2), H200.id)
    first = claim(queue)
    assert queue.failed(first, "try 1")
    other = claim(queue)
    assert (first.problem, other.problem) == (size(1).text, size(2).text)
    for tries in range(2, SETTINGS.job_tries + 1):
        again = claim(queue)
        assert (again.id, again.tries, again.error) == (first.id, tries, f"try {tries - 1}")
        assert queue.failed(again, f"try {tries}")
    assert not queue.has_work(HERE)
    ended = queue.jobs(10)[-1]
    assert (ended.id, ended.status, ended.error) == (first.id, "failed", f"try {SETTINGS.job_tries}")


def test_being_told_to_end_is_no_try(queue: Queue) -> None:
    queue.add(size(1), H200.id)
    for _ in range(2 * SETTINGS.job_tries):
        job = claim(queue)
        assert job.tries == 1
        assert queue.release(job)


def test_a_job_that_kills_its_workers_is_given_up(queue: Queue) -> None:
    queue.add(size(1), H200.id)
    for number in range(SETTINGS.job_tries):
        claim(queue, f"worker-{number}", lease_s=0)
        sleep(0.002)
    assert queue.has_work(HERE)
    assert queue.claim("me", HERE, 60) is None
    (given_up,) = queue.jobs(10)
    assert given_up.status == "failed"
    assert given_up.error == "tried 3 times; the last worker, worker-2, ended without reporting a result"


def test_a_missed_problem_is_claimed_once_no_job_is_free(store: Store, queue: Queue, database: Database) -> None:
    store.count_requests({("scale", size(M).text, H200.id): M for M in (1, 2, 3)})
    store.count_requests({("scale", size(9).text, A100.id): 9, ("other", "other M=1", H200.id): 9})
    queue.add(size(1), H200.id, -5)
    assert claim(queue).problem == size(1).text
    assert not queue.has_work(HERE)
    assert queue.has_work(HERE, missed=True)
    third = claim(queue, missed=True)
    second = claim(queue, missed=True)
    assert (third.problem, second.problem, second.priority, second.tries) == (size(3).text, size(2).text, 0, 1)
    assert not queue.has_work(HERE, missed=True)
    answered(store)
    queue.done(third, 1)
    change(database, f"UPDATE jobs SET status = 'failed' WHERE id = {second.id}")
    assert not queue.has_work(HERE, missed=True)
    sleep(0.002)
    store.count_requests({("scale", size(3).text, H200.id): 1, ("scale", size(2).text, H200.id): 1})
    assert claim(queue, missed=True).problem == size(3).text  # its answer did not serve; what failed stays
    assert queue.claim("me", HERE, 60, missed=True) is None


WORKERS = """
import os, sys, time
import sqlalchemy.dialects.postgresql.psycopg, psycopg, sqlite3  # once, before it forks
from tuner.db.queue import JobFilter
from tuner.db.settings import SETTINGS
from tuner.db.store import Store

gate, word = os.pipe()
children = []
for number in range(4):
    child = os.fork()
    if child == 0:
        os.close(word)
        queue = Store.open(sys.argv[1]).queue
        os.read(gate, 1)
        able = [JobFilter("nvidia-h200", frozenset(["scale"]))]
        while job := queue.claim(f"worker-{number}", able, 60, missed=True):
            os.write(1, f"{job.id} {job.problem}\\n".encode())
            time.sleep(0.005)  # the work, while others claim
            if job.id % 3:
                assert queue.failed(job, "again") if job.tries == 1 else queue.renew(job, 60)
        os._exit(0)
    children.append(child)
os.close(word)  # the word to go
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
"""


def test_two_workers_never_have_the_same_job(store: Store, database: Database) -> None:
    """Four processes take twenty jobs and ten misses; two of three fail the first time."""
    for M in range(1, 21):
        store.queue.add(size(M), H200.id)
    store.count_requests({("scale", size(M).text, H200.id): 1 for M in range(16, 31)})
    printed, errors = python(WORKERS, address(database)).communicate()
    assert errors == ""
    taken = printed.splitlines()
    assert sorted(taken) == sorted(f"{id} {problem}" for id, problem in rows(database, TAKEN))
    assert len({line.partition(" ")[2] for line in taken}) == 30
    assert len({worker for (worker,) in rows(database, "SELECT worker FROM jobs")}) > 1


TAKEN = "SELECT id, problem FROM jobs UNION ALL SELECT id, problem FROM jobs WHERE tries = 2"


def test_a_failed_job_is_added_once_more(queue: Queue) -> None:
    queue.add(size(1), H200.id, 7)
    for _ in range(SETTINGS.job_tries):
        queue.failed(claim(queue), "no memory")
    (failed,) = queue.jobs(10)
    again, new = queue.retry(failed.id)
    assert (again.id, again.status, again.priority, again.tries, again.error, new) == (2, "pending", 7, 0, None, True)
    assert queue.retry(failed.id) == (again, False)
    with pytest.raises(UsageError, match="a job that failed is tried again, and job 2 is pending"):
        queue.retry(again.id)
    with pytest.raises(UnknownName, match="there is no job 3"):
        queue.retry(3)
