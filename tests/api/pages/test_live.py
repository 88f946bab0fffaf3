"""Streams of live parts: by a scripted clock, and over a real connection."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
from databases import sqlite_store
from helpers import until
from served import TOKEN, problem, serving
from stored import HERE, PROBLEM, SCALE, config, measured

from tuner.api.app import create_app
from tuner.api.pages.live import SETTINGS, Hub, LiveSettings, NoStream, Parts, Stream, Topic
from tuner.api.pages.streams import when_stopped
from tuner.db.store import Store
from tuner.records import Measurement, Outcome
from tuner.records.progress import MEASURING, RunState

RUN = Topic("run", b"id=1", False)


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0
        self._sleeping: list[tuple[float, asyncio.Event]] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        awake = asyncio.Event()
        self._sleeping.append((self.now + seconds, awake))
        await awake.wait()

    async def move(self, seconds: float) -> None:
        self.now += seconds
        for at, awake in self._sleeping:
            if at <= self.now:
                awake.set()
        self._sleeping = [(at, awake) for at, awake in self._sleeping if not awake.is_set()]
        await settle()


async def settle() -> None:
    """Let all tasks go on until each waits."""
    for _ in range(20):
        await asyncio.sleep(0)


class Source:
    """Parts that a test sets, and the number of reads."""

    def __init__(self, clock: Clock | None = None, takes_s: float = 0.0) -> None:
        self.parts: Parts | None = Parts({"live-a": "one", "live-b": "two"})
        self.reads = 0
        self._clock, self._takes_s = clock, takes_s

    async def __call__(self, topic: Topic) -> Parts | None:
        self.reads += 1
        if self._clock is not None:
            self._clock.now += self._takes_s
        return self.parts


def hub_of(source: Source, clock: Clock, **settings: Any) -> Hub:
    return Hub(source, LiveSettings(**settings), clock.sleep, clock)


def story(act: Callable[[Source, Clock], Awaitable[None]], **source: Any) -> None:
    async def run() -> None:
        clock = Clock()
        await act(Source(clock, **source), clock)

    asyncio.run(run())


async def opened(stream: Stream) -> str:
    assert await stream.status() == 200
    await settle()
    return str((await stream.next() or b"").decode())


class TestHub:
    def test_a_stream_begins_with_all_parts_and_goes_on_with_those_that_change(self) -> None:
        async def act(source: Source, clock: Clock) -> None:
            with hub_of(source, clock).stream(RUN) as stream:
                first = await opened(stream)
                assert re.findall(r'hx-target="#(live-.)"', first) == ["live-a", "live-b"]
                assert first.startswith("id: ")
                assert first.endswith("\n\n")
                source.parts = Parts({"live-a": "one", "live-b": "three\r\nlines\rhere"})
                following = asyncio.ensure_future(stream.next())
                await settle()
                assert not following.done()
                await clock.move(SETTINGS.poll_s)
                second = (await following or b"").decode()
                assert 'hx-target="#live-a"' not in second
                assert "data: lines\ndata: here</hx-partial>\n" in second

        story(act)

    def test_all_streams_of_a_topic_share_its_reads(self) -> None:
        async def act(source: Source, clock: Clock) -> None:
            hub = hub_of(source, clock)
            with hub.stream(RUN) as one, hub.stream(RUN) as other, hub.stream(Topic("run", b"id=2", False)) as third:
                assert len({await opened(each) for each in (one, other, third)}) == 1
                assert (source.reads, hub.streams) == (2, 3)
                await clock.move(SETTINGS.poll_s)
                assert source.reads == 4
            assert hub.streams == 0
            await clock.move(SETTINGS.poll_s)
            await clock.move(SETTINGS.poll_s)
            assert source.reads == 4  # nothing is read while nobody looks

        story(act)

    def test_slow_reads_are_made_less_often(self) -> None:
        async def act(source: Source, clock: Clock) -> None:
            with hub_of(source, clock, share=0.1).stream(RUN) as stream:
                await opened(stream)
                await settle()
                await clock.move(1.0)
                assert source.reads == 2  # which took 0.5 s
                await clock.move(4.9)
                assert source.reads == 2
                await clock.move(0.2)
                assert source.reads == 3

        story(act, takes_s=0.5)

    def test_a_browser_that_has_the_state_gets_the_next_one(self) -> None:
        async def act(source: Source, clock: Clock) -> None:
            assert source.parts is not None
            hub = hub_of(source, clock, beat_s=0.001)
            with hub.stream(RUN, source.parts.id) as stream:
                assert await opened(stream) == ":\n\n"
                source.parts = Parts({"live-a": "one", "live-b": "new"})
                await clock.move(SETTINGS.poll_s)
                assert b"live-a" not in (await stream.next() or b"")
            with hub.stream(RUN, "of another server") as stream:
                assert "live-a" in await opened(stream)

        story(act)

    def test_a_state_that_cannot_be_read_or_ends(self) -> None:
        async def act(source: Source, clock: Clock) -> None:
            with hub_of(source, clock, beat_s=0.001).stream(RUN) as stream:
                await opened(stream)
                source.parts = None
                await clock.move(SETTINGS.poll_s)
                assert await stream.next() == b":\n\n"
                source.parts = Parts({"live-a": "the end"}, is_live=False)
                await clock.move(SETTINGS.poll_s)
                last = await stream.next() or b""
                assert last.endswith(b"event: ended\ndata: \n\n")
                assert b"the end" in last
                assert await stream.next() is None

        story(act)

    def test_a_bug_costs_no_stream_and_is_logged_once(self, caplog: pytest.LogCaptureFixture) -> None:
        async def act(source: Source, clock: Clock) -> None:
            is_broken = True

            async def read(topic: Topic) -> Parts | None:
                if is_broken and topic == RUN:
                    raise KeyError("a bug")
                return await source(topic)

            hub = Hub(read, LiveSettings(beat_s=0.001), clock.sleep, clock)
            with hub.stream(RUN) as stream, hub.stream(Topic("fleet", b"", False)) as other:
                assert await stream.status() == 503
                assert "live-a" in await opened(other)
                for _ in range(3):
                    await clock.move(SETTINGS.poll_s)
                assert [record.message for record in caplog.records] == ["the live parts of run cannot be read"]
                is_broken = False
                assert "live-a" in await opened(stream)

        story(act)

    def test_there_are_a_limited_number_and_none_once_it_stops(self) -> None:
        async def act(source: Source, clock: Clock) -> None:
            hub = hub_of(source, clock, streams=2)
            with hub.stream(RUN) as stream, hub.stream(RUN):
                with pytest.raises(NoStream, match="2 pages are live already"), hub.stream(RUN):
                    pass
                await opened(stream)
                following = asyncio.ensure_future(stream.next())
                await settle()
                hub.close()
                assert await following is None
            with pytest.raises(NoStream, match="stops"), hub.stream(RUN):
                pass

        story(act)

    def test_a_browser_that_is_slow_or_gone_is_left(self) -> None:
        async def act(source: Source, clock: Clock) -> None:
            hub = hub_of(source, clock, send_s=0.01)
            sent: list[bytes] = []

            async def keep(message: bytes) -> None:
                sent.append(message)

            async def hang(message: bytes) -> None:
                await asyncio.Event().wait()

            gone = asyncio.Event()
            with hub.stream(RUN) as stream:
                await stream.status()
                assert not await stream.send_all(hang, asyncio.Event().wait())
            with hub.stream(RUN) as stream:
                await stream.status()
                sending = asyncio.ensure_future(stream.send_all(keep, gone.wait()))
                await settle()
                assert len(sent) == 1
                gone.set()
                assert not await sending
            with hub.stream(RUN) as stream:
                await stream.status()
                sending = asyncio.ensure_future(stream.send_all(keep, asyncio.Event().wait()))
                await settle()
                sending.cancel()  # as a server does whose time to stop is up
                await asyncio.wait([sending])
                left = [task.get_coro().__qualname__ for task in asyncio.all_tasks()]  # type: ignore[union-attr]
                assert "Stream.next" not in left

        story(act)

    def test_signals_stop_it_before_the_server(self) -> None:
        import os
        import signal

        async def act() -> list[str]:
            stopped: list[str] = []
            before = signal.signal(signal.SIGTERM, lambda number, frame: stopped.append("server"))
            try:
                with when_stopped(lambda: stopped.append("streams")):
                    os.kill(os.getpid(), signal.SIGTERM)
                    await asyncio.sleep(0.01)
            finally:
                signal.signal(signal.SIGTERM, before)
            return stopped

        assert sorted(asyncio.run(act())) == ["server", "streams"]


store = sqlite_store


@pytest.fixture
def client(store: Store) -> Iterator[httpx.Client]:
    with serving(create_app(store, token=TOKEN)) as made:
        yield made


def parts(response: httpx.Response) -> Iterator[dict[str, str]]:
    """Yield the parts of each event, and `{"event": name}` for one with a name."""
    lines: list[str] = []
    for line in response.iter_lines():
        if line:
            lines.append(line)
            continue
        data = "\n".join(each.removeprefix("data: ") for each in lines if each.startswith("data:"))
        named = [each.removeprefix("event: ") for each in lines if each.startswith("event:")]
        if data.strip():
            yield dict(re.findall(r'<hx-partial hx-target="#([a-z-]+)"[^>]*>(.*?)</hx-partial>', data, re.DOTALL))
        yield from ({"event": name} for name in named)
        lines = []


class TestStreams:
    def test_a_run_is_followed_to_its_end(self, store: Store, client: httpx.Client) -> None:
        run = store.start_run(SCALE, PROBLEM, HERE, {"trials": 3, "space": 100, "budget_s": 60})
        store.add_trial(run, measured(10.0, 64))
        with client.stream("GET", f"/pages/live/run?id={run}") as response:
            assert response.status_code == 200
            assert response.headers["content-type"].startswith("text/event-stream")
            events = parts(response)
            first = next(events)
            assert "10.00" in first["live-figures"]
            assert "running" in first["live-state"]
            store.progress.write([run], "node:1", RunState(MEASURING, 5, 2, config(128).text))
            store.add_trial(run, Measurement(config(128), Outcome.CRASHED, error="<b>\x1b[31mboom\x1b[0m</b>\nmore"))
            changed: dict[str, str] = {}
            while "boom" not in changed.get("live-failures", ""):
                changed |= next(events)
            assert "&lt;b&gt;boom&lt;/b&gt;" in changed["live-failures"]
            assert "5 configs compiling" in changed["live-state"]
            assert config(128).text in changed["live-state"]
            store.end_run(run, "failed", "trials", {})
            while changed.get("event") != "ended":
                changed = next(events)
            assert list(events) == []
        page = client.get(f"/pages/run?id={run}").text
        assert "data-stream" not in page
        assert "It stored no answer" in page

    def test_what_is_not_there_and_what_is_not_live(self, client: httpx.Client) -> None:
        for path, status in (("run?id=7", 404), ("run", 422), ("sign-in", 404), ("nothing", 404), ("fleet?x=1", 422)):
            assert client.get(f"/pages/live/{path}").status_code == status, path
        assert client.post("/pages/live/run?id=1").status_code == 401
        assert client.head("/pages/live/fleet").headers["content-type"].startswith("text/event-stream")

    def test_a_closed_connection_frees_its_stream(self, store: Store) -> None:
        app = create_app(store)
        with serving(app) as client:
            with client.stream("GET", "/pages/live/fleet") as response:
                assert "live-figures" in next(parts(response))
            until(lambda: not [task for task in app_streams(app) if task])

    def test_buttons_are_for_those_who_may_write(self, store: Store, client: httpx.Client) -> None:
        from tuner.db.queue import JobFilter
        from tuner.db.settings import SETTINGS as STORE_SETTINGS

        store.queue.add(problem(M=1), "nvidia-h200")
        for _ in range(STORE_SETTINGS.job_tries):
            job = store.queue.claim("me", [JobFilter("nvidia-h200", frozenset(["gemm"]))], 60)
            assert job is not None
            store.queue.failed(job, "no memory")
        origin = str(client.base_url).rstrip("/")
        for may_write in (False, True):
            if may_write:
                client.post("/pages/sign-in", data={"token": TOKEN}, headers={"origin": origin})
            with client.stream("GET", "/pages/live/fleet") as response:
                assert ("Try again" in next(parts(response))["live-failed"]) is may_write
            page = client.get("/pages/fleet").text
            assert ('id="retry"' in page) is may_write


def app_streams(app: Any) -> list[int]:
    """Return the number of open streams of an app."""
    from tuner.api.pages.streams import LiveRoute

    routes = [route.endpoint for route in app.routes if isinstance(getattr(route, "endpoint", None), LiveRoute)]
    return [route._hub.streams for route in routes]
