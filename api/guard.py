"""The gate that every request passes: who may write, how much may come in, what is logged, what an error looks like."""

from __future__ import annotations

import hmac
import json
import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime
from time import perf_counter
from typing import Any
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tuner.api.metrics import Metrics
from tuner.api.reply import Reply, refusal
from tuner.errors import UsageError

_log = logging.getLogger("tuner.api")

MOST_BYTES = 1_000_000
"""Of a request's body."""
_SAFE = ("GET", "HEAD", "OPTIONS")
_OPEN = (("POST", "/best-configs"),)
"""What is no write although its method says so."""
_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")


class BodyTooLarge(UsageError):
    """The request's body is longer than any that makes sense."""

    http_status = 413

    def __init__(self) -> None:
        super().__init__(f"a body has at most {MOST_BYTES:,} bytes")


class Guard:
    """Pure ASGI middleware around the whole app.

    Args:
        token: what writers must send; None: nobody writes.
        paths: those that are counted by their own name.
        log: takes one line of JSON for every request; None: nothing is logged.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        metrics: Metrics,
        paths: frozenset[str],
        log: Callable[[str], object] | None,
    ) -> None:
        self._app, self._metrics, self._paths, self._write = app, metrics, paths, log
        self._token = None if token is None else token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, status, size = perf_counter(), 0, 0
        headers = dict(scope["headers"])
        request_id = _request_id(headers)

        async def answering(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", request_id)]}
            else:
                size += len(message.get("body", b""))
            await send(message)

        try:
            refused = self._refusal(scope, headers)
            await (refused or self._app)(scope, _bounded(receive), answering)
        except Exception:
            _log.exception("request %s failed", request_id.decode())
            if status:
                raise
            await refusal("the service failed; its log says why", 500)(scope, receive, answering)
        finally:
            self._count(scope, status, size, perf_counter() - began, request_id)

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> Reply | None:
        length = headers.get(b"content-length", b"0")
        if not length.isdigit() or len(length) > 9 or int(length) > MOST_BYTES:
            too_large = BodyTooLarge()
            return refusal(str(too_large), too_large.http_status, {"connection": "close"})
        method = scope["method"]
        if method in _SAFE or (method, scope["path"]) in _OPEN:
            return None
        scheme, _, given = headers.get(b"authorization", b"").partition(b" ")
        if scheme.lower() != b"bearer":
            who = {"www-authenticate": "Bearer"}
            return refusal("writing needs a token: send it as Authorization: Bearer TOKEN", 401, who)
        if self._token is None:
            return refusal("nothing can be written here: the service was started without TUNER_TOKEN", 403)
        if not hmac.compare_digest(given.strip(), self._token):
            return refusal("that token may not write", 403)
        return None

    def _count(self, scope: Scope, status: int, size: int, seconds: float, request_id: bytes) -> None:
        path = scope["path"]
        self._metrics.request(path if path in self._paths else _kind(path), status, seconds)
        if self._write is None:
            return
        line: dict[str, Any] = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "request_id": request_id.decode(),
            "client": (scope.get("client") or ("",))[0],
            "method": scope["method"][:20],
            "path": path[:200],
            "status": status,
            "bytes": size,
            "ms": round(seconds * 1e3, 3),
        }
        self._write(f"{json.dumps(line)}\n")


def _bounded(receive: Receive) -> Receive:
    """Counts what comes in where no length was announced."""
    read = 0

    async def bounded() -> Message:
        nonlocal read
        message = await receive()
        read += len(message.get("body", b""))
        if read > MOST_BYTES:
            raise BodyTooLarge
        return message

    return bounded


def _request_id(headers: dict[bytes, bytes]) -> bytes:
    given = headers.get(b"x-request-id", b"")
    return given if _ID.fullmatch(given) else uuid4().hex.encode()


def _kind(path: str) -> str:
    return "/runs/{id}" if path.startswith("/runs/") else "other"
