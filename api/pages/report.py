"""The report: the pages as static files of one folder, which open without a service and load nothing from elsewhere."""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from urllib.parse import urlencode

from tuner.api.pages import files
from tuner.api.pages.answer_facts import address_of
from tuner.api.pages.links import Address, FileLinks
from tuner.api.pages.render import render
from tuner.api.pages.routes import content_of
from tuner.api.pages.site import Kept, Site, Visitor
from tuner.api.query import parse_problem, parse_signatures
from tuner.api.view import View, Watcher
from tuner.db.store import Store
from tuner.errors import StoreError, TunerError, UsageError
from tuner.kernels.spec import Problem, Signature
from tuner.lookup.newest import Newest
from tuner.report.text import minute_text

_MARKER = ".triton-tuner-report"
"""File that marks a folder as a report, whose pages may be written again."""
_MARKED = "A report of triton-tuner: tuner report --html replaces its pages.\n"
_PAGE = re.compile(r"[a-z-]+(-[0-9a-f]{12})?\.html")
"""Names of the pages of a report."""


@dataclass(frozen=True)
class Others:
    """Pages of one name that a report has."""

    most: int
    query: frozenset[str] = frozenset()
    """Names that their queries may have. Pages of other queries are views of the same, and are left out."""


_OTHERS = {
    "": Others(1),
    "coverage": Others(200, frozenset({"op", "device"})),
    "compare": Others(50),
    "runs": Others(1),
    "run": Others(50, frozenset({"id"})),
    "nights": Others(1),
    "night": Others(20, frozenset({"id"})),
}


@dataclass(frozen=True)
class ReportSettings:
    """Largest numbers of pages, by kind."""

    problems: int = 100
    """Problems on a card."""
    generations: int = 3
    """Earlier generations, for each problem."""
    others: Mapping[str, Others] = field(default_factory=lambda: _OTHERS)
    """Pages besides those of problems, by name. Pages that are not named are left out: forms, and live states."""


SETTINGS = ReportSettings()


@dataclass(frozen=True)
class Written:
    """A written report."""

    folder: Path
    pages: int
    problems: int
    """Number of problems with a page."""
    left_out: int
    """Number of problems with an answer that have no page."""


class _Pages:
    """The pages of a report: those that are chosen, those still to be written, and the assets that they use."""

    def __init__(self, view: View, chosen: Sequence[tuple[Problem, str]], settings: ReportSettings) -> None:
        self._view, self._settings = view, settings
        self._chosen = {(problem.text, device) for problem, device in chosen}
        self._known = set[Address]()
        self._counts = Counter[str]()
        self.waiting = deque[Address]()
        self.assets = set[str]()

    def canonical(self, address: Address) -> Address:
        """Return the address under which the report has a page, whichever values at their default a link states."""
        if address.page != "problem":
            return address
        named = self._named(address)
        if named is None:
            return address
        answer = dict(address.query).get("answer")
        return Address.of("problem", {**address_of(*named), "answer": answer})

    def follow(self, address: Address) -> bool:
        """Return whether the report has the page, which is then written."""
        if address in self._known:
            return True
        if self._counts[self._kind(address)] >= self._limit(address):
            return False
        self._counts[self._kind(address)] += 1
        self._known.add(address)
        self.waiting.append(address)
        return True

    def _kind(self, address: Address) -> str:
        """Return what is counted together: generations by problem, other pages by name."""
        if address.page != "problem" or "answer" not in dict(address.query):
            return address.page
        return f"problem {sorted(each for each in address.query if each[0] != 'answer')}"

    def _limit(self, address: Address) -> int:
        if address.page != "problem":
            others = self._settings.others.get(address.page, Others(0))
            return others.most if others.query.issuperset(name for name, _ in address.query) else 0
        named = self._named(address)
        if named is None or (named[0].text, named[1]) not in self._chosen:
            return 0
        return self._settings.generations if "answer" in dict(address.query) else len(self._chosen)

    def _named(self, address: Address) -> tuple[Problem, str] | None:
        """Return the problem and the device of the address of a problem's page."""
        given = {name: value for name, value in address.query if name != "answer"}
        try:
            _, problem = parse_problem(given, parse_signatures(given, self._view))
        except TunerError:
            return None
        return problem, given.get("device", "")


@dataclass(frozen=True)
class _ReportLinks(FileLinks):
    """Addresses in a report. Each page and each asset that is linked to becomes a file of it."""

    pages: _Pages = field(kw_only=True)

    def to(self, page: str = "", /, **query: object) -> str:
        address = self.pages.canonical(Address.of(page, query))
        return address.file if self.follow(address) else ""

    def asset(self, name: str) -> str:
        self.pages.assets.add(name)
        return super().asset(name)


def report_site(store: Store, signatures: Mapping[str, Signature], op: str | None, device: str | None) -> Site:
    """Return the site of a store as of now, with the answers of one op and of one device if they are named.

    Raises:
        StoreError: the store cannot be read.
        UnknownName: no op or card with answers has the name.
    """
    errors: list[StoreError] = []
    watcher = Watcher(store, signatures, errors.append)
    watcher.poll()
    if errors:
        raise errors[0]
    view = watcher.view
    if op is not None:
        parse_signatures({"op": op}, view)
    card = None if device is None else view.lookup.resolve_device(device)
    tables = {key: table for key, table in view.tables.items() if op in (None, key[0]) and card in (None, key[1])}
    answers, newest = sum(map(len, tables.values())), Newest.of(chain.from_iterable(view.tables.values()))
    return Site(store, replace(view, tables=tables, answers=answers, replies={}, packed={}), Kept(), op, card, newest)


def most_useful(view: View) -> list[tuple[Problem, str]]:
    """Return all problems with an answer, each with its device: those with the newest answers first."""
    newest: dict[tuple[str, str], tuple[int, Problem]] = {}
    for (_, device), table in view.tables.items():
        for stored in table:
            key, known = (stored.answer.problem.text, device), newest.get((stored.answer.problem.text, device))
            if known is None or known[0] < stored.id:
                newest[key] = (stored.id, stored.answer.problem)
    ordered = sorted(newest.items(), key=lambda item: -item[1][0])
    return [(problem, device) for (_, device), (_, problem) in ordered]


def write_report(site: Site, folder: Path, settings: ReportSettings = SETTINGS) -> Written:
    """Write the pages of a site into a folder, beginning with the home page and following its links.

    Raises:
        StoreError: the store cannot be read any more.
        UsageError: the folder has other files and is no report, or cannot be written.
    """
    known = most_useful(site.view)
    chosen = known[: settings.problems]
    pages = _Pages(site.view, chosen, settings)
    written = minute_text(datetime.now(UTC).isoformat())
    links = _ReportLinks(pages.follow, f"report of {written} UTC, snapshot {site.view.snapshot}", pages=pages)
    try:
        _prepare(folder)
        count = 0
        links.to()
        for problem, device in chosen:  # those that no other page links to are in the report as well
            links.to("problem", **address_of(problem, device))
        while pages.waiting:
            address = pages.waiting.popleft()
            (folder / address.file).write_bytes(_html(site, address, links).encode("utf-8", "replace"))
            count += 1
        for name in sorted(pages.assets):
            target = folder / "assets" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(files.content(files.OURS, name))
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}; name a writable folder") from error
    return Written(folder, count, len(chosen), len(known) - len(chosen))


def _html(site: Site, address: Address, links: _ReportLinks) -> str:
    """Return a page. Raises StoreError if the store cannot be read any more."""
    content = content_of(address.page, urlencode(address.query).encode(), lambda: site, links)
    if content.status == StoreError.http_status:
        raise StoreError(content.values["message"])
    return render(content, links, Visitor(), address.page)


def _prepare(folder: Path) -> None:
    """Make the folder, mark it as a report, and remove the pages of an earlier one.

    Raises:
        UsageError: it has other files and is no report.
    """
    marker = folder / _MARKER
    if not marker.is_file():
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(
                f"a report is written into a new or empty folder, or one of a report, not {folder}; name another"
            )
        folder.mkdir(parents=True, exist_ok=True)
        marker.write_text(_MARKED)
    for page in _old_pages(folder):
        page.unlink()


def _old_pages(folder: Path) -> Iterator[Path]:
    return (each for each in list(folder.iterdir()) if _PAGE.fullmatch(each.name) and not each.is_dir())
