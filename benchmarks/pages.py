"""Cost of the pages: lookups beside open live pages, render times of every page, and memory over many views.

    apt-get install wrk
    python benchmarks/pages.py              # 5 to 10 minutes, on a machine that does nothing else
    python benchmarks/pages.py --smoke      # less than a minute, without wrk

One uvicorn worker over a store with many answers, a search that runs, jobs and retunes. Lookups are sent in pairs of a
few seconds, without live pages and beside them, in alternating order, so that other load of the machine is the same for
both. Pairs are added until the 95 % interval of the median of each ratio is above or below the limit.

It fails if a page is over its limit, if memory grows, or, without --smoke, if the throughput of lookups beside 20 live
pages is 5 % lower, or their median latency or CPU time is 5 % higher. A ratio that is not decided is judged by its
median.
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

from ports import free_ports
from serving import CARD, GEMM, fill, first_answer, problem

from tuner.db.queue import JobFilter
from tuner.db.store import Store
from tuner.records import COLD, Environment, Measurement, Outcome, Provenance
from tuner.records.progress import MEASURING, RunState
from tuner.search.verdict import interval_of_median

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
    "/pages/retunes",
    "/pages/lookup?op=gemm",
    "/pages/sign-in",
)
LIVE = ("/pages/live/run?id={run}", "/pages/live/fleet", "/pages/live/runs")
LOOKUP = "/best-config?op=gemm&M=1&N=1024&K=4096"


@dataclass(frozen=True)
class Limits:
    """Limits beyond which the benchmark fails."""

    first_s: float = 0.3
    """First view of a page after the start of the service, median over its starts. A browser paints after it."""
    again_s: float = 0.15
    """Median of the later views."""
    slower: float = 1.05
    """Time of lookups beside live pages over that without, by throughput, median latency and CPU time."""
    grown_mb: float = 8.0
    """Growth of the memory over all views after those that fill the caches."""


@dataclass(frozen=True)
class Size:
    """Amount of work."""

    answers: int
    trials: int
    pages: int
    """Live pages."""
    pairs: tuple[int, int]
    """Smallest and largest number of pairs."""
    seconds: float
    """Time of one side of a pair."""
    views: int
    starts: int
    """Starts of the service over which first views are taken."""


FULL, SMOKE = Size(20_000, 1_000, 20, (20, 60), 3.0, 1_000, 5), Size(500, 100, 6, (2, 2), 1.0, 120, 1)


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
    (port,) = free_ports(1)
    serving = Path(__file__).with_name("serving.py")
    with log.open("w") as file:
        process = subprocess.Popen([sys.executable, str(serving), "--serve", str(path), str(port)], stderr=file)
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


@dataclass(frozen=True)
class Shown:
    """Views of a page after one start of the service."""

    first_s: float
    first_cpu_s: float
    """CPU time of the service, which other load of the machine changes little."""
    again_s: float
    """Median of the later views."""
    size: int
    """Bytes, compressed."""


def views_of(port: int, pid: int, pages: list[str]) -> list[Shown]:
    """Return the views of each page."""
    connection, shown = http.client.HTTPConnection("127.0.0.1", port), []
    for path in pages:
        before = cpu_s(pid)
        first_s, size = view(connection, path)
        first_cpu_s = cpu_s(pid) - before
        shown.append(Shown(first_s, first_cpu_s, median(view(connection, path)[0] for _ in range(7)), size))
    connection.close()
    return shown


def judge_views(pages: list[str], starts: list[list[Shown]], limits: Limits) -> list[str]:
    """Print the times of each page; return what is over its limit."""
    missed = []
    print("| page | first view, ms | longest, ms | its CPU, ms | later views, ms | KB compressed |")
    print("|---|---|---|---|---|---|")
    for path, *shown in zip(pages, *starts, strict=True):
        firsts = [each.first_s for each in shown]
        first, again, size = median(firsts), median(each.again_s for each in shown), shown[0].size
        cpu = median(each.first_cpu_s for each in shown)
        times = f"{first * 1e3:.0f} | {max(firsts) * 1e3:.0f} | {cpu * 1e3:.0f} | {again * 1e3:.1f}"
        print(f"| `{path}` | {times} | {size / 1024:.1f} |", flush=True)
        if first > limits.first_s or again > limits.again_s:
            missed.append(f"{path} takes {first:.2f} s, then {again:.3f} s")
    return missed


@dataclass(frozen=True)
class Pair:
    """Lookups without live pages and beside them, one right after the other."""

    alone: Load
    beside: Load

    def slower(self, name: str) -> float:
        """Return how much longer lookups take beside live pages by a field of `Load`, as a ratio."""
        alone, beside = getattr(self.alone, name), getattr(self.beside, name)
        return float(alone / beside if name == "rate" else beside / alone)


LABELS = {"rate": "per second", "p50_ms": "p50, ms", "cpu_us": "CPU, us", "p99_ms": "p99, ms"}
"""Fields of `Load` that are printed."""
JUDGED = ("rate", "p50_ms", "cpu_us")
"""Those that are judged. The tail is that of a few lookups, and is printed only."""


def pairs_of(ask: Callable[[], Load], port: int, paths: list[str], size: Size, limits: Limits) -> list[Pair]:
    """Return pairs, as many as are needed to decide."""

    def beside() -> Load:
        with looking(port, paths):
            return ask()

    found, (least, most) = list[Pair](), size.pairs
    ask()
    while len(found) < least or (len(found) < most and not is_decided(found, limits)):
        if len(found) % 2:
            shown = beside()
            found.append(Pair(ask(), shown))
        else:
            found.append(Pair(ask(), beside()))
    return found


def is_decided(pairs: list[Pair], limits: Limits) -> bool:
    """Return whether the interval of the median of each ratio is above or below the limit."""
    intervals = [interval_of_median([pair.slower(name) for pair in pairs]) for name in JUDGED]
    return not any(low <= limits.slower <= high for low, high in intervals)


def judge_lookups(pairs: list[Pair], pages: int, limits: Limits) -> list[str]:
    """Print lookups without and beside live pages; return what is over its limit."""
    print(f"\n| lookups, {len(pairs)} pairs | without | beside {pages} live pages | slower by | 95 % interval |")
    print("|---|---|---|---|---|")
    missed = []
    for name, label in LABELS.items():
        ratios = [pair.slower(name) for pair in pairs]
        alone, shown = (median(getattr(load, name) for load in side) for side in sides(pairs))
        ratio, (low, high) = median(ratios), interval_of_median(ratios)
        print(f"| {label} | {alone:,.2f} | {shown:,.2f} | {ratio:.3f} | {low:.3f} to {high:.3f} |")
        if name in JUDGED and ratio > limits.slower:
            missed.append(f"lookups beside live pages are {ratio:.3f} x slower by {label}")
    if not is_decided(pairs, limits):
        print(f"not decided: an interval holds {limits.slower}; repeat it on a machine that does nothing else")
    return missed


def sides(pairs: list[Pair]) -> tuple[list[Load], list[Load]]:
    return [pair.alone for pair in pairs], [pair.beside for pair in pairs]


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
        pages, starts = [page.format(run=run) for page in PAGES], []
        for _ in range(size.starts):
            with served(path, Path(folder) / "log") as (port, pid):
                starts.append(views_of(port, pid, pages))
        missed = judge_views(pages, starts, limits)
        paths = [LIVE[place % len(LIVE)].format(run=run) for place in range(size.pages)]
        with served(path, Path(folder) / "log") as (port, pid):
            missed += watch_memory(port, pid, pages, size.views, limits)
            ask = by_asking if given.smoke else by_wrk
            with going_on(path, run, size.trials):
                pairs = pairs_of(lambda: ask(port, pid, size.seconds), port, paths, size, limits)
        missed += judge_lookups(pairs, size.pages, limits)
    for each in missed:
        print(f"missed: {each}", file=sys.stderr)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
