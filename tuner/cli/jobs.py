"""`tuner jobs`: the queue of tuning jobs."""

from __future__ import annotations

from dataclasses import asdict

import click
from rich.markup import escape

from tuner.cli.grid import Output
from tuner.cli.ops import db_option, json_option, open_to_read
from tuner.cli.text import print_json
from tuner.cli.whole import Whole
from tuner.db.database import Database
from tuner.db.queue import Job

_COLOURS = {"running": "cyan", "pending": "", "done": "green", "failed": "red"}


def _jobs(limit: int, db: Database | None, as_json: bool) -> None:
    jobs = open_to_read(db).queue.jobs(limit)
    if as_json:
        print_json([asdict(job) for job in jobs])
        return
    console = Output()
    if not jobs:
        console.write("there are no jobs; POST /jobs of tuner serve adds one")
    for job in jobs:
        colour = _COLOURS.get(job.status, "")
        status = f"[{colour}]{job.status:7}[/]" if colour else f"{job.status:7}"
        console.write(f"{job.id:>5}  {status}  {job.priority:>5}  {escape(job.problem)}  on {job.device}{_more(job)}")


def _more(job: Job) -> str:
    if job.status == "running":
        return f", with {escape(job.worker or '')} until {(job.lease_until or '')[11:19]} UTC"
    if job.status == "done":
        return f", run {job.run_id}"
    tried = f", tried {job.tries} times" if job.tries > 1 else ", tried once" if job.tries else ""
    return tried + (f": {escape(job.error)}" if job.error else "")


command = click.Command(
    "jobs",
    callback=_jobs,
    params=[
        click.Option(
            ["--limit"],
            type=Whole(1, 1000),
            metavar="N",
            default=50,
            show_default=True,
            help="Number of unfinished jobs to list, and of finished ones.",
        ),
        db_option,
        json_option,
    ],
    help="List the jobs with number, status, priority and problem. Running and pending jobs come first.",
)
