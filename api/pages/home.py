"""The home page: what this service knows, in one glance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, islice

from tuner.api.pages.answer_facts import address_of
from tuner.api.pages.links import Links
from tuner.api.pages.missed import missed, ranked
from tuner.api.pages.served import Served, Today, today
from tuner.api.pages.site import Content, Query, Site
from tuner.db.overview import RetuneOutline, UnfinishedRun
from tuner.kernels.spec import Problem
from tuner.lookup import query as lookup
from tuner.records import StoredAnswer
from tuner.report.text import count_text, short


@dataclass(frozen=True)
class HomeSettings:
    """Rows on the home page, at most."""

    ranked_misses: int = 24
    """Most frequent misses that are ordered by their value. Finding the nearest problems takes up to 3 ms for each."""
    retunes: int = 10
    """Newest retunes, of which the last one that ended and one that runs are shown."""
    misses: int = 8
    runs: int = 6
    answers: int = 8
    ops: int = 40


SETTINGS = HomeSettings()


@dataclass(frozen=True)
class Matrix:
    """The answers by op and card."""

    devices: Sequence[str]
    rows: Sequence[tuple[str, Sequence[Served]]]
    """Ops, those with the most answers first, each with its answers on each card."""
    left_out: int = 0
    """Number of ops that are not shown."""


def matrix(found: Today, most: int = SETTINGS.ops) -> Matrix:
    """Return the answers by op and card, of at most this number of ops."""
    devices = found.devices()
    rows = [(op, [found.of(op, device) for device in devices]) for op in found.ops()]
    rows.sort(key=lambda row: -sum(len(served.answers) for served in row[1]))
    return Matrix(devices, rows[:most], max(0, len(rows) - most))


@dataclass(frozen=True)
class Running:
    """A search that has no end yet."""

    about: UnfinishedRun
    text: str
    is_silent: bool
    """True if it was probably killed."""

    @property
    def configs(self) -> str:
        """Number of configs that it measured, and that of the feasible ones: `37 of 4,410 configs`."""
        space = self.about.run.settings.get("space")
        of = f" of {space:,}" if type(space) is int else ""
        return f"{self.about.run.trials:,}{of} configs"


def running(runs: Sequence[UnfinishedRun], now: datetime) -> list[Running]:
    """Return the searches, those that were probably killed last."""
    found = [Running(each, short(each.run.problem), each.is_silent(now)) for each in runs]
    return sorted(found, key=lambda each: each.is_silent)


def retune_text(outline: RetuneOutline) -> str:
    """Return the result of a retune: `240 of 300 answers measured again, 3 slower or broken, 2 replaced`."""
    measured = f"{outline.measured:,} of {count_text(outline.planned, 'answer')} measured again"
    worse = f"{outline.worse:,} slower or broken" if outline.worse else "none slower or broken"
    return f"{measured}, {worse}, {outline.replaced:,} replaced"


def jobs_text(counts: Mapping[str, int]) -> str:
    """Return the state of the queue: `2 waiting, 1 running, 3 failed`."""
    shown = {"pending": "waiting", "running": "running", "failed": "failed"}
    return ", ".join(f"{counts[status]:,} {word}" for status, word in shown.items() if counts.get(status))


def newest_answers(site: Site, most: int = SETTINGS.answers) -> list[StoredAnswer]:
    """Return the answers that were stored last and serve their problem, the newest first."""
    newest = sorted(chain.from_iterable(site.view.tables.values()), key=lambda stored: -stored.id)
    return list(islice((stored for stored in newest if _serves(site, stored)), most))


def _serves(site: Site, stored: StoredAnswer) -> bool:
    """Return whether a query that names no versions gets the answer."""
    query = lookup.Query(stored.answer.problem)
    found = site.view.lookup.find_on(stored.provenance.device.id, query, neighbours=False).stored
    return found is not None and found.id == stored.id


def read(site: Site, query: Query, links: Links) -> Content:
    """Return the home page."""
    query.only()
    found, overview = today(site), site.store.overview
    retunes, jobs = overview.retunes(SETTINGS.retunes), overview.jobs()
    misses = ranked(site, missed(site, site.store.requests(SETTINGS.ranked_misses)))

    def href_of(problem: Problem, device: str) -> str:
        return links.to("problem", **address_of(problem, device))

    values = {
        "today": found,
        "matrix": site.of_view(("matrix",), lambda: matrix(found)),
        "misses": misses[: SETTINGS.misses],
        "missed_problems": overview.missed_problems() if (site.op, site.device) == (None, None) else None,
        "running": running(overview.unfinished_runs(SETTINGS.runs), datetime.now(UTC)),
        "retune": next((retune for retune in retunes if retune.ended_at is not None), None),
        "retuning": next((retune for retune in retunes if retune.status == "running"), None),
        "retune_text": retune_text,
        "jobs": jobs,
        "jobs_text": jobs_text(jobs),
        "answers": site.of_view(("newest",), lambda: newest_answers(site)),
        "short": short,
        "to_problem": href_of,
    }
    is_empty = not (found.served or misses or values["running"] or jobs or retunes)
    return Content("home.html", "Overview", {**values, "is_empty": is_empty})
