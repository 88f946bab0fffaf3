"""The description of the API for people, `/docs`: Swagger UI, as the package `fastapi-offline` brings it."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tuner.api.pages import files
from tuner.api.pages.links import Links
from tuner.api.pages.render import render
from tuner.api.pages.replies import html
from tuner.api.pages.session import Sessions
from tuner.api.pages.site import Content

_SWAGGER_UI = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon.png")


def docs(sessions: Sessions) -> list[BaseRoute]:
    """Return the routes of the page and of the files of Swagger UI."""

    async def page(request: Request) -> Response:
        text = render(Content("docs.html", "API"), Links(), sessions.visitor(request, "docs"), "docs")
        return html(request, text)

    async def file(request: Request) -> Response:
        return files.reply(request, "fastapi_offline", request.path_params["name"], _SWAGGER_UI)

    return [Route("/docs", page), Route("/docs/{name}", file)]
