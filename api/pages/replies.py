"""Replies of the pages: HTML and data, with their headers."""

from __future__ import annotations

import gzip

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
