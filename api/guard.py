"""Middleware for every request: write tokens, size limits, counts, the access log and replies to failures."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from time import perf_counter
from typing import Any
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.api.attempts import TooManyAttempts, WriteToken
from tuner.api.metrics import Metrics
from tuner.api.reply import Reply, refusal
from tuner.errors import UsageError

_log = logging.getLogger("tuner.api")

_SAFE = ("GET", "HEAD", "OPTIONS")
_OPEN = (("POST", "/best-configs"),)
"""Requests that write nothing although their method says so."""
_FORMS = re.compile("/pages/(sign-in|sign-out|actions/[^/]+)")
"""Paths that take forms of pages. Whether they may write is checked there, by the session instead of a bearer token."""
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class BodyTooLarge(UsageError):
    """A request's body is over the size limit."""

    http_status = 413

    def __init__(self, limit: int) -> None:
        super().__init__(f"a body has at most {limit:,} bytes")


class Guard:
    """Pure ASGI middleware around the whole app.

    Args:
        token: bearer token that a write needs; without a text, every write is refused.
        paths: paths that are counted by their own name; others are counted together.
        log: called with a line of JSON for each request; None logs none.
        max_body_bytes: size limit of a body.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: WriteToken,
        metrics: Metrics,
        paths: frozenset[str],
        log: Callable[[str], object] | None,
        max_body_bytes: int,
    ) -> None:
        self._max_body_bytes = max_body_bytes
        self._app, self._metrics, self._paths, self._write = app, metrics, paths, log
        self._token = token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, size = perf_counter(), 0, 0
        headers = dict(scope["headers"])
        request_id = _request_id(headers)

        async def respond(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", request_id)]}
            else:
                size += len(message.get("body", b""))
            await send(message)

        try:
            refused = self._refusal(scope, headers)
            await (refused or self._app)(scope, _bounded(receive, self._max_body_bytes), respond)
        except Exception:
            _log.exception("request %s failed", request_id.decode())
            if status:
                raise
            await refusal("the service failed; its log says why", 500)(scope, receive, respond)
        finally:
            self._count(scope, status, size, perf_counter() - began, request_id)

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> Reply | None:
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 9 or int(length) > self._max_body_bytes:
            too_large = BodyTooLarge(self._max_body_bytes)
            return refusal(str(too_large), too_large.http_status, {"connection": "close"})
        method, path = scope["method"], _path(scope)
        if method in _SAFE or (method, path) in _OPEN or (method == "POST" and _FORMS.fullmatch(path)):
            return None
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            challenge = {"www-authenticate": "Bearer"}
            return refusal("writing needs a token: send it as Authorization: Bearer TOKEN", 401, challenge)
        if self._token.text is None:
            return refusal("nothing can be written here: the service was started without TUNER_TOKEN", 403)
        try:
            accepted = self._token.accepts(given, client_of(scope))
        except TooManyAttempts as error:
            return refusal(str(error), error.http_status, error.retry_after)
        return None if accepted else refusal("that token may not write", 403)

    def _count(self, scope: Scope, status: int, size: int, seconds: float, request_id: bytes) -> None:
        path = _path(scope)
        self._metrics.request(path if path in self._paths else _kind(path), status, seconds)
        if self._write is None:
            return
        line: dict[str, Any] = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "request_id": request_id.decode(),
            "client": client_of(scope),
            "method": scope["method"][:20],
            "path": path[:200],
            "status": status,
            "bytes": size,
            "ms": round(seconds * 1e3, 3),
        }
        self._write(f"{json.dumps(line)}\n")


def client_of(scope: Scope) -> str:
    """Return the address of the client of a request; empty if it has none."""
    address: str = (scope.get("client") or ("",))[0]
    return address


def _bounded(receive: Receive, limit: int) -> Receive:
    """Return `receive` with a size limit, for bodies without a content length."""
    read = 0

    async def bounded() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > limit:
            raise BodyTooLarge(limit)
        return message

    return bounded


def _path(scope: Scope) -> str:
    """Return the path of a request below the service's root, which may be that of a part of another app."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _request_id(headers: dict[bytes, bytes]) -> bytes:
    given = headers.get(b"x-request-id", b"")
    return given if _ID.fullmatch(given) else uuid4().hex.encode()


def _kind(path: str) -> str:
    return "/runs/{id}" if path.startswith("/runs/") else "other"
