"""`tuner work --on`: each pending job as a task of a fleet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click

from tuner.cli import INTERRUPTED
from tuner.cli.grid import Output, escape
from tuner.cli.on import environment_of, given_words, kernel_word, run_tasks, scheduler_on
from tuner.cli.text import say
from tuner.db.database import Database
from tuner.db.queue import Job
from tuner.db.store import Store
from tuner.fleet.task import Ended, Task
from tuner.report.text import first_line
from tuner.tuning.gpu import MeasureOptions

_MOST = 10_000
"""Number of jobs of one round."""
_WIDTH = len("pending")
"""Characters of the longest status of a job."""


def work_on(
    on: str,
    kernels: Sequence[str],
    database: Database,
    options: MeasureOptions,
    forwarded: Sequence[click.Parameter],
) -> int:
    """Do the jobs that are pending now with a scheduler, and print a line for each.

    A task takes the next job when it begins. A job that failed and may be tried again is done in a further round.

    Args:
        forwarded: options that the command of each task gets if they are given to this one.

    Returns:
        1 if a job failed or a task could not take one.

    Raises:
        TunerError: as `scheduler_on` and `run_tasks`.
    """
    scheduler, store = scheduler_on(on, database, options.gpu, options.replay), Store.open(database)
    words = ("work", *map(kernel_word, kernels), "--once", *given_words(forwarded))
    environment, errors = environment_of(database), list[str]()
    before, jobs, interrupted = set[tuple[int, int]](), dict[int, Job](), False

    def on_end(ended: Ended) -> str:
        if ended.code not in (0, 1):  # 1: its job failed, as the store says
            errors.append(ended.error or f"a task ended with code {ended.code}")
            return f"{ended.task.name}: failed, {first_line(errors[-1])}"
        return f"{ended.task.name}: {ended.seconds:.1f} s"

    while (pending := {(job.id, job.tries) for job in _jobs(store) if job.status == "pending"}) - before:
        before |= pending
        numbers = range(1, len(pending) + 1)
        tasks = [Task(f"job {number} of {len(pending)}", words, environment) for number in numbers]
        interrupted = run_tasks(scheduler, tasks, on_end)
        if interrupted:
            break
    ids = {number for number, _ in before}
    jobs = {job.id: job for job in _jobs(store) if job.id in ids}
    if not before:
        say("No job is pending.")
    for number in sorted(jobs):
        _print(jobs[number])
    failed = any(job.status == "failed" for job in jobs.values())
    return INTERRUPTED if interrupted else 1 if failed or errors else 0


def _jobs(store: Store) -> Iterable[Job]:
    return store.queue.jobs(_MOST)


def _print(job: Job) -> None:
    detail = f"run {job.run_id}" if job.run_id is not None else job.error or ""
    Output().write(escape(f"job {job.id}  {job.status:{_WIDTH}}  {job.problem}  {detail}".rstrip()))
