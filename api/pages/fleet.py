"""The page of the fleet: its workers and what each does, the queue, what ended by the hour, and what failed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from time import time

from tuner.api.pages.links import Links
from tuner.api.pages.run_facts import error_line, error_text, limits_of, stage_text
from tuner.api.pages.site import Content, Query, Site
from tuner.db.job import Job
from tuner.db.overview import UnfinishedRun
from tuner.db.work import HeldJob, Hour
from tuner.kernels.values import parsed


@dataclass(frozen=True)
class FleetSettings:
    """Rows of the tables, and times."""

    workers: int = 200
    waiting: int = 20
    failed: int = 25
    hours: int = 24
    """Hours of which is shown what ended."""
    idle_h: float = 1.0
    """Time after its last job in which a worker is shown as idle, in hours."""
    counted_s: int = 30
    """Age of the numbers by the hour, at most, in seconds. Counting them takes longer than all else."""


SETTINGS = FleetSettings()


@dataclass(frozen=True)
class Worker:
    """A worker and what it does."""

    name: str
    job: Job
    """The job that it has, or had last."""
    left_s: float | None = None
    """Seconds until the lease of its job ends; None if it has none."""
    run: int | None = None
    """Id of its run."""
    measured: int = 0
    planned: int | None = None
    """Planned number of configs of the run, as in `Limits`."""
    stage: str = ""
    """Work of its run at the moment, in a few words."""
    is_idle: bool = False

    @property
    def is_lost(self) -> bool:
        """True if the lease has ended, so that another worker may take the job."""
        return self.left_s is not None and self.left_s < 0


def workers(
    held: Iterable[HeldJob],
    seen: Mapping[str, Job],
    runs: Mapping[tuple[str, str], UnfinishedRun],
) -> list[Worker]:
    """Return the workers that have a job, then those that ended one lately.

    Args:
        seen: last job that ended, by worker.
        runs: runs without an end, by text of the problem and device id.
    """
    found = []
    for each in held:
        job, about = each.job, runs.get((each.job.problem, each.job.device))
        if about is None or about.run.started_at < job.created_at:
            found.append(Worker(job.worker or "", job, each.left_s))
            continue
        limits, number = limits_of(about.run.settings), about.run.id
        measured = about.run.trials + limits.known
        stage = "" if about.live is None else stage_text(about.live)
        found.append(Worker(job.worker or "", job, each.left_s, number, measured, limits.planned, stage))
    busy = {worker.name for worker in found}
    idle = sorted(((name, job) for name, job in seen.items() if name not in busy), key=lambda each: each[0])
    return found + [Worker(name, job, is_idle=True) for name, job in idle]


@dataclass(frozen=True)
class Throughput:
    """Counts of what ended in each of the last hours, oldest first."""

    hours: Sequence[Hour]

    @property
    def last(self) -> Hour:
        """The sums of the last full hour and the one that has begun."""
        done = [sum(numbers) for numbers in zip(*((h.done, h.failed, h.configs) for h in self.hours[-2:]), strict=True)]
        return Hour(self.hours[-1].at, *done)

    @property
    def day(self) -> Hour:
        """The sums of all of them."""
        numbers = [sum(column) for column in zip(*((h.done, h.failed, h.configs) for h in self.hours), strict=True)]
        return Hour(self.hours[0].at, *numbers)


def throughput(found: Iterable[Hour], now: datetime, count: int = SETTINGS.hours) -> Throughput:
    """Return all of the last hours, those without anything too."""
    known = {hour.at: hour for hour in found}
    names = [(now - timedelta(hours=ago)).strftime("%Y-%m-%dT%H") for ago in reversed(range(count))]
    return Throughput([known.get(name, Hour(name)) for name in names])


def address_of_job(job: Job) -> dict[str, object]:
    """Return the query of the page of a job's problem, as far as its text can be read."""
    return {**parsed(job.problem), "op": job.op, "device": job.device}


def read(site: Site, query: Query, links: Links) -> Content:
    """Return the page; `after` is the id of the failed job before the ones that are listed."""
    after = query.only("after").whole("after") or None
    work, now = site.store.work, datetime.now(UTC)
    day, lately = (_utc(now - timedelta(hours=hours)) for hours in (SETTINGS.hours, SETTINGS.idle_h))
    held = work.held(SETTINGS.workers)
    ids = {*work.running_of({each.job.problem for each in held}).values()} if held else set()
    unfinished = [each for each in site.store.overview.unfinished_runs(SETTINGS.workers) if each.run.id in ids]
    runs = {(each.run.problem.text, each.run.provenance.device.id): each for each in reversed(unfinished)}
    shown = workers(held, work.seen_since(lately), runs)
    waiting = [job for job in site.store.queue.jobs(SETTINGS.waiting + len(held)) if job.status == "pending"]
    failed = work.failed(SETTINGS.failed + 1, after)
    by_hour = site.kept.get(
        ("by hour", site.view.tip.uuid, int(time() // SETTINGS.counted_s)), lambda: work.by_hour(day)
    )
    rate, cards = throughput(by_hour, now), work.by_card(day)
    values = {
        "is_live": after is None,
        "now": now.isoformat(timespec="seconds"),
        "workers": shown,
        "busy": sum(not worker.is_idle for worker in shown),
        "cards": cards,
        "pending": sum(counts.get("pending", 0) for counts in cards.values()),
        "running": sum(counts.get("running", 0) for counts in cards.values()),
        "waiting": waiting[: SETTINGS.waiting],
        "failed": failed[: SETTINGS.failed],
        "next": failed[SETTINGS.failed - 1].job.id if len(failed) > SETTINGS.failed else None,
        "first": after is None,
        "rate": rate,
        "bars": {
            "jobs": bars((hour, hour.done) for hour in rate.hours),
            "configs": bars((hour, hour.configs) for hour in rate.hours),
        },
        "hours": SETTINGS.hours,
        "address_of_job": address_of_job,
        "error_line": error_line,
        "error_text": error_text,
    }
    return Content("fleet.html", "Fleet", values)


def bars(numbers: Iterable[tuple[Hour, int]], height: int = 24) -> list[tuple[str, float]]:
    """Return a label and the height of the bar of each hour; hours without anything have none."""
    known = [*numbers]
    most = max((number for _, number in known), default=0) or 1
    return [(f"{hour.at[11:]}:00 UTC: {number:,}", round(height * number / most, 1)) for hour, number in known]


def _utc(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds")
