"""Files that pages load. Their addresses carry a tag of their content, so browsers keep a file until it changes."""

from __future__ import annotations

import gzip
from collections.abc import Collection
from functools import cache
from hashlib import sha256
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

OURS = "tuner.api.pages"
"""Package whose folder `assets/` has the files of the pages."""
_TYPES = {"css": "text/css", "js": "text/javascript", "png": "image/png", "svg": "image/svg+xml"}
_PACKED_FROM = 1000
"""Size from which a file is compressed, in bytes."""


def reply(request: Request, package: str, name: str, served: Collection[str]) -> Response:
    """Return a file of a package, compressed if the browser takes that.

    Args:
        package: package with a folder `static` or `assets`.
        served: names of the files that are served.

    Raises:
        HTTPException: the name is none of them.
    """
    if name not in served:
        raise HTTPException(404)
    is_kept = request.url.query == tag(package, name)
    headers = {
        "cache-control": "max-age=31536000, immutable" if is_kept else "no-cache",
        "vary": "Accept-Encoding",
        "x-content-type-options": "nosniff",
    }
    body = content(package, name)
    if len(body) >= _PACKED_FROM and not name.endswith(".png") and "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["content-encoding"] = _packed(package, name), "gzip"
    return Response(body, media_type=_TYPES[name.rpartition(".")[2]], headers=headers)


@cache
def names(package: str = OURS) -> frozenset[str]:
    """Return the names of the files below `assets/` of a package, with their folder: `vendor/htmx.min.js`."""
    folder = files(package) / "assets"
    found = {each.name for each in folder.iterdir() if each.is_file()}
    found |= {f"vendor/{each.name}" for each in (folder / "vendor").iterdir()}
    return frozenset(name for name in found if name.rpartition(".")[2] in _TYPES)


@cache
def content(package: str, name: str) -> bytes:
    """Return the bytes of a file."""
    folder = "assets" if package == OURS else "static"
    return files(package).joinpath(folder, *name.split("/")).read_bytes()


@cache
def tag(package: str, name: str) -> str:
    """Return the tag of the content of a file."""
    return sha256(content(package, name)).hexdigest()[:12]


@cache
def _packed(package: str, name: str) -> bytes:
    return gzip.compress(content(package, name))
