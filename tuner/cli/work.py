"""`tuner work`: take jobs and tune them, one after the other."""

from __future__ import annotations

from contextlib import suppress
from random import uniform
from signal import SIGTERM
from time import sleep

import click

from tuner.cli import INTERRUPTED
from tuner.cli.effort import HOW_LONG, asked_effort
from tuner.cli.grid import Output, escape
from tuner.cli.interrupt import Interrupt
from tuner.cli.notes import TerminalProgress
from tuner.cli.on import on_option
from tuner.cli.ops import db_option, gpus_option, policy_option, shared_option
from tuner.cli.text import say
from tuner.cli.work_on import work_on
from tuner.db.database import Database
from tuner.db.queue import Job
from tuner.db.store import Store, default_database
from tuner.errors import NoDevice, StoreError, UsageError
from tuner.records import StoredAnswer
from tuner.report.text import count_text, speed_text, us_text
from tuner.tuning.effort import parse_duration
from tuner.tuning.events import Events
from tuner.tuning.gpu import MeasureOptions
from tuner.tuning.jobs import JobWorker
from tuner.tuning.lanes import chosen_gpus
from tuner.tuning.other_gpus import gpu_here
from tuner.tuning.place import Place, on_gpus, on_recorded


class _JobLines(TerminalProgress):
    """Prints a line on stdout for each job, and counts them."""

    jobs = 0

    def job_done(self, job: Job, stored: StoredAnswer) -> None:
        self.jobs += 1
        answer = stored.answer
        faster = "" if answer.speedup is None else f", {speed_text(answer.speedup, 'default')}"
        text = f"{answer.kind} {us_text(answer.latency_us)}{faster}, run {stored.run_id}"
        Output().write(escape(f"job {job.id}  done    {job.problem}  {text}"))

    def job_failed(self, job: Job, reason: str, final: bool) -> None:
        self.jobs += 1
        Output().write(escape(f"job {job.id}  {'failed' if final else 'again '}  {job.problem}  {reason}"))


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
    on: str | None,
    db: Database | None,
) -> int:
    options = MeasureOptions(gpu, replay, policy, shared)
    if on is not None:
        if once or missed:
            given = "--once" if once else "--missed"
            raise UsageError(f"--on does the jobs that are pending now, and takes no {given}; leave it out")
        return work_on(on, kernels, db or default_database(), options, _FORWARDED)
    store, progress = Store.open(db or default_database()), _JobLines(bars=False)
    place = _place(store, kernels, options, progress)
    ends = once or drain
    with Interrupt() as interrupt, suppress(KeyboardInterrupt):
        how_hard = asked_effort(effort=effort, trials=trials, budget=budget)
        worker = JobWorker(store, place, how_hard, missed=missed, lease_s=lease, events=progress, stop=interrupt.token)
        while not interrupt.token():
            try:
                worker.work(1 if once else None)
            except (NoDevice, StoreError) as error:
                if ends:
                    raise
                say(f"{error}; it is tried again in {poll:g} s.")
            if ends:
                break
            if not interrupt.token():
                sleep(poll * uniform(0.5, 1.5))  # workers that were started together do not ask together
    if interrupt.received is not None:
        return 0 if interrupt.received is SIGTERM and not ends else INTERRUPTED
    if not progress.jobs:
        say(_nothing_to_do(store, replay))
    return 1 if worker.failed else 0


def _nothing_to_do(store: Store, replay: str | None) -> str:
    """Return why a worker has done no job: none is pending, or none that it can do."""
    pending = store.overview.jobs().get("pending", 0)
    if not pending:
        return "No job is pending."
    can = "is for this card and these kernels" if replay is None else "has a recorded space to search"
    return f"{count_text(pending, 'job')} pending, and none of them {can}; tuner jobs lists them."


def _place(store: Store, kernels: tuple[str, ...], options: MeasureOptions, events: Events) -> Place:
    if options.replay is not None:
        if kernels:
            raise UsageError("--replay takes the problems that were recorded; name no kernels with it")
        return on_recorded(options.replay, options.policy)
    gpus = chosen_gpus(options.gpu)
    if not gpus:
        raise NoDevice(
            f"a worker tunes on a GPU, and there is no {gpu_here()}; --replay auto takes recorded spaces instead"
        )
    return on_gpus(store, kernels, gpus, options, events)


_LEASE = click.Option(
    ["--lease"],
    type=parse_duration,
    default="60s",
    show_default=True,
    metavar="TIME",
    help="Lease of a job, after which another worker may take it. A running worker renews it.",
)
_REPLAY = click.Option(
    ["--replay"], metavar="NAME|auto", help="Search recorded spaces instead of a GPU; auto takes that of each problem."
)
_FORWARDED: list[click.Parameter] = [_LEASE, *HOW_LONG, _REPLAY, policy_option, shared_option]
"""Options that a task of --on gets too."""

command = click.Command(
    "work",
    callback=_work,
    params=[
        click.Argument(["kernels"], metavar="[OP|FILE.py]...", nargs=-1),
        click.Option(["--once"], is_flag=True, help="End after one job, or if there is none."),
        click.Option(["--drain"], is_flag=True, help="End when there are no more jobs."),
        click.Option(["--missed"], is_flag=True, help="With no job pending, tune the most frequent missed queries."),
        click.Option(
            ["--poll"],
            type=parse_duration,
            default="5s",
            show_default=True,
            metavar="TIME",
            help="Polling interval while there is no job, varied at random by up to half.",
        ),
        _LEASE,
        *HOW_LONG,
        gpus_option,
        _REPLAY,
        policy_option,
        shared_option,
        on_option,
        db_option,
    ],
    help="Take jobs (POST /jobs) and tune them, one at a time on each GPU: the highest priority first, then the most "
    "misses.\n\n"
    "Without --once or --drain it runs until it is stopped. On SIGTERM or Ctrl-C it returns its job; the trials are "
    "kept.",
)
