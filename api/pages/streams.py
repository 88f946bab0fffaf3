"""The streams of live parts: their route, and their end when the service stops."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.types import Receive, Scope, Send

from tuner.api.pages.live import Hub, NoStream, Stream, Topic
from tuner.api.pages.session import Sessions

_HEADERS = {
    "cache-control": "no-cache, no-store",
    "content-type": "text/event-stream; charset=utf-8",
    "x-accel-buffering": "no",  # nginx would collect the messages
    "x-content-type-options": "nosniff",
}
_LONGEST_QUERY = 4000
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_NO_STREAM = '<hx-partial hx-target="#live" hx-swap="innerHTML">Not live: {}</hx-partial>'
"""Text for the line of a page that says whether it is live; the browser does not try again."""


class LiveRoute:
    """`GET /pages/live/{page}`, as an ASGI app: the stream of the page's live parts.

    Args:
        pages: names of the pages that have live parts.
    """

    def __init__(self, hub: Hub, sessions: Sessions, pages: Collection[str]) -> None:
        self._hub, self._sessions, self._pages = hub, sessions, pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, query = Request(scope), scope["query_string"]
        page = request.path_params["page"]
        page = "" if page == "home" else page
        if page not in self._pages or len(query) > _LONGEST_QUERY:
            raise HTTPException(404)
        topic = Topic(page, query, self._sessions.visitor(request, "").may_write)
        try:
            with self._hub.stream(topic, request.headers.get("last-event-id", "")) as stream:
                if (status := await stream.status()) != 200:
                    raise HTTPException(status)
                await self._send(stream, receive, send, scope["method"] == "HEAD")
        except NoStream as error:
            await HTMLResponse(_NO_STREAM.format(error), error.http_status)(scope, receive, send)

    @staticmethod
    async def _send(stream: Stream, receive: Receive, send: Send, is_head: bool) -> None:
        headers = [(name.encode(), value.encode()) for name, value in _HEADERS.items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        if is_head:
            await send({"type": "http.response.body", "body": b""})
            return

        async def body(message: bytes) -> None:
            await send({"type": "http.response.body", "body": message, "more_body": True})

        if await stream.send_all(body, _disconnected(receive)):
            await send({"type": "http.response.body", "body": b""})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


@contextmanager
def when_stopped(stop: Callable[[], object]) -> Iterator[None]:
    """Call a function in the event loop as soon as the process is asked to end, before the server's own handler.

    The server waits for open responses before it ends the app, and a stream would not end by itself. Without signals,
    as in a thread, nothing is called.
    """
    loop, before = asyncio.get_running_loop(), dict[signal.Signals, Any]()

    def stopping(number: int, frame: FrameType | None) -> None:
        loop.call_soon_threadsafe(stop)
        before[signal.Signals(number)](number, frame)

    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in _SIGNALS}
        before |= {number: handler for number, handler in handlers.items() if callable(handler)}
        for number in before:
            signal.signal(number, stopping)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
