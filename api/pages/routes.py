"""Routes of the pages, and the reply to each request: its content, or the error that kept it from being read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tuner.api.listing import Threads
from tuner.api.lookups import Lookups
from tuner.api.pages import compare, coverage, files, fleet, home, job, lookup, problem, retune, retunes, run, runs
from tuner.api.pages.actions import forms, read_sign_in
from tuner.api.pages.docs import docs
from tuner.api.pages.links import Address, Links
from tuner.api.pages.live import Hub, Parts, Topic
from tuner.api.pages.render import render, render_live
from tuner.api.pages.replies import data, html
from tuner.api.pages.session import Sessions
from tuner.api.pages.site import Content, DataReader, Kept, Query, Reader, Site, Visitor
from tuner.api.pages.streams import LiveRoute
from tuner.api.query import parse_values
from tuner.db.store import Store
from tuner.errors import TunerError

READERS: Mapping[str, Reader] = {
    "": home.read,
    "compare": compare.read,
    "coverage": coverage.read,
    "lookup": lookup.read,
    "problem": problem.read,
    "fleet": fleet.read,
    "job": job.read,
    "retune": retune.read,
    "retunes": retunes.read,
    "run": run.read,
    "runs": runs.read,
    "sign-in": read_sign_in,
}
"""The pages, by name. The page of an empty name is the home page."""
DATA: Mapping[str, DataReader] = {
    "compare.csv": compare.read_csv,
    "compare.json": compare.read_points,
    "problem.json": problem.read_points,
}
"""Data of pages, by the end of its address below `pages/`."""
LIVE = frozenset({"run", "runs", "fleet"})
"""Pages that have live parts."""


@dataclass(frozen=True)
class Pages:
    """The pages of an app."""

    routes: Sequence[BaseRoute]
    """Routes of the pages, of their data, forms, streams and files."""
    live: Hub
    """The hub of the streams, to be closed when the service stops."""
    missing: Callable[[Request, int, str], Awaitable[Response]]
    """Return the page, with an HTTP status and a message, of an address that has none."""


def pages(store: Store, lookups: Lookups, threads: Threads, sessions: Sessions) -> Pages:
    """Return the pages of an app."""
    kept = Kept()

    def show(request: Request, content: Content, visitor: Visitor, page: str = "form") -> Response:
        path = request.scope["path"].removeprefix(request.scope.get("root_path", ""))  # below another app
        links = Links(path.count("/") - 1)
        return html(request, render(content, links, visitor, page), content.status)

    def answer(request: Request, name: str) -> Response:
        query = request.scope["query_string"]
        content = content_of(name, query, lambda: Site(store, lookups.view, kept), Links(Address(name).path.count("/")))
        return shown_to(request, content, Address(name).path + (f"?{query.decode('latin-1')}" if query else ""), name)

    def shown_to(request: Request, content: Content, here: str = "", page: str = "form") -> Response:
        visitor = sessions.visitor(request, here)
        response = show(request, content, visitor, page)
        sessions.forget_flash(request, response)
        if visitor.may_write:  # its forms and outcomes are shown neither after signing out nor again
            response.headers["cache-control"] = "no-store"
        return response

    def route(name: str) -> Route:
        async def shown(request: Request) -> Response:
            return await threads.run(answer, request, name)

        return Route(f"/{Address(name).path}", shown, name=name or "home")

    def reply(request: Request, name: str) -> Response:
        given = Query(parse_values(request.scope["query_string"]))
        return data(request, DATA[name](Site(store, lookups.view, kept), given))

    def data_route(name: str) -> Route:
        async def sent(request: Request) -> Response:
            return await threads.run(reply, request, name)

        return Route(f"/pages/{name}", sent, name=name)

    def live_parts(topic: Topic) -> Parts | None:
        links = Links(Address(topic.page).path.count("/"))
        content = content_of(topic.page, topic.query, lambda: Site(store, lookups.view, kept), links)
        if content.status >= 500:
            return None  # the state before is shown until the store can be read again
        visitor = Visitor((lambda action: "") if topic.may_write else None)
        texts = render_live(content, links, visitor, topic.page)
        return Parts(texts, bool(content.values.get("is_live")), content.status)

    async def read_parts(topic: Topic) -> Parts | None:
        return await threads.run(live_parts, topic)

    async def missing(request: Request, status: int, message: str) -> Response:
        return await threads.run(shown_to, request, _error(message, status))

    async def file(request: Request) -> Response:
        return files.reply(request, files.OURS, request.path_params["name"], files.names())

    hub = Hub(read_parts)
    routes = [
        *map(route, READERS),
        *map(data_route, DATA),
        Route("/pages/live/{page}", LiveRoute(hub, sessions, LIVE), methods=["GET"]),
        *forms(store, lookups, threads, sessions, show),
        *docs(sessions),
        Route("/assets/{name:path}", file),
    ]
    return Pages(routes, hub, missing)


def content_of(name: str, query: bytes, site: Callable[[], Site], links: Links) -> Content:
    """Return the content of a page, or the page of the error that it raised."""
    try:
        return READERS[name](site(), Query(parse_values(query)), links)
    except TunerError as error:
        return _error(str(error), error.http_status)


def _error(message: str, status: int) -> Content:
    return Content("error.html", "Not shown", {"message": message, "status": status}, status)
