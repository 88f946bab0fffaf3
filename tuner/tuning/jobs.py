"""The job worker: takes jobs and tunes their problems, one after the other on each lane."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from socket import gethostname
from uuid import uuid4

from tuner.db.queue import Job
from tuner.db.settings import SETTINGS as STORE_SETTINGS
from tuner.db.store import Store
from tuner.errors import MeasureError, StoreError, TunerError
from tuner.lookup.table import LookupResult
from tuner.report.text import first_line
from tuner.tuning.effort import Effort
from tuner.tuning.events import Events, StopToken
from tuner.tuning.lanes import spread
from tuner.tuning.lease import Lease
from tuner.tuning.place import Place, Targets
from tuner.tuning.several import tune_target
from tuner.tuning.tuned import nothing_ran

_LONGEST_REASON = 300
"""Characters of a failure's reason that are stored with the job."""
_BROKEN = 3
"""Jobs in a row for which nothing could be measured, after which the machine takes no more."""


class JobWorker:
    """Claims jobs from the store's queue and tunes their problems.

    Args:
        stop: returns the job to the queue if set while it is tuned; the trials are kept.
        missed: tune the most frequent missed queries when no job is pending.
        lease_s: lease of a job, in seconds; it is renewed while the job is tuned.
    """

    def __init__(
        self,
        store: Store,
        place: Place,
        effort: Effort,
        *,
        missed: bool,
        lease_s: float,
        events: Events | None = None,
        stop: StopToken | None = None,
    ) -> None:
        self._store, self._place, self._effort = store, place, effort
        self._missed, self._lease_s = missed, lease_s
        self._events, self._stop = events or Events(), stop or StopToken()
        self._queue = store.queue
        self._name = f"{gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"
        self.failed: set[int] = set()
        """Ids of jobs whose last try here failed."""
        self._broken: set[int] = set()

    def work(self, most: int | None = None) -> None:
        """Do jobs, at most this number, until there are none or the stop token is set.

        Raises:
            MeasureError: nothing could be measured for several jobs in a row.
            StoreError: the database is unreachable; the lease of the job in hand lapses.
        """
        left = count() if most is None else iter(range(most))  # one number is taken for each job
        while self._queue.has_work(self._place.able, missed=self._missed):
            with self._place.lanes() as lanes:
                more = self._drain(lanes[:most], left)
            if not more or self._stop():
                return

    def _drain(self, lanes: Sequence[Targets], left: Iterator[int]) -> bool:
        """Do jobs on each lane until there are none; return whether `left` has a number for another job."""
        ended: list[bool] = []
        if len(lanes) == 1:
            ended.append(self._do_jobs(left, self._stop, lanes[0]))
        else:
            stop = StopToken(self._stop)  # set by an error in a lane, after which `work` may be called again
            with self._stop.watched():
                spread(lanes, [partial(self._do_jobs, left, stop)] * len(lanes), ended.append, stop)
        return all(ended)

    def _do_jobs(self, left: Iterator[int], stop: StopToken, targets: Targets) -> bool:
        """Do jobs on a lane until there are none; return whether it ended for want of jobs."""
        while next(left, None) is not None:
            if stop() or not self._next(targets, stop):
                return True
        return False

    def _next(self, targets: Targets, stop: StopToken) -> bool:
        """Do a job; return whether there was one."""
        with self._stop.watched():
            job = self._queue.claim(self._name, self._place.able, self._lease_s, missed=self._missed)
            if job is None:
                return False
            again = f", try {job.tries}" if job.tries > 1 else ""
            self._events.note(f"Job {job.id}: {job.problem} on {job.device}{again}")
            with Lease(self._queue, job, self._lease_s) as lease:
                self._do(job, targets, StopToken(lambda: stop() or lease.is_lost))
        return True

    def _do(self, job: Job, targets: Targets, stop: StopToken) -> None:
        try:
            found = self._tuned(job, targets, stop)
        except StoreError:
            raise  # the failure cannot be stored: the lease lapses
        except MeasureError as error:
            self._fail(job, _on_one_line(error))
            self._broken.add(job.id)
            if len(self._broken) >= _BROKEN:
                raise
        except TunerError as error:
            self._fail(job, _on_one_line(error))
        except KeyboardInterrupt:
            self._queue.release(job)
            raise
        except BaseException as error:
            self._fail(job, f"an unexpected {type(error).__name__}; the log of {self._name} has the traceback")
            raise
        else:
            self._end(job, found)

    def _tuned(self, job: Job, targets: Targets, stop: StopToken) -> LookupResult | None:
        """Return the answer, of a search or of the store; None if it was stopped."""
        entry = self._place.entry(job)
        tuned = tune_target(entry, targets(entry, job.device), self._effort, self._store, self._events, stop)
        if tuned.found is None and not stop():
            assert tuned.result is not None
            raise nothing_ran(tuned.result)
        return tuned.found

    def _end(self, job: Job, found: LookupResult | None) -> None:
        if found is None or found.stored is None:
            ours = self._queue.release(job)
            outcome = "is handed back; its trials are kept" if ours else "belongs to another worker now"
            self._events.note(f"Job {job.id} {outcome}.")
            return
        self.failed.discard(job.id)
        self._broken.clear()
        self._queue.done(job, found.stored.run_id)
        self._events.job_done(job, found.stored)

    def _fail(self, job: Job, reason: str) -> None:
        self.failed.add(job.id)
        self._queue.failed(job, reason)
        self._events.job_failed(job, reason, final=job.tries >= STORE_SETTINGS.job_tries)


def _on_one_line(error: TunerError) -> str:
    """Return the text of an error as it is stored with a job."""
    return first_line(" ".join(str(error).split()), _LONGEST_REASON)
