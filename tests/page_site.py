"""Pages of a store as a service shows them, without a server."""

from __future__ import annotations

from urllib.parse import urlencode

from stored import SCALE

from tuner.api.pages.links import Links
from tuner.api.pages.render import render
from tuner.api.pages.routes import DATA, READERS
from tuner.api.pages.site import Content, Data, Kept, Query, Site, Visitor
from tuner.api.query import parse_values
from tuner.api.view import Watcher
from tuner.db.store import Store


def site_of(store: Store, kept: Kept | None = None) -> Site:
    """Return the sources of pages: the store, and a view of it as of now."""
    watcher = Watcher(store, {SCALE.op: SCALE}, print)
    watcher.poll()
    assert watcher.age_s is not None
    return Site(store, watcher.view, kept or Kept())


def given(**query: object) -> Query:
    """Return the query of a page, as its address has it. `at_x="1"` is `only.x=1`."""
    named = {f"only.{name[3:]}" if name.startswith("at_") else name: value for name, value in query.items()}
    return Query(parse_values(urlencode(named).encode()))


def content(site: Site, name: str, **query: object) -> Content:
    return READERS[name](site, given(**query), Links(1 if name else 0))


def html(site: Site, name: str, visitor: Visitor | None = None, **query: object) -> str:
    """Return the HTML of a page."""
    return render(content(site, name, **query), Links(1 if name else 0), visitor or Visitor(), name)


def data(site: Site, name: str, **query: object) -> Data:
    return DATA[name](site, given(**query))
