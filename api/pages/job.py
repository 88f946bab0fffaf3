"""The page of one job."""

from __future__ import annotations

from tuner.api.pages.fleet import address_of_job
from tuner.api.pages.links import Links
from tuner.api.pages.run_facts import error_line, error_text
from tuner.api.pages.site import Content, Query, Site
from tuner.db.job import Job
from tuner.db.settings import SETTINGS as STORE_SETTINGS
from tuner.errors import UnknownName

STATES = {"pending": "plain", "running": "plain", "done": "good", "failed": "bad"}
"""Kinds of badges by the status of a job."""


def about(job: Job) -> str:
    """Return the state of a job as a sentence."""
    tries, most = job.tries, STORE_SETTINGS.job_tries
    match job.status:
        case "pending" if tries:
            return f"It was tried {tries} of {most} times, and waits for the next worker."
        case "pending":
            return "It waits for a worker: tuner work."
        case "running":
            return f"A worker has it: try {tries} of {most}."
        case "failed":
            return f"It failed {most} times; no worker takes it again by itself."
    return "It is done: its run gave the answer, or an earlier one serves."


def read(site: Site, query: Query, links: Links) -> Content:
    """Return the page of the job with an id."""
    number = query.only("id").needed_whole("id")
    job = site.store.work.job(number)
    if job is None:
        raise UnknownName(f"there is no job {number}")
    running = site.store.work.running_of([job.problem]) if job.status == "running" else {}
    values = {
        "job": job,
        "kind": STATES.get(job.status, "plain"),
        "about": about(job),
        "address": address_of_job(job),
        "run": job.run_id or running.get((job.problem, job.device)),
        "line": error_line(job.error),
        "text": error_text(job.error),
    }
    return Content("job.html", f"Job {number}", values)
