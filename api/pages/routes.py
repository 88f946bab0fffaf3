"""Routes of the pages, and the reply to each request: its content, or the error that kept it from being read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tuner.api.listing import Threads
from tuner.api.lookups import Lookups
from tuner.api.pages import home
from tuner.api.pages.docs import docs
from tuner.api.pages.links import Address, Links
from tuner.api.pages.render import render
from tuner.api.pages.replies import asset, asset_names, html
from tuner.api.pages.site import Content, Kept, Query, Reader, Site, Visitor
from tuner.api.query import parse_values
from tuner.db.store import Store
from tuner.errors import TunerError

READERS: Mapping[str, Reader] = {
    "": home.read,
}
"""The pages, by name. The page of an empty name is the home page."""
_PACKAGE = "tuner.api.pages"


def pages(store: Store, lookups: Lookups, threads: Threads) -> list[BaseRoute]:
    """Return the routes of the pages and of their files."""
    kept = Kept()

    def answer(request: Request, name: str, visitor: Visitor) -> Response:
        links = Links(Address(name).path.count("/"))
        content = content_of(name, request.scope["query_string"], lambda: Site(store, lookups.view, kept), links)
        return html(request, render(content, links, visitor, name), content.status)

    def route(name: str) -> Route:
        async def shown(request: Request) -> Response:
            return await threads.run(answer, request, name, Visitor())

        return Route(f"/{Address(name).path}", shown, name=name or "home")

    async def file(request: Request) -> Response:
        return asset(_PACKAGE, request.path_params["name"], asset_names(_PACKAGE))

    return [*map(route, READERS), *docs(), Route("/assets/{name:path}", file)]


def content_of(name: str, query: bytes, site: Callable[[], Site], links: Links) -> Content:
    """Return the content of a page, or the page of the error that it raised."""
    try:
        return READERS[name](site(), Query(parse_values(query)), links)
    except TunerError as error:
        values = {"message": str(error), "status": error.http_status}
        return Content("error.html", "Not shown", values, error.http_status)
