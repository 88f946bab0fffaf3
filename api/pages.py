"""The pages for people, `/` and `/docs`. Nothing on them is loaded from elsewhere, as their headers demand.

Swagger UI comes from the package `fastapi-offline`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

_SWAGGER_UI = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon.png")
_OURS = ("docs.js", "page.css")
_TYPES = {"css": "text/css", "js": "text/javascript", "png": "image/png"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""Content security policy: scripts and styles are files of this service."""


def pages(described: Callable[[], Mapping[str, Any]]) -> list[BaseRoute]:
    """Return the routes of the pages.

    Args:
        described: returns the OpenAPI document of the service.
    """

    async def index(request: Request) -> Response:
        document = described()
        paths = document["paths"].items()
        rows = [_row(path, method, about) for path, methods in paths for method, about in methods.items()]
        text = Template(_file("tuner.api", "index.html").decode())
        return _page(text.substitute(version=escape(document["info"]["version"]), rows="\n".join(rows)))

    async def docs(request: Request) -> Response:
        return _page(_file("tuner.api", "docs.html").decode())

    async def asset(request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _SWAGGER_UI + _OURS:
            raise HTTPException(404)
        content = _file("fastapi_offline" if name in _SWAGGER_UI else "tuner.api", name)
        headers = {"cache-control": "max-age=86400", "x-content-type-options": "nosniff"}
        return Response(content, media_type=_TYPES[name.rpartition(".")[2]], headers=headers)

    return [Route("/", index), Route("/docs", docs), Route("/docs/{name}", asset)]


def _row(path: str, method: str, about: Mapping[str, Any]) -> str:
    """Return a row of the index, with a link if the request needs no parameters."""
    request = f"<code>{method.upper()} {escape(path)}</code>"
    needed = any(parameter["required"] for parameter in about.get("parameters", ()))
    if method == "get" and not needed:
        request = f'<a href="{escape(path.removeprefix("/"))}">{request}</a>'
    return f"<tr><td>{request}</td><td>{escape(about['summary'])}</td></tr>"


def _page(text: str) -> Response:
    headers = {"content-security-policy": _POLICY, "referrer-policy": "no-referrer"}
    return HTMLResponse(text, headers=headers | {"x-content-type-options": "nosniff"})


@cache
def _file(package: str, name: str) -> bytes:
    return files(package).joinpath("static", name).read_bytes()
