"""Live parts of pages by server-sent events: each is read and rendered once for all browsers that show it.

A live part is a block of a page's template whose name begins with `live_`; the page shows `live_state` inside of an
element with the id `live-state`. A stream begins with all parts as they are, then sends those that change. So it is
right after a reload, and after a restart of the service, which the browser's reconnection outlasts.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from time import monotonic
from typing import Any

from tuner.errors import TunerError

_log = logging.getLogger("tuner.api")


@dataclass(frozen=True)
class LiveSettings:
    """Intervals and limits of the streams of one process."""

    poll_s: float = 1.0
    """Interval at which what streams show is read, in seconds."""
    share: float = 0.025
    """Largest share of the time that reading takes; the interval grows with the number of pages and their size."""
    streams: int = 100
    """Number of streams at the same time."""
    beat_s: float = 15.0
    """Time without a message after which a comment is sent, in seconds, so that no proxy ends the stream."""
    send_s: float = 10.0
    """Time in which a browser has to take a message, in seconds; a slower one is disconnected."""


SETTINGS = LiveSettings()


class NoStream(TunerError):
    """No further stream can be opened now. The page shows what it showed when it was loaded."""

    http_status = 503


@dataclass(frozen=True)
class Topic:
    """The page of a stream. Streams of the same topic share its parts."""

    page: str
    """Name of the page."""
    query: bytes
    """Query string of the page."""
    may_write: bool
    """True if the page has buttons that change the store."""


@dataclass(frozen=True)
class Parts:
    """The live parts of a page at one moment."""

    texts: Mapping[str, str] = field(default_factory=dict)
    """HTML by the id of its element."""
    is_live: bool = True
    """False if they will not change any more."""
    status: int = 200
    """HTTP status of the page."""

    @cached_property
    def id(self) -> str:
        """Id that parts with the same texts have, in every process."""
        return sha256(repr(sorted(self.texts.items())).encode("utf-8", "replace")).hexdigest()[:16]

    def message(self, before: Mapping[str, str]) -> bytes:
        """Return the event that replaces what a browser has; empty if it has all."""
        changed = {name: text for name, text in self.texts.items() if before.get(name) != text}
        if not changed:
            return b""
        parts = [
            f'<hx-partial hx-target="#{name}" hx-swap="innerMorph">{text}</hx-partial>'
            for name, text in changed.items()
        ]
        lines = "\n".join(parts).replace("\r\n", "\n").replace("\r", "\n").split("\n")
        return "".join([f"id: {self.id}\n", *(f"data: {line}\n" for line in lines), "\n"]).encode("utf-8", "replace")


class _Shown:
    """The newest parts of a topic, and the number of streams that show it."""

    def __init__(self) -> None:
        self.parts: Parts | None = None
        self.streams = 0
        self.changed = asyncio.Event()
        self.reading = asyncio.Lock()

    def put(self, parts: Parts) -> None:
        self.parts = parts
        self.wake()

    def wake(self) -> None:
        """Wake the streams that wait for a change."""
        self.changed.set()
        self.changed = asyncio.Event()


class Hub:
    """Reads the topics of all open streams, as long as there are any.

    Args:
        read: returns the parts of a topic, or None if they cannot be read now. It is awaited by one task at a time.
        sleep: waits for a number of seconds.
        clock: returns a time in seconds.
    """

    def __init__(
        self,
        read: Callable[[Topic], Awaitable[Parts | None]],
        settings: LiveSettings = SETTINGS,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._read, self.settings, self._sleep, self._clock = read, settings, sleep, clock
        self._shown: dict[Topic, _Shown] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def streams(self) -> int:
        """Number of open streams."""
        return sum(shown.streams for shown in self._shown.values())

    def close(self) -> None:
        """End all streams, and refuse further ones."""
        self._is_closed = True
        if self._task is not None:
            self._task.cancel()
        for shown in self._shown.values():
            shown.wake()

    @contextmanager
    def stream(self, topic: Topic, last_id: str = "") -> Iterator[Stream]:
        """Yield a stream of a topic.

        Args:
            last_id: id of the parts that the browser has already.

        Raises:
            NoStream: there are too many, or the service stops.
        """
        if self._is_closed:
            raise NoStream("the service stops")
        if self.streams >= self.settings.streams:
            raise NoStream(f"{self.settings.streams} pages are live already; reload to see the newest state")
        shown = self._shown.setdefault(topic, _Shown())
        shown.streams += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            yield Stream(self, topic, shown, last_id)
        finally:
            shown.streams -= 1
            if not shown.streams:
                del self._shown[topic]

    @property
    def is_closed(self) -> bool:
        """True if all streams end."""
        return self._is_closed

    async def refresh(self, topic: Topic, shown: _Shown, *, once: bool = False) -> None:
        """Read the parts of a topic; with `once`, only if they were never read."""
        async with shown.reading:
            if once and shown.parts is not None:
                return
            try:
                parts = await self._read(topic)
            except Exception:  # noqa: BLE001  a bug; the streams of other pages go on
                _log.exception("the live parts of %s cannot be read", topic.page)
                return
            if parts is not None and (shown.parts is None or parts != shown.parts):
                shown.put(parts)

    async def _poll(self) -> None:
        """Read all topics at an interval, until there is none."""
        took = 0.0
        while True:
            await self._sleep(max(self.settings.poll_s, took / self.settings.share))
            if not self._shown:
                return
            began = self._clock()
            for topic, shown in [*self._shown.items()]:
                await self.refresh(topic, shown)
            took = self._clock() - began


class Stream:
    """The messages for one browser. A browser that is slow misses states, and gets the newest."""

    def __init__(self, hub: Hub, topic: Topic, shown: _Shown, last_id: str) -> None:
        self._hub, self._topic, self._shown, self._last_id = hub, topic, shown, last_id
        self._has: Mapping[str, str] = {}
        self._has_ended = False

    async def send_all(self, send: Callable[[bytes], Awaitable[None]], gone: Awaitable[object]) -> bool:
        """Send the messages until the stream ends; return False if the browser is gone or takes one too slowly.

        Args:
            gone: is done when the browser has closed the connection.
        """
        left = asyncio.ensure_future(gone)
        try:
            while True:
                following = asyncio.ensure_future(self.next())
                await asyncio.wait([following, left], return_when=asyncio.FIRST_COMPLETED)
                if left.done():
                    following.cancel()
                    return False
                message = await following
                if message is None:
                    return True
                await asyncio.wait_for(send(message), self._hub.settings.send_s)
        except TimeoutError:
            _log.info("a browser that was too slow for the live parts of %s was disconnected", self._topic.page)
            return False
        finally:
            left.cancel()
            with suppress(asyncio.CancelledError):
                await left

    async def status(self) -> int:
        """Return the HTTP status of the page."""
        await self._hub.refresh(self._topic, self._shown, once=True)
        return 503 if self._shown.parts is None else self._shown.parts.status

    async def next(self) -> bytes | None:
        """Return the next message, a comment if there is none for a while, or None at the end of the stream."""
        while not self._hub.is_closed:
            changed, parts = self._shown.changed, self._shown.parts
            if parts is not None:
                if self._last_id and parts.id == self._last_id:
                    self._has = parts.texts
                self._last_id = ""
                message = parts.message(self._has)
                self._has = parts.texts
                if not parts.is_live:
                    return self._end(message)
                if message:
                    return message
            try:
                await asyncio.wait_for(changed.wait(), self._hub.settings.beat_s)
            except TimeoutError:
                return b":\n\n"
        return None

    def _end(self, message: bytes) -> bytes | None:
        """Return the last message, after which the browser does not connect again, once."""
        if self._has_ended:
            return None
        self._has_ended = True
        return message + b"event: ended\ndata: \n\n"
