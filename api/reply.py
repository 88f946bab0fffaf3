"""Replies as bytes that are ready to be sent."""

from __future__ import annotations

import json
from collections.abc import Mapping
from math import isfinite
from typing import Any

from starlette.types import Receive, Scope, Send


class Reply:
    """An ASGI app that sends the same bytes for every request.

    Args:
        headers: headers besides length and type.
        etag: entity tag of the body; a request that has it gets 304 without a body.
    """

    __slots__ = ("_body", "_etag", "_not_modified", "_start", "status")

    def __init__(
        self, body: bytes, status: int = 200, headers: Mapping[str, str] | None = None, *, etag: str | None = None
    ) -> None:
        self.status = status
        named = {**(headers or {}), **({"etag": etag} if etag else {})}
        kept = [(name.encode(), value.encode()) for name, value in named.items()]
        sized = [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]
        self._start = {"type": "http.response.start", "status": status, "headers": [*sized, *kept]}
        self._not_modified = {"type": "http.response.start", "status": 304, "headers": kept}
        self._body = {"type": "http.response.body", "body": body}
        self._etag = _bare(etag.encode()) if etag else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._etag is not None and _has(scope, self._etag):
            await send(self._not_modified)
            await send({"type": "http.response.body"})
            return
        await send(self._start)
        await send(self._body)


def has_already(scope: Scope, etag: str) -> bool:
    """Return whether the request has the body with this entity tag."""
    return _has(scope, _bare(etag.encode()))


def _has(scope: Scope, etag: bytes) -> bool:
    for name, value in scope["headers"]:
        if name == b"if-none-match":
            return value == b"*" or etag in map(_bare, value.split(b","))
    return False


def _bare(etag: bytes) -> bytes:
    """Return an entity tag without its weakness mark and compression suffix, which do not matter in a comparison."""
    return etag.strip().removeprefix(b"W/").strip(b'"').removesuffix(b"-gzip")


def takes_gzip(scope: Scope) -> bool:
    """Return whether the request takes a body that is compressed by gzip."""
    accepted = next((value for name, value in scope["headers"] if name == b"accept-encoding"), b"")
    return any(_is_gzip(coding) for coding in accepted.split(b","))


def _is_gzip(coding: bytes) -> bool:
    name, _, quality = coding.replace(b" ", b"").partition(b";")
    return name == b"gzip" and quality not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def to_json(document: Any) -> bytes:
    """Return compact JSON in ASCII, which can encode every name, lone surrogates too.

    A number that is not finite becomes null, since JSON has no other.
    """
    try:
        return _encode(document).encode()
    except ValueError:
        return _encode(_finite(document)).encode()


def _finite(value: Any) -> Any:
    match value:
        case float():
            return value if isfinite(value) else None
        case dict():
            return {name: _finite(each) for name, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
    return value


def refusal(message: str, status: int, headers: Mapping[str, str] | None = None) -> Reply:
    """Return the reply that refuses a request."""
    return Reply(to_json({"error": message}), status, headers)
