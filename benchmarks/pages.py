"""Cost of the pages: lookups beside open live pages, render times of every page, and memory over many views.

    apt-get install wrk
    python benchmarks/pages.py              # a few minutes
    python benchmarks/pages.py --smoke      # less than a minute, without wrk

One uvicorn worker over a store with many answers, a search that runs, jobs and retunes. Lookups are sent in turns of a
few seconds, one without live pages and one beside them, so that other load of the machine meets both alike. The
medians over the turns are printed. It fails if a page is over its limit, or memory grows; without --smoke also if
lookups beside 20 live pages take 5 % more CPU time or have a median latency that is 5 % longer. The worker is busy all
the time, so its throughput is the inverse of this CPU time wherever nothing else runs.
"""

from __future__ import annotations

import argparse
import http.client
import os
import re
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice, product
from pathlib import Path
from statistics import median
from threading import Event, Thread
from time import monotonic, perf_counter

from serving import CARD, GEMM, fill, first_answer, problem

from tuner.db.queue import JobFilter
from tuner.db.store import Store
from tuner.records import COLD, Environment, Measurement, Outcome, Provenance
from tuner.records.progress import MEASURING, RunState

PAGES = (
    "/",
    "/pages/coverage?op=gemm",
    "/pages/compare",
    "/pages/problem?op=gemm&M=1&N=1024&K=4096&device=nvidia-h200",
    "/pages/runs",
    "/pages/run?id=1",
    "/pages/run?id={run}",
    "/pages/fleet",
    "/pages/job?id=1",
    "/pages/nights",
    "/pages/lookup?op=gemm",
    "/pages/sign-in",
)
LIVE = ("/pages/live/run?id={run}", "/pages/live/fleet", "/pages/live/runs")
LOOKUP = "/best-config?op=gemm&M=1&N=1024&K=4096"


@dataclass(frozen=True)
class Limits:
    """Limits beyond which the benchmark fails."""

    first_s: float = 1.0
    """First view of a page after the start."""
    again_s: float = 0.15
    """Median of the later views. The machine may be busy: pages take 5 to 40 ms on an idle one."""
    slower: float = 1.05
    """Lookups beside live pages over those without."""
    grown_mb: float = 8.0
    """Growth of the memory over all views after those that fill the caches."""


@dataclass(frozen=True)
class Size:
    """Amount of work."""

    answers: int
    trials: int
    pages: int
    """Live pages."""
    turns: int
    seconds: float
    """Time of a turn."""
    views: int


FULL, SMOKE = Size(20_000, 1_000, 20, 12, 4.0, 1_000), Size(500, 100, 6, 2, 1.0, 120)


def fill_work(path: Path, trials: int) -> int:
    """Store jobs, and a run that goes on; return its id."""
    store = Store.open(path)
    provenance = Provenance(CARD, Environment("3.6.0", "12.8", "2.11.0", "580.1"), GEMM.source, COLD.text, None, "0")
    for number in range(40):
        store.queue.add(problem(number), CARD.id)
    for _ in range(10):
        job = store.queue.claim("node-1", [JobFilter(CARD.id, frozenset(["gemm"]))], 3600)
        assert job is not None
        store.queue.failed(job, "RuntimeError: an error\n" + "of many lines\n" * 50)
    settings = {"trials": 5_000, "space": 5_000, "budget_s": 36_000, "known": 0}
    run = store.start_run(GEMM.signature, problem(7), provenance, settings)
    for measurement in measurements(trials):
        store.add_trial(run, measurement)
    store.close()
    return run


def measurements(count: int, start: int = 0) -> Iterator[Measurement]:
    """Yield measurements of different configs, every tenth of them a failure."""
    default = GEMM.default_config(problem(7), CARD.limits)
    varied = [knob for knob in GEMM.signature.knobs if knob.name in ("BLOCK_M", "BLOCK_N", "BLOCK_K", "num_warps")]
    choices = cycle(product(*(knob.choices for knob in varied)))
    for number, values in enumerate(islice(choices, start, start + count), start):
        config = GEMM.signature.config({**default, **dict(zip((knob.name for knob in varied), values, strict=True))})
        if number % 10 == 9:
            yield Measurement(config, Outcome.CRASHED, stage="time", error=f"RuntimeError: {number % 7}")
        else:
            yield Measurement(config, Outcome.OK, (100.0 + 1000 / (number + 1),) * 3, stage="time")


@contextmanager
def served(path: Path, log: Path) -> Iterator[tuple[int, int]]:
    """Yield port and process id of a service."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serving = Path(__file__).with_name("serving.py")
    with log.open("w") as file:
        process = subprocess.Popen([sys.executable, "-P", str(serving), "--serve", str(path), str(port)], stderr=file)
    try:
        first_answer(port)
        yield port, process.pid
    finally:
        process.terminate()
        process.wait()


@contextmanager
def going_on(path: Path, run: int, start: int) -> Iterator[None]:
    """Add 5 trials a second to a run while entered, and a state each second, as a search does."""
    over = Event()

    def write() -> None:
        store = Store.open(path)
        for place, measurement in enumerate(measurements(1_000_000, start)):
            store.add_trial(run, measurement)
            if place % 5 == 0:
                state = RunState(MEASURING, 5, 2, measurement.config.text)
                store.progress.write([run], "node-1:42", state)
            if over.wait(0.2):
                break
        store.close()

    thread = Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def looking(port: int, paths: list[str]) -> Iterator[None]:
    """Keep live pages open while entered; what they get is read and discarded."""
    over, selector, opened = Event(), selectors.DefaultSelector(), []
    for path in paths:
        connection = socket.create_connection(("127.0.0.1", port))
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n".encode())
        assert b"200 OK" in connection.recv(65536), path
        selector.register(connection, selectors.EVENT_READ)
        opened.append(connection)

    def read() -> None:
        while not over.is_set():
            for key, _ in selector.select(0.1):
                key.fileobj.recv(65536)  # type: ignore[union-attr]

    thread = Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        for connection in opened:
            connection.close()


@dataclass(frozen=True)
class Load:
    """Lookups in one turn."""

    rate: float
    """Lookups per second."""
    p50_ms: float
    p99_ms: float
    cpu_us: float
    """CPU time of the service for each lookup, everything else that it does in this time included."""


def by_wrk(port: int, pid: int, seconds: float) -> Load:
    """Return what 4 connections get that ask all the time."""
    before = cpu_s(pid)
    command = ["wrk", "-t1", "-c4", f"-d{seconds:.0f}s", "--latency", f"http://127.0.0.1:{port}{LOOKUP}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert "Non-2xx" not in done, done
    used = cpu_s(pid) - before

    def of(pattern: str) -> float:
        found = re.search(rf"{pattern}\s+([\d.]+)(us|ms|s)?", done)
        assert found, done
        return float(found[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3, None: 1.0}[found[2]]

    count = int(re.findall(r"(\d+) requests in", done)[0])
    return Load(of("Requests/sec:"), of("50%"), of("99%"), 1e6 * used / count)


def by_asking(port: int, pid: int, seconds: float) -> Load:
    """Return what one connection gets that asks all the time."""
    before, connection, taken = cpu_s(pid), http.client.HTTPConnection("127.0.0.1", port), list[float]()
    end = monotonic() + seconds
    while monotonic() < end:
        began = perf_counter()
        connection.request("GET", LOOKUP)
        connection.getresponse().read()
        taken.append(perf_counter() - began)
    connection.close()
    ordered = sorted(taken)
    used = cpu_s(pid) - before
    p50, p99 = ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100]
    return Load(len(taken) / seconds, 1e3 * p50, 1e3 * p99, 1e6 * used / len(taken))


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_mb(pid: int) -> float:
    return int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())[0]) / 1024


def view(connection: http.client.HTTPConnection, path: str) -> tuple[float, int]:
    """Return the seconds that a page takes, and its compressed size in bytes."""
    began = perf_counter()
    connection.request("GET", path, headers={"Accept-Encoding": "gzip"})
    response = connection.getresponse()
    size = len(response.read())
    assert response.status == 200, (path, response.status)
    return perf_counter() - began, size


def render(port: int, pages: list[str], limits: Limits) -> list[str]:
    """Print the times of each page; return what is over its limit."""
    connection, missed = http.client.HTTPConnection("127.0.0.1", port), []
    print("| page | first view, ms | later views, ms | KB compressed |")
    print("|---|---|---|---|")
    for path in pages:
        first, size = view(connection, path)
        again = median(view(connection, path)[0] for _ in range(7))
        print(f"| `{path}` | {first * 1e3:.0f} | {again * 1e3:.1f} | {size / 1024:.1f} |", flush=True)
        if first > limits.first_s or again > limits.again_s:
            missed.append(f"{path} takes {first:.2f} s, then {again:.3f} s")
    connection.close()
    return missed


def beside(ask: Callable[[], Load], port: int, size: Size, run: int, limits: Limits) -> list[str]:
    """Print lookups without and beside live pages; return what is over its limit."""
    paths = [LIVE[place % len(LIVE)].format(run=run) for place in range(size.pages)]
    ask()
    alone, shown = list[Load](), list[Load]()
    for _ in range(size.turns):
        alone.append(ask())
        with looking(port, paths):
            shown.append(ask())
    print(f"\n| lookups | without | beside {size.pages} live pages | ratio |")
    print("|---|---|---|---|")
    ratios = {}
    for name, label in (("rate", "per second"), ("p50_ms", "p50, ms"), ("p99_ms", "p99, ms"), ("cpu_us", "CPU, us")):
        sides = [[getattr(load, name) for load in loads] for loads in (alone, shown)]
        ratios[name] = median(b / a for a, b in zip(*sides, strict=True))
        print(f"| {label} | {median(sides[0]):,.2f} | {median(sides[1]):,.2f} | {ratios[name]:.3f} |")
    slower = max(ratios["cpu_us"], ratios["p50_ms"])
    return [f"lookups beside live pages take {slower:.3f} x as long"] if slower > limits.slower else []


def watch_memory(port: int, pid: int, pages: list[str], views: int, limits: Limits) -> list[str]:
    """Print the memory over many views of all pages; return what is over its limit."""
    connection, taken = http.client.HTTPConnection("127.0.0.1", port), list[float]()
    for number in range(views):
        view(connection, pages[number % len(pages)])
        if number % max(1, views // 10) == 0:
            taken.append(memory_mb(pid))
    taken.append(memory_mb(pid))
    connection.close()
    print(f"\nmemory over {views:,} views, MB: {', '.join(f'{each:.1f}' for each in taken)}")
    grown = taken[-1] - taken[len(taken) // 3]
    return [f"memory grew by {grown:.1f} MB"] if grown > limits.grown_mb else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--smoke", action="store_true", help="less than a minute, without wrk; misses no bar of speed")
    given = parser.parse_args()
    size, limits = (SMOKE, Limits(first_s=10, again_s=5, slower=10)) if given.smoke else (FULL, Limits())
    if not given.smoke and shutil.which("wrk") is None:
        parser.error("wrk is missing; apt-get install wrk")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tuner.db"
        fill(path, size.answers)
        run = fill_work(path, size.trials)
        with served(path, Path(folder) / "log") as (port, pid):
            pages = [page.format(run=run) for page in PAGES]
            missed = render(port, pages, limits)
            missed += watch_memory(port, pid, pages, size.views, limits)
            ask = by_asking if given.smoke else by_wrk
            with going_on(path, run, size.trials):
                missed += beside(lambda: ask(port, pid, size.seconds), port, size, run, limits)
    for each in missed:
        print(f"missed: {each}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
