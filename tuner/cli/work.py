"""`tuner work`: tunes what was asked for, one problem after the other."""

from __future__ import annotations

import os
from contextlib import suppress
from signal import SIGTERM
from socket import gethostname
from time import sleep
from uuid import uuid4

import click

from tuner.cli import INTERRUPTED
from tuner.cli.effort import HOW_LONG, Effort, asked_effort
from tuner.cli.interrupt import Orders
from tuner.cli.ops import db_option, gpu_option, policy_option, shared_option
from tuner.cli.text import first_line, say, us_text
from tuner.db.database import Database
from tuner.db.queue import MOST_TRIES, Job
from tuner.db.store import Store, default_database
from tuner.errors import MeasureError, NoDevice, StoreError, TunerError, UsageError
from tuner.lookup.table import LookupResult
from tuner.measure import device
from tuner.tuning.lanes import Stop
from tuner.tuning.lease import Lease
from tuner.tuning.place import Place, Sources, on_card, on_recorded
from tuner.tuning.run import duration, nothing_ran, stored_answer

_LONGEST_REASON = 300
_BROKEN = 3
"""So many jobs in a row for which nothing could be measured: that is the machine, which shall take no more."""


class JobWorker:
    """Takes jobs and does them.

    Args:
        missed: whether what was looked up in vain is a job too.
        lease_s: how long a job is kept from others when this process dies.
    """

    def __init__(
        self, store: Store, place: Place, orders: Orders, effort: Effort, *, missed: bool, lease_s: float
    ) -> None:
        self._store, self._place, self._orders, self._effort = store, place, orders, effort
        self._missed, self._lease_s = missed, lease_s
        self._queue = store.queue
        self._name = f"{gethostname()}-{os.getpid()}-{uuid4().hex[:6]}"
        self.failed: set[int] = set()
        """Jobs whose last try here came to nothing."""
        self._broken: set[int] = set()

    def work(self, most: int | None) -> None:
        """Does jobs, so many at most, until there are none or an order to end is given."""
        done = 0
        while self._queue.waits(self._place.able, missed=self._missed):
            with self._place.sources() as sources:
                while self._next(sources):
                    done += 1
                    if done == most or self._orders.given is not None:
                        return

    def _next(self, sources: Sources) -> bool:
        """Does a job; False: there is none."""
        with self._orders.at_work():
            job = self._queue.claim(self._name, self._place.able, self._lease_s, missed=self._missed)
            if job is None:
                return False
            say(f"Job {job.id}: {job.problem} on {job.device}{f', try {job.tries}' if job.tries > 1 else ''}")
            with Lease(self._queue, job, self._lease_s) as lease:
                self._do(job, sources, lambda: self._orders.given is not None or lease.lost)
        return True

    def _do(self, job: Job, sources: Sources, stop: Stop) -> None:
        try:
            found = self._tuned(job, sources, stop)
        except StoreError:
            raise  # nobody can be told: the lease lapses
        except MeasureError as error:
            self._fail(job, first_line(str(error), _LONGEST_REASON))
            self._broken.add(job.id)
            if len(self._broken) >= _BROKEN:
                raise
        except TunerError as error:
            self._fail(job, first_line(str(error), _LONGEST_REASON))
        except KeyboardInterrupt:
            self._queue.hand_back(job)
            raise
        except BaseException as error:
            self._fail(job, f"a fault, {type(error).__name__}, of which the log of {self._name} tells more")
            raise
        else:
            self._end(job, found)

    def _tuned(self, job: Job, sources: Sources, stop: Stop) -> LookupResult | None:
        """The answer, found by a search or there already; None if it was stopped."""
        entry = self._place.entry(job)
        source = sources(entry, job.device)
        found = stored_answer(self._store, source, entry.problem)
        if self._effort.is_content_with(found):
            return found
        result = self._effort.search(entry, source, self._store, stop)
        if result.verdict is not None:
            return stored_answer(self._store, source, entry.problem)
        if stop():
            return None
        raise nothing_ran(result)

    def _end(self, job: Job, found: LookupResult | None) -> None:
        if found is None or found.stored is None:
            ours = self._queue.hand_back(job)
            say(f"Job {job.id} is {'handed back; its trials are kept' if ours else 'with another worker now'}.")
            return
        self.failed.discard(job.id)
        self._broken.clear()
        self._queue.done(job, found.stored.run_id)
        answer = found.stored.answer
        faster = "" if answer.speedup is None else f", {answer.speedup:.3f} x default"
        told = f"{answer.kind} {us_text(answer.latency_us)}{faster}, run {found.stored.run_id}"
        click.echo(f"job {job.id}  done    {job.problem}  {told}")

    def _fail(self, job: Job, why: str) -> None:
        self.failed.add(job.id)
        self._queue.failed(job, why)
        outcome = "failed" if job.tries >= MOST_TRIES else "again "
        click.echo(f"job {job.id}  {outcome}  {job.problem}  {why}")


def _work(
    kernels: tuple[str, ...],
    *,
    once: bool,
    drain: bool,
    missed: bool,
    poll: float,
    lease: float,
    effort: str,
    trials: int | None,
    budget: float | None,
    gpu: str,
    replay: str | None,
    policy: str,
    shared: bool,
    db: Database | None,
) -> int:
    store = Store.open(db or default_database())
    place = _place(store, kernels, gpu, replay, policy, shared)
    ends = once or drain
    with Orders() as orders, suppress(KeyboardInterrupt):
        how_hard = asked_effort(effort=effort, trials=trials, budget=budget)
        worker = JobWorker(store, place, orders, how_hard, missed=missed, lease_s=lease)
        while orders.given is None:
            try:
                worker.work(1 if once else None)
            except (NoDevice, StoreError) as error:
                if ends:
                    raise
                say(f"{error}; it is tried again in {poll:g} s.")
            if ends:
                break
            if orders.given is None:
                sleep(poll)
    if orders.given is not None:
        return 0 if orders.given is SIGTERM and not ends else INTERRUPTED
    return 1 if worker.failed else 0


def _place(store: Store, kernels: tuple[str, ...], gpu: str, replay: str | None, policy: str, shared: bool) -> Place:
    if replay is not None:
        if kernels:
            raise UsageError("--replay takes the problems that were recorded; name no kernels with it")
        return on_recorded(replay, policy)
    index = device.choose(gpu)
    if index is None:
        raise NoDevice("a worker tunes on a GPU, and there is none here; --replay auto takes recorded spaces instead")
    return on_card(store, kernels, index, policy, shared)


command = click.Command(
    "work",
    callback=_work,
    params=[
        click.Argument(["kernels"], metavar="[OP|FILE.py]...", nargs=-1),
        click.Option(["--once"], is_flag=True, help="End after one job, or if there is none."),
        click.Option(["--drain"], is_flag=True, help="End when there are no more jobs."),
        click.Option(["--missed"], is_flag=True, help="Then tune what was most often looked up in vain, too."),
        click.Option(
            ["--poll"], type=duration, default="5s", show_default=True, metavar="TIME", help="How often to look."
        ),
        click.Option(
            ["--lease"],
            type=duration,
            default="60s",
            show_default=True,
            metavar="TIME",
            help="How long a job stays with a worker that died; one that lives renews it.",
        ),
        *HOW_LONG,
        gpu_option,
        click.Option(["--replay"], metavar="NAME|auto", help="Search recorded spaces instead of a GPU."),
        policy_option,
        shared_option,
        db_option,
    ],
    help="Tune what was asked for (POST /jobs) on a GPU: the highest priority first, of these the most missed.\n\n"
    "Without --once or --drain it goes on for ever; SIGTERM and Ctrl-C hand the job back, and its trials are kept.",
)
