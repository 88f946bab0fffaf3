"""The client's answer sources: real services, files and databases, and servers that misbehave."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from socket import socket
from time import monotonic, perf_counter, sleep
from typing import Any

import bad_servers
import pytest
from fresh_client import forget
from helpers import A100, H200, OURS, until, usual
from served import GEMM, answer, problem, serving
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from stored import SCALE, answered, config

import tuner
from tuner import Best, best_config, catalog
from tuner.api.app import create_app
from tuner.client import Client, default_client
from tuner.client.settings import ClientSettings, RemoteSettings
from tuner.client.sources import BundleSource, ServiceSource, source_from_environment
from tuner.client.tables import TableCache
from tuner.db.store import Store
from tuner.errors import BadBundle, StoreError
from tuner.lookup import bundle
from tuner.lookup.query import Query
from tuner.records import Environment

DEVICE = H200.id


pytestmark = pytest.mark.usefixtures("nothing_named")


@pytest.fixture
def store(migrated: Path, tmp_path: Path) -> Iterator[Store]:
    """Return a store with GEMMs and with an op without code here."""
    made = Store.open(shutil.copy(migrated, tmp_path / "tuner.db"))
    for M in (64, 4096):
        answer(made, problem(M=M))
    answer(made, problem(M=4096), triton="3.5.0")
    answer(made, problem(M=64), A100)
    answered(made)
    yield made
    made.close()


@pytest.fixture
def snapshot(store: Store, tmp_path: Path) -> Path:
    return exported(store, tmp_path / "answers.json.gz")


def exported(store: Store, file: Path) -> Path:
    bundle.write(file, store.snapshot, [*store.signatures().values()], store.answers())
    return file


class Counted:
    """An app that lists its requests with their status; `wait_s` delays each reply."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.requests: list[tuple[str, int]] = []
        self.wait_s = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def noting(message: Any) -> None:
            if message["type"] == "http.response.start":
                sleep(self.wait_s)
                self.requests.append((f"{scope['path']}?{scope['query_string'].decode()}", message["status"]))
            await send(message)

        await self._app(scope, receive, noting if scope["type"] == "http" else send)


@contextmanager
def service(store: Store, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counted]:
    """Run a service that TUNER_URL names."""
    counted = Counted(create_app(store))
    with serving(counted) as http:
        monkeypatch.setenv("TUNER_URL", str(http.base_url))
        yield counted


class TestThreeSources:
    def test_all_give_the_same_with_the_same_evidence(
        self, store: Store, snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        queries: list[tuple[str, str, int]] = [
            ("gemm", DEVICE, 4096),
            ("gemm", DEVICE, 64),
            ("gemm", A100.id, 64),
            ("scale", DEVICE, 4096),
            ("scale", DEVICE, 7),
            ("nothing", DEVICE, 7),
        ]

        def given() -> list[Best]:
            forget()
            return [best_config(op, device=device, M=M) for op, device, M in queries]

        monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
        of_database = given()
        assert [best.match for best in of_database] == ["exact"] * 4 + ["none"] * 2
        with service(store, monkeypatch):
            assert given() == of_database
        monkeypatch.setenv("TUNER_SNAPSHOT", str(snapshot))
        assert given() == of_database

    def test_all_know_the_same_devices(
        self, store: Store, snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
        assert source_from_environment().devices() == {A100.id, DEVICE}
        assert source_from_environment().ops() == {"gemm", "scale"}
        with service(store, monkeypatch) as counted:
            assert source_from_environment().devices() == {A100.id, DEVICE}
            paged = ServiceSource(os.environ["TUNER_URL"], RemoteSettings(page=1))
            assert paged.ops() == {"gemm", "scale"}
        pages = [f"/kernels?limit=1{after}" for after in ("", "&after=1", "&after=2")]
        assert [request for request, _ in counted.requests] == ["/devices?limit=1000", *pages]
        monkeypatch.setenv("TUNER_SNAPSHOT", str(snapshot))
        assert source_from_environment().devices() == {A100.id, DEVICE}
        assert source_from_environment().ops() == {"gemm", "scale"}

    def test_a_service_that_does_not_list_its_devices_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        async def page(scope: Scope, receive: Receive, send: Send) -> None:
            await PlainTextResponse("hello")(scope, receive, send)

        with serving(page) as http, pytest.raises(StoreError, match="does not list its devices: "):
            ServiceSource(str(http.base_url)).devices()

    def test_a_service_whose_list_does_not_end_is_refused(self) -> None:
        async def page(scope: Scope, receive: Receive, send: Send) -> None:
            await PlainTextResponse('{"items": [{"op": "gemm"}], "next": 7}')(scope, receive, send)

        with serving(page) as http, pytest.raises(StoreError, match="kernels: the page after 7 is followed by itself"):
            ServiceSource(str(http.base_url)).ops()

    def test_the_first_that_is_named_is_the_only_one(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A missing file is not replaced by a service or a database."""
        monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
        monkeypatch.setenv("TUNER_SNAPSHOT", str(tmp_path / "missing.json"))
        with service(store, monkeypatch) as counted:
            for op in ("gemm", "scale"):
                assert best_config(op, device=DEVICE, M=64) == Best(None, "none")
        assert counted.requests == []
        assert caplog.messages == [
            "the kernels' defaults are used until tuner.refresh(), since nothing can be looked up: "
            f"{tmp_path / 'missing.json'} cannot be read: No such file or directory"
        ]

    def test_a_table_that_was_downloaded_is_a_snapshot(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with serving(create_app(store)) as http:
            got = http.get(f"/table?op=gemm&device={DEVICE}")
            (tmp_path / "gemm.json").write_bytes(got.content)
        monkeypatch.setenv("TUNER_SNAPSHOT", str(tmp_path / "gemm.json"))
        assert best_config("gemm", device=DEVICE, M=64).match == "exact"


LIGHT = """
import json, sys
import tuner
best = tuner.best_config("scale", device="nvidia-h200", M=4096)
heavy = {"torch", "triton", "optuna", "sqlalchemy", "alembic", "httpx", "requests"} & sys.modules.keys()
print(json.dumps([best.match, best.config["EVICT"], sorted(heavy)]))
"""


class TestServer:
    def test_a_thousand_keys_make_one_request_for_each_op_and_device(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def ask() -> list[Best]:
            return [
                best_config(op, device=device, M=M)
                for op in ("gemm", "scale")
                for device in (DEVICE, A100.id)
                for M in range(1, 251)
            ]

        with service(store, monkeypatch) as counted:
            first = ask()
        tables = [f"/table?op={op}&device={device}" for op in ("gemm", "scale") for device in (DEVICE, A100.id)]
        assert counted.requests == [(table, 200) for table in tables]
        assert sum(best.match == "exact" for best in first) == 2
        again = ask()  # of nobody: the service is gone
        assert all(a is b for a, b in zip(first, again, strict=True))

    def test_threads_that_ask_at_once_share_a_request(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        given: list[Best] = []
        threads = [
            threading.Thread(target=lambda: given.append(best_config("gemm", device=DEVICE, M=64))) for _ in range(8)
        ]
        with service(store, monkeypatch) as counted:
            counted.wait_s = 0.2
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(counted.requests) == 1
        assert [best.match for best in given] == ["exact"] * 8
        assert len({id(best) for best in given}) == 1

    def test_the_client_needs_nothing_heavy(
        self, store: Store, snapshot: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with service(store, monkeypatch):
            assert printed(LIGHT) == ["exact", "evict_first", []]
        monkeypatch.setenv("TUNER_SNAPSHOT", str(snapshot))
        assert printed(LIGHT) == ["exact", "evict_first", []]

    def test_a_service_that_is_gone_costs_one_warning_and_no_time(
        self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        with bad_servers.server(bad_servers.close) as url:
            pass
        monkeypatch.setenv("TUNER_URL", url)
        catalog.load("softmax")
        began = monotonic()
        for M in range(1, 501):
            assert best_config("gemm", device=DEVICE, M=M) == Best(None, "none")
            assert best_config("softmax", device=DEVICE, M=M) == Best(None, "none")
        assert monotonic() - began < 5
        assert caplog.messages == [
            "the kernels' defaults are used until tuner.refresh(), since nothing can be looked up: "
            f"{url} cannot be reached: Connection refused"
        ]
        took = []
        for _ in range(1000):
            start = perf_counter()
            best_config("gemm", device=DEVICE, M=77)
            took.append(perf_counter() - start)
        assert sorted(took)[500] < 10e-6

    def test_an_invalid_url_is_logged(self, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        for url in ("localhost:8000", "ftp://host", "http://", "http://host:99999", "http://me:secret@host?x=1"):
            forget()
            caplog.clear()
            monkeypatch.setenv("TUNER_URL", url)
            assert best_config("gemm", device=DEVICE, M=64) == Best(None, "none")
            (message,) = caplog.messages
            assert "TUNER_URL is http://HOST:PORT or https://HOST, not" in message
            assert "secret" not in message


class TestI09Rubbish:
    """Bounded in time and size, logged once, and nothing of it reaches a kernel."""

    @pytest.mark.parametrize("behave", [bad_servers.hang, bad_servers.drip_headers, bad_servers.drip_body])
    def test_a_slow_server_is_waited_for_once(
        self, behave: bad_servers.Behaviour, caplog: pytest.LogCaptureFixture
    ) -> None:
        for op in OURS:
            catalog.load(op)  # which takes longer than the wait
        calls = list[object]()

        def counted(connection: socket) -> None:
            calls.append(connection)
            behave(connection)

        with bad_servers.server(counted) as url:
            cache = TableCache(ServiceSource(url, RemoteSettings(timeout_s=0.3)))
            began = monotonic()
            for op in OURS:
                assert cache.best(op, DEVICE, usual(op).values) == (Best(None, "none"), True)
            assert 0.25 < monotonic() - began < 2
            assert len(calls) == 1
            (message,) = caplog.messages
            assert message.endswith(f"{url} did not answer within 0.3 s")
            until(lambda: all(thread.name != "tuner-get" for thread in threading.enumerate()), seconds=2)

    @pytest.mark.parametrize(
        ("behave", "why"),
        [
            (bad_servers.close, "cannot be reached: Remote end closed connection without response"),
            (bad_servers.answering(b"", b"SSH-2.0-OpenSSH_9.6\r\n"), "cannot be reached: SSH-2.0-OpenSSH_9.6"),
            (
                bad_servers.answering(b"<html>", b"HTTP/1.1 404 Not Found\r\n"),
                "answers 404 to a request for a table",
            ),
            (bad_servers.answering(b"[]", b"HTTP/1.1 404 Not Found\r\n"), "answers 404 to a request for a table"),
            (bad_servers.answering(b"", b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n"), "answers 302 to"),
            (bad_servers.answering(b"", b"HTTP/1.1 500 Oops\r\n"), "answers 500 to a request for a table"),
            (bad_servers.answering(b"", b"HTTP/1.1 304 Not Modified\r\n"), "answers 304 to a request for a table"),
            (
                bad_servers.answering(b"x", bad_servers.HEAD + b"A: b\r\n" * 200),
                "cannot be reached: got more than 100 headers",
            ),
            (bad_servers.never_end, "cannot be reached: it sends more than 67,108,864 bytes"),
            (bad_servers.answering(b""), "is no bundle of answers"),
            (bad_servers.answering(b"null"), "is no bundle of answers"),
            (bad_servers.answering(b'{"answers": [}'), "is no bundle of answers"),
            (bad_servers.answering(b'{"sha256":"0'), "ends in its middle"),
            (bad_servers.answering(b'{"sha256":"0","format":1}'), "was altered"),
        ],
        ids=lambda value: value[:40] if isinstance(value, str) else "",
    )
    def test_an_invalid_table_is_logged_once(
        self, behave: bad_servers.Behaviour, why: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        with bad_servers.server(behave) as url:
            cache = TableCache(ServiceSource(url))
            for M in (1, 2):
                assert cache.best("gemm", DEVICE, {"M": M}) == (Best(None, "none"), True)
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert f"nothing can be looked up: {url}" in record.getMessage()
        assert why in record.getMessage()

    def test_answers_with_knobs_that_are_none_are_passed_over_and_the_others_serve(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        document = json.loads(bundle.packed("a:1", [GEMM.signature], store.answers(op="gemm", device=DEVICE)))
        document["answers"][0]["config"]["__class__"] = 1
        document["answers"][1]["config"] |= {"BLOCK_M": "128; import os"}
        with bad_servers.server(bad_servers.answering(bad_servers.signed(document))) as url:
            cache = TableCache(ServiceSource(url))
            assert cache.best("gemm", DEVICE, {"M": 64})[0] == Best(None, "none")
            assert cache.best("gemm", DEVICE, {"M": 4096})[0].match == "exact"  # the third, of an older Triton
        assert caplog.messages[0] == (
            f"{url}: 2 answers are skipped; the first, since a gemm config has the knobs "
            f"{', '.join(knob.name for knob in GEMM.signature.knobs)}, not '__class__'"
        )

    def test_a_signature_that_lies_does_not_make_a_config_fit(
        self, store: Store, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The kernel's own knobs decide, not the signature that comes with the answers."""
        document = json.loads(bundle.packed("a:1", [GEMM.signature], store.answers(op="gemm", device=DEVICE)))
        document["signatures"][0]["knobs"][0]["choices"] = ["x"]
        for record in document["answers"]:
            record["config"]["BLOCK_M"] = "x"
        with bad_servers.server(bad_servers.answering(bad_servers.signed(document))) as url:
            assert TableCache(ServiceSource(url)).best("gemm", DEVICE, {"M": 64})[0] == Best(None, "none")
        (message,) = caplog.messages
        assert "is refused: config: the kernel has no BLOCK_M=x now" in message

    def test_a_table_of_another_op_or_card_answers_nothing(self, store: Store) -> None:
        data = bundle.packed("a:1", [GEMM.signature], store.answers(op="gemm", device=A100.id))
        with bad_servers.server(bad_servers.answering(data)) as url:
            cache = TableCache(ServiceSource(url))
            assert cache.best("gemm", DEVICE, {"M": 64})[0].match == "none"
            assert cache.best("softmax", A100.id, {"M": 64})[0].match == "none"


def refreshed(holds: Callable[[], bool]) -> bool:
    """Return whether a condition holds after a refresh."""
    tuner.refresh()
    return holds()


class TestRefresh:
    def test_newer_answers_come_with_a_refresh(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        with service(store, monkeypatch) as counted:
            before = best_config("gemm", device=DEVICE, M=99)
            assert before.match == "none"
            tuner.refresh()
            assert best_config("gemm", device=DEVICE, M=99) is before
            assert [status for _, status in counted.requests] == [200, 304]
            answer(store, problem(M=7), A100)  # of another card: the snapshot is another, and the table the same
            until(lambda: refreshed(lambda: counted.requests[-1][1] == 200), seconds=3)
            assert best_config("gemm", device=DEVICE, M=99) is before
            assert refreshed(lambda: counted.requests[-1][1] == 304)
            answer(store, problem(M=99))
            until(lambda: refreshed(lambda: best_config("gemm", device=DEVICE, M=99).match == "exact"), seconds=3)
        after = best_config("gemm", device=DEVICE, M=99)
        with pytest.raises(StoreError, match="cannot be reached: Connection refused"):
            tuner.refresh()
        assert best_config("gemm", device=DEVICE, M=99) is after

    def test_a_query_from_before_a_refresh_is_not_kept(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        given: list[Best] = []
        asking = threading.Thread(target=lambda: given.append(best_config("gemm", device=DEVICE, M=64)))
        with service(store, monkeypatch) as counted:
            counted.wait_s = 0.3
            asking.start()
            until(lambda: any(thread.name == "tuner-get" for thread in threading.enumerate()), seconds=5)
            tuner.refresh()
            asking.join()
            again = best_config("gemm", device=DEVICE, M=64)
        assert again == given[0]
        assert again is not given[0]
        assert len(counted.requests) == 2

    def test_a_service_that_was_away_is_read_by_a_refresh(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TUNER_URL", "http://127.0.0.1:9")
        assert best_config("gemm", device=DEVICE, M=64).match == "none"
        with service(store, monkeypatch):
            assert best_config("gemm", device=DEVICE, M=64).match == "none"
            tuner.refresh()
            assert best_config("gemm", device=DEVICE, M=64).match == "exact"

    def test_a_snapshot_that_was_replaced_is_read_and_a_damaged_one_is_not(
        self, store: Store, snapshot: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("TUNER_SNAPSHOT", str(snapshot))
        first = best_config("gemm", device=DEVICE, M=99)
        answer(store, problem(M=99))
        exported(store, snapshot)
        assert best_config("gemm", device=DEVICE, M=99) is first
        assert best_config("gemm", device=DEVICE, M=99, dtype="bf16").match == "none"  # pinned, whatever the wording
        tuner.refresh()
        assert best_config("gemm", device=DEVICE, M=99).match == "exact"
        snapshot.write_bytes(snapshot.read_bytes()[:-9])
        with pytest.raises(BadBundle, match="ends in its middle"):
            tuner.refresh()
        assert best_config("gemm", device=DEVICE, M=99).match == "exact"

    def test_no_query_waits_while_it_is_prepared_and_nothing_is_handed_out_before(
        self, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As tuner.ops compiles: what it prepares is given to it, and served after."""
        monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
        client = Client()
        old = client.best_config("gemm", device=DEVICE, M=99)
        answer(store, problem(M=99))
        preparing, go_on = threading.Event(), threading.Event()
        events: list[object] = []

        def prepare(newer: TableCache, in_background: bool) -> None:
            events.extend([newer.best("gemm", DEVICE, {"M": 99})[0].match, in_background])
            preparing.set()
            assert go_on.wait(10)

        client.on_refresh(prepare, lambda: events.append(client.best_config("gemm", device=DEVICE, M=99).match))
        refreshing = threading.Thread(target=client.refresh)
        refreshing.start()
        assert preparing.wait(10)
        assert client.best_config("gemm", device=DEVICE, M=99) is old
        assert client.best_config("gemm", device=DEVICE, M=4096).match == "exact"  # its first query
        go_on.set()
        refreshing.join()
        assert events == ["exact", False, "exact"]
        assert client.best_config("gemm", device=DEVICE, M=99).match == "exact"


FOLLOWING = """
import json, sys, time
import tuner
ask = lambda: tuner.best_config("gemm", device="nvidia-h200", M=99)
first = ask()
assert ask() is first
print(first.match, flush=True)
slowest, end = 0.0, time.monotonic() + 20
while ask().match == "none" and time.monotonic() < end:
    began = time.perf_counter()
    ask()
    slowest = max(slowest, time.perf_counter() - began)
    time.sleep(0.01)
print(json.dumps([ask().match, slowest]))
"""
IN_A_CHILD = """
import os, sys
import tuner
tuner.best_config("gemm", device="nvidia-h200", M=99)
if os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
"""It asks nothing that its parent did not ask."""


@pytest.mark.parametrize("before", ["", IN_A_CHILD])
def test_a_process_with_an_interval_sees_newer_answers_in_time(
    store: Store, monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    with service(store, monkeypatch):
        monkeypatch.setenv("TUNER_REFRESH_S", "0.2")
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", before + FOLLOWING], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "none\n"
        answer(store, problem(M=99))
        began = monotonic()
        last = json.loads(process.stdout.readline())
        assert monotonic() - began < 2 + 0.2 + 1
        process.communicate()
    assert last[0] == "exact"
    assert last[1] < 0.2


def test_an_invalid_interval_is_logged_and_refreshes_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for nonsense in ("soon", "0", "-1", "nan", "inf"):
        monkeypatch.setenv("TUNER_REFRESH_S", nonsense)
        best_config("gemm", device=DEVICE, M=0)
        assert not default_client().is_refreshing
        forget()
        assert caplog.messages[-1] == (
            f"TUNER_REFRESH_S is a number of seconds, not '{nonsense}'; nothing is refreshed"
        )


RANKS = """
import json, os, threading, time
import tuner, tuner.client.remote
ask = lambda M: tuner.best_config("scale", device="nvidia-h200", M=M)
threading.Thread(target=ask, args=(1,), daemon=True).start()  # a child must not wait for what it holds
time.sleep(0.2)
pipes = []
for rank in range(4):
    reading, writing = os.pipe()
    if os.fork() == 0:
        best = ask(4096)
        os.write(writing, json.dumps([best.match, dict(best.config)]).encode())
        os._exit(0)
    os.close(writing)
    pipes.append(reading)
print(json.dumps([json.loads(os.read(pipe, 10_000)) for pipe in pipes]))
"""


def test_ranks_that_were_forked_while_a_thread_was_asking_agree(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    with service(store, monkeypatch) as counted:
        counted.wait_s = 0.5
        ranks = printed(RANKS)
    assert ranks == [["exact", dict(config())]] * 4


def test_ranks_with_one_snapshot_agree_whatever_is_tuned_meanwhile(
    store: Store, snapshot: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_SNAPSHOT", str(snapshot))
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    first = best_config("gemm", device=DEVICE, M=4096)
    answer(store, problem(M=4096))
    forget()
    assert best_config("gemm", device=DEVICE, M=4096) == first


def test_an_answer_of_another_compiler_is_stale_and_says_which(
    store: Store, snapshot: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same Triton by number with another ptxas, too; as a launch here would compare."""
    table = BundleSource(snapshot).load("gemm", DEVICE).table
    here = Environment("3.6.0", "12.8", "2.11.0", "580.1")
    reasons = {}
    for field, version in (("ptxas", "12.9"), ("triton", "3.7.1"), ("driver", "590.1")):
        query = Query.for_environment(problem(M=64), replace(here, **{field: version}), GEMM.source)
        found = table.find(query)
        assert found.match == "stale"
        assert table.find(replace(query, strict=True)).match == "none"
        reasons[field] = found.stale
    assert reasons == {
        "ptxas": ("ptxas: tuned with 12.8, the query has 12.9",),
        "triton": ("triton: tuned with 3.6.0, the query has 3.7.1",),
        "driver": ("driver: tuned with 580.1, the query has 590.1",),
    }


def test_kept_answers_are_bounded_and_stay_the_same(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    client = Client(settings=ClientSettings(max_answers=100))
    first = client.best_config("gemm", device=DEVICE, M=4096)
    answer(store, problem(M=4096))
    for M in range(1, 301):
        client.best_config("gemm", device=DEVICE, M=M)
        assert client.kept <= 100
    again = client.best_config("gemm", device=DEVICE, M=4096)
    assert again == first
    assert again is not first


def test_the_number_of_tables_is_bounded(
    snapshot: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Names may come from a request."""
    monkeypatch.setenv("TUNER_SNAPSHOT", str(snapshot))
    client = Client(settings=ClientSettings(max_tables=3))
    for op in ("scale", "b", "c", "d", "scale"):
        client.best_config(op, device=DEVICE, M=4096)
    assert len(client.current()) == 3
    assert "a process reads at most 3 tables of an op on a device, so not 'd'" in caplog.messages[-1]
    assert client.best_config("scale", device=DEVICE, M=4096).match == "exact"


def printed(code: str) -> Any:
    """Return what another process prints, as JSON."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, env=os.environ, check=False, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_signature_of_an_op_whose_code_is_not_here_comes_with_its_answers(snapshot: Path) -> None:
    assert bundle.read(snapshot).signatures["scale"] == SCALE
