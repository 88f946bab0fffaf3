"""Replies of the pages: HTML with its headers, and files."""

from __future__ import annotations

import gzip
from collections.abc import Collection
from functools import cache
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from tuner.api.pages.site import Data

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
"""Content security policy: scripts and styles are files of this service."""
_HEADERS = {
    "cache-control": "no-cache, private",
    "content-security-policy": _POLICY,
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "same-origin",
    "vary": "Accept-Encoding, Cookie",
    "x-content-type-options": "nosniff",
}
_TYPES = {"css": "text/css", "js": "text/javascript", "png": "image/png", "svg": "image/svg+xml"}
_GZIP_LEVEL = 5
_GZIP_FROM = 1000
"""Size from which a page is compressed, in bytes."""


def html(request: Request, text: str, status: int = 200) -> Response:
    """Return a page, compressed if the browser takes that."""
    body, headers = text.encode("utf-8", "replace"), dict(_HEADERS)
    if len(body) >= _GZIP_FROM and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, _GZIP_LEVEL)
        headers["content-encoding"] = "gzip"
    return HTMLResponse(body, status, headers=headers)


def data(request: Request, found: Data) -> Response:
    """Return data, compressed if the browser takes that."""
    body, headers = found.body, {name: _HEADERS[name] for name in ("cache-control", "vary", "x-content-type-options")}
    if found.file:
        headers["content-disposition"] = f'attachment; filename="{found.file}"'
    if len(body) >= _GZIP_FROM and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, _GZIP_LEVEL)
        headers["content-encoding"] = "gzip"
    return Response(body, media_type=found.media_type, headers=headers)


def asset(request: Request, package: str, name: str, names: Collection[str]) -> Response:
    """Return a file of a package, compressed if the browser takes that.

    Args:
        package: package with a folder `static` or `assets`.
        names: files that are served.

    Raises:
        HTTPException: the name is none of them.
    """
    if name not in names:
        raise HTTPException(404)
    headers = {"cache-control": "max-age=86400", "vary": "Accept-Encoding", "x-content-type-options": "nosniff"}
    body = _file(package, name)
    if len(body) >= _GZIP_FROM and not name.endswith(".png") and "gzip" in request.headers.get("accept-encoding", ""):
        body = _packed(package, name)
        headers["content-encoding"] = "gzip"
    return Response(body, media_type=_TYPES[name.rpartition(".")[2]], headers=headers)


@cache
def asset_names(package: str) -> frozenset[str]:
    """Return the names of the files below `assets/` of a package, with their folder: `vendor/htmx.min.js`."""
    folder = files(package) / "assets"
    found = {each.name for each in folder.iterdir() if each.is_file()}
    vendor = folder / "vendor"
    return frozenset(
        name
        for name in {*found, *(f"vendor/{each.name}" for each in vendor.iterdir())}
        if name.rpartition(".")[2] in _TYPES
    )


@cache
def _file(package: str, name: str) -> bytes:
    folder = "static" if package == "fastapi_offline" else "assets"
    return files(package).joinpath(folder, *name.split("/")).read_bytes()


@cache
def _packed(package: str, name: str) -> bytes:
    return gzip.compress(_file(package, name))
