"""Routes of the pages, and the reply to each request: its content, or the error that kept it from being read."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tuner.api.listing import Threads
from tuner.api.lookups import Lookups
from tuner.api.pages import home
from tuner.api.pages.actions import forms, read_sign_in
from tuner.api.pages.docs import docs
from tuner.api.pages.links import Address, Links
from tuner.api.pages.render import render
from tuner.api.pages.replies import asset, asset_names, html
from tuner.api.pages.session import Sessions, forget_flash
from tuner.api.pages.site import Content, Kept, Query, Reader, Site, Visitor
from tuner.api.query import parse_values
from tuner.db.store import Store
from tuner.errors import TunerError

READERS: Mapping[str, Reader] = {
    "": home.read,
    "sign-in": read_sign_in,
}
"""The pages, by name. The page of an empty name is the home page."""
_PACKAGE = "tuner.api.pages"


def pages(store: Store, lookups: Lookups, threads: Threads, sessions: Sessions) -> list[BaseRoute]:
    """Return the routes of the pages, of their forms and of their files."""
    kept = Kept()

    def show(request: Request, content: Content, visitor: Visitor, page: str = "") -> Response:
        links = Links(request.scope["path"].count("/") - 1)
        return html(request, render(content, links, visitor, page), content.status)

    def answer(request: Request, name: str) -> Response:
        query = request.scope["query_string"]
        content = content_of(name, query, lambda: Site(store, lookups.view, kept), Links(Address(name).path.count("/")))
        visitor = sessions.visitor(request, Address(name).path + (f"?{query.decode('latin-1')}" if query else ""))
        response = show(request, content, visitor, name)
        forget_flash(request, response)
        return response

    def route(name: str) -> Route:
        async def shown(request: Request) -> Response:
            return await threads.run(answer, request, name)

        return Route(f"/{Address(name).path}", shown, name=name or "home")

    async def file(request: Request) -> Response:
        return asset(_PACKAGE, request.path_params["name"], asset_names(_PACKAGE))

    return [
        *map(route, READERS),
        *forms(store, lookups, threads, sessions, show),
        *docs(),
        Route("/assets/{name:path}", file),
    ]


def content_of(name: str, query: bytes, site: Callable[[], Site], links: Links) -> Content:
    """Return the content of a page, or the page of the error that it raised."""
    try:
        return READERS[name](site(), Query(parse_values(query)), links)
    except TunerError as error:
        values = {"message": str(error), "status": error.http_status}
        return Content("error.html", "Not shown", values, error.http_status)
