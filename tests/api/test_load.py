"""The service under load: parallel requests, several worker processes, a search that writes meanwhile, and fuzzing."""

from __future__ import annotations

import os
import socket
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

import httpx
import pytest
from helpers import until
from ports import free_ports
from served import TOKEN, answer, problem

from tuner.cli.serve import listening_on
from tuner.db.store import Store

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    answer(sqlite_store, problem(M=64))
    return sqlite_store


@contextmanager
def writing(store: Store, every_s: float) -> Iterator[list[int]]:
    """Store answers at an interval meanwhile, as a search does; the list given grows by the M of each."""
    written: list[int] = []
    over = threading.Event()

    def write() -> None:
        for size in range(1000, 100_000):
            if over.wait(every_s):
                return
            answer(store, problem(M=size))
            written.append(size)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield written
    finally:
        over.set()
        writer.join()


@contextmanager
def started(db: Path, *options: str, token: str = TOKEN) -> Iterator[tuple[str, subprocess.Popen[str], Path]]:
    """`tuner serve` as a process: its address, itself, and where its stderr goes."""
    (port,) = free_ports(1)
    errors = db.parent / "stderr"
    with errors.open("w") as stderr:
        command = [sys.executable, "-P", "-m", "tuner", "serve", "--port", str(port), "--db", str(db), *options]
        running = subprocess.Popen(command, stderr=stderr, text=True, env=os.environ | {"TUNER_TOKEN": token})
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: answers(url), seconds=60)
        yield url, running, errors
    finally:
        running.terminate()
        assert running.wait(20) in (0, -15)


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has used, in seconds."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def burst(url: str) -> list[int]:
    """Ask 500 questions over 50 connections; return the statuses."""
    paths = ["/best-config?op=gemm&M=64", "/best-config?op=gemm&M=65", "/runs?limit=10", "/table?op=gemm", "/problems"]

    def ask(share: int) -> list[int]:
        with httpx.Client(base_url=url, timeout=30, verify=False) as client:
            return [client.get(paths[(share + number) % len(paths)]).status_code for number in range(10)]

    with ThreadPoolExecutor(50) as threads:
        return [status for share in threads.map(ask, range(50)) for status in share]


def test_five_hundred_at_once_while_a_search_writes(store: Store, tmp_path: Path) -> None:
    """The limit is in CPU time of the service: other processes lengthen a wait, and not that."""
    assert store._engine.pool.size() == 5  # type: ignore[attr-defined]
    with started(tmp_path / "tuner.db", "--no-access-log") as (url, running, errors):
        before = cpu_s(running.pid)
        with writing(store, 0.02) as written:
            statuses = burst(url)
        assert len(statuses) == 500
        assert set(statuses) == {200, 404}
        assert written
        assert cpu_s(running.pid) - before < 3  # 0.5 s on one core of 2025
    assert errors.read_text().count("\n") == 1, errors.read_text()


def test_workers_count_wrong_tokens_together(store: Store, tmp_path: Path) -> None:
    """Each connection may reach another worker; two that count the same one lose one."""
    with started(tmp_path / "tuner.db", "--workers", "4", "--no-access-log") as (url, _, _):
        wrong = {"authorization": "Bearer guess"}
        statuses = [httpx.post(f"{url}/jobs", headers=wrong).status_code for _ in range(40)]
    assert statuses == [403] * 10 + [429] * 30


def test_no_question_waits_for_a_transaction_that_writes(store: Store, tmp_path: Path) -> None:
    """The transaction stays open until all 500 are answered: a question that waited for it would never be."""
    with started(tmp_path / "tuner.db", "--no-access-log") as (url, _, _):
        writer = sqlite3.connect(tmp_path / "tuner.db", isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        statuses = burst(url)
        assert writer.in_transaction
        writer.execute("ROLLBACK")
        writer.close()
    assert len(statuses) == 500
    assert set(statuses) == {200, 404}


def test_two_workers_and_a_writer(store: Store, tmp_path: Path) -> None:
    """Every worker sees what is new, within 2 s if it gets the CPU, and none fails meanwhile."""
    statuses: set[int] = set()
    took_s: list[float] = []
    with started(tmp_path / "tuner.db", "--workers", "2", "--no-access-log") as (url, _, errors):

        def ask(size: int) -> int:
            # A connection of its own: any worker may take it.
            with httpx.Client(base_url=url, timeout=30, verify=False) as anew:
                status = anew.get(f"/best-config?op=gemm&M={size}").status_code
            statuses.add(status)
            return status

        with writing(store, 0.1) as written, ThreadPoolExecutor(4) as askers:
            until(lambda: len(written) > 0)
            for _ in range(4):
                size, began = written[-1], monotonic()
                list(askers.map(ask, [64] * 8))
                while {*askers.map(ask, [size] * 12)} != {200}:
                    assert monotonic() < began + 20
                took_s.append(monotonic() - began)
        together = httpx.get(f"{url}/metrics").text
    assert statuses <= {200, 404}
    assert min(took_s) < 2
    asked = next(line for line in together.splitlines() if line.startswith('tuner_lookups_total{match="exact"'))
    assert float(asked.split()[1]) >= 40  # of all workers together
    assert errors.read_text().count("\n") == 1, errors.read_text()


def test_answers_leave_at_once() -> None:
    """What a connection has from the socket it came by: else head and body of an answer are 40 ms apart."""
    with listening_on("127.0.0.1", 0) as listening:
        listening.listen()
        with socket.create_connection(listening.getsockname()):
            connection, _ = listening.accept()
            with connection:
                assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_it_listens_on_loopback_and_tells_no_token(store: Store, tmp_path: Path) -> None:
    job = {"op": "gemm", "M": 64, "device": "nvidia-h200"}
    with started(tmp_path / "tuner.db") as (url, running, errors):
        for token in (TOKEN, "guess"):
            httpx.post(f"{url}/jobs", json=job, headers={"authorization": f"Bearer {token}"})
        sockets = Path(f"/proc/{running.pid}/net/tcp").read_text()
        port = f"{int(url.rpartition(':')[2]):04X}"
        listening = [line.split()[1] for line in sockets.splitlines() if f":{port} " in line and " 0A " in line]
        assert listening == [f"0100007F:{port}"]
        httpx.get(f"{url}/best-config?op=gemm&M=65")
    told = errors.read_text()
    assert '"path": "/jobs", "status": 201' in told
    assert '"path": "/jobs", "status": 403' in told
    assert TOKEN not in told
    assert "guess" not in told
    assert [asked["count"] for asked in store.requests(10)] == [1]  # written down on the way out


def test_rubbish_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "benchmarks" / "rubbish.py"), "--seconds", "4"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert "nothing was written" in done.stdout
