"""One PostgreSQL under a fleet of simulated workers, some of which are killed.

    python benchmarks/fleet_database.py               # ten minutes, 100 workers
    python benchmarks/fleet_database.py --smoke       # less than a minute
    python benchmarks/fleet_database.py --folder /dev/shm    # without a disk, whose syncs are most of a commit's time

A worker is a thread, with others in a process, that claims jobs, stores a trial in each interval, renews its lease,
stores an answer and ends its job. Processes are killed with SIGKILL at random, and others take their places; some are
stopped for longer than their leases and go on. A service counts misses and reads answers by id meanwhile. The server is
started here, and shares the cores with the workers.

It is run twice: with one lock over every write, as it was once, and as it is. At the end each acknowledged write is
looked for in the database. The exit code is 1 if one is lost or doubled, a job was done twice, there was a
deadlock or a process failed; and, without --smoke, if a bar is missed: 1,500 trials a second for 100 workers, and a
claim within 50 ms in 99 of 100 cases.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.context import ForkProcess
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from sqlalchemy import Connection, Executable, Row

from tuner.db.location import database_at
from tuner.db.opening import OpenDatabase
from tuner.db.queue import Job, JobFilter
from tuner.db.store import Store, Tip
from tuner.errors import StoreError
from tuner.kernels.spec import Dim, Knob, Problem, Signature
from tuner.records import COLD, Answer, Comparison, Device, Environment, Measurement, Outcome, Provenance
from tuner.tuning.lease import Lease

sys.path.append(str(Path(__file__).parents[1] / "tests"))
from postgres import cluster

FORK = get_context("fork")
TRIALS_PER_S, CLAIM_MS = 15, 50
"""The bars: trials a second of each worker, and the 99th percentile of a claim in ms."""
KNOBS = (Knob("BLOCK", tuple(range(1, 121))), Knob("num_warps", (4,)), Knob("num_stages", (1,)))
FLEET = Signature("fleet", (Dim("M"),), ("fp32",), KNOBS)
CARD = Device("NVIDIA H200", (9, 0), 132, 1 << 37, 1 << 25, 232_448)
HERE = Provenance(CARD, Environment("3.6.0"), "0", COLD.text)
ABLE = [JobFilter(CARD.id, frozenset([FLEET.op]))]
CONFIGS = [FLEET.config({"BLOCK": block, "num_warps": 4, "num_stages": 1}) for block in KNOBS[0].choices]
SERVER = {"fsync": "on", "full_page_writes": "on", "synchronous_commit": "on", "autovacuum": "on"} | {
    "shared_buffers": "128MB",
    "max_connections": "400",
}


@dataclass(frozen=True)
class Load:
    """The load of one phase."""

    workers: int = 100
    threads: int = 10
    """Workers in a process. They share its memory, without which the caches of two cores are too small for 100."""
    seconds: float = 600
    killed: int = 30
    stopped: int = 10
    """Workers that are stopped for longer than their lease."""
    interval_s: float = 0.058
    """Time from one trial of a worker to its next."""
    lease_s: float = 15
    poll_s: float = 1
    warm_up_s: float = 7
    """Time in which the workers start, each at a random moment. What happens then does not count in the figures."""
    one_lock: bool = False
    """True if every write waits for every other."""


class OneLock(OpenDatabase):
    """A database with one lock over every write."""

    @contextmanager
    def write(self) -> Iterator[Connection]:
        with super().write() as connection:
            self.take_turn(connection)
            yield connection

    def put(self, statement: Executable, values: Mapping[str, Any] | None = None) -> Sequence[Row[Any]]:
        with self.write() as connection:
            result = connection.execute(statement, values)
            return result.all() if result.returns_rows else ()


def opened(url: str, load: Load) -> Store:
    if not load.one_lock:
        return Store.open(url)
    database = database_at(url)
    return Store(OneLock(database.engine(writes=True), database).opened())


def problem(number: int) -> Problem:
    return FLEET.problem({"M": number})


class Worker:
    """A simulated worker. It writes a line to its log for each write that the database has acknowledged."""

    def __init__(self, store: Store, name: str, log: Path, load: Load, began: float) -> None:
        self._store, self._name, self._load = store, name, load
        self._warm, self._until = began + load.warm_up_s, began + load.warm_up_s + load.seconds
        self._log = os.open(log, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        self._due = monotonic()

    def work(self, within_s: float) -> None:
        """Do jobs until the time is over, from a random moment on within some seconds."""
        sleep(random.uniform(0, within_s))
        self._store.queue.has_work(ABLE)  # as a job worker asks first
        while monotonic() < self._until:
            try:
                if self.do_one():
                    continue
            except StoreError as error:
                self._write("error")
                print(f"{self._name}: {error}", file=sys.stderr, flush=True)
            sleep(self._load.poll_s * random.uniform(0.5, 1.5))

    def do_one(self) -> bool:
        """Do a job; return whether there was one."""
        queue, began = self._store.queue, monotonic()
        job = queue.claim(self._name, ABLE, self._load.lease_s)
        if self._warm < began < self._until:
            self._write("claimed", round((monotonic() - began) * 1e6))
        if job is not None:
            with Lease(queue, job, self._load.lease_s) as lease:
                self._do(job, lease)
        return job is not None

    def _do(self, job: Job, lease: Lease) -> None:
        store, wanted = self._store, problem(int(job.problem.split()[1].removeprefix("M=")))
        known = {measurement.config for measurement in store.known(FLEET, wanted, HERE)}
        run = store.start_run(FLEET, wanted, HERE, {"known": len(known)})
        self._write("began", job.id, run)
        self._due = monotonic()
        for number, config in enumerate(CONFIGS):
            if config in known:
                continue
            self._due += self._load.interval_s
            sleep(max(0.0, self._due - monotonic()))
            if lease.is_lost or monotonic() > self._until:
                self._write("released" if store.queue.release(job) else "lost", job.id, run)
                return
            samples = tuple(10 + random.random() for _ in range(20))
            store.add_trial(run, Measurement(config, Outcome.OK, samples, compiled_by="pool", registers=128, spills=0))
            self._write("trial", run, number, int(self._warm < monotonic() < self._until))
        answer = Answer(wanted, "tuned", CONFIGS[0], 10.0, (9.9, 10.1), 1.25, (1.2, 1.3), 12.5, None)
        comparison = Comparison((CONFIGS[0].text, CONFIGS[1].text), ((10.0, 12.5),) * 20)
        self._write("answered", store.add_answer(run, answer, HERE, "trials", {"measure": 1.0}, comparison))
        self._write("done" if store.queue.done(job, run) else "lost", job.id, run)

    def _write(self, *words: object) -> None:
        os.write(self._log, (" ".join(map(str, words)) + "\n").encode())


def serve(store: Store, log: Path, ended: Path) -> None:
    """Count misses and read answers by id, as a service does, until a file says that all workers have ended."""
    seen, ids = Tip("", 0, 0), list[int]()
    while True:
        is_last = ended.exists()
        tip = store.tip()
        ids += [stored.id for stored in store.answers_between(seen.answer, tip.answer)]
        seen = tip
        if is_last:
            break
        missed = {(FLEET.op, problem(random.randrange(1, 5000)).text, CARD.id): 1 for _ in range(20)}
        store.count_requests(missed)
        sleep(0.25)
    log.write_text("".join(f"read {id}\n" for id in ids))


class Fleet:
    """The workers of one phase, from their start to their end."""

    def __init__(self, store: Store, folder: Path, load: Load) -> None:
        self.load = load
        self._store, self._folder = store, folder
        self._began = monotonic()
        self._number = 0
        self.failed = 0
        """Processes that ended with an error."""
        self.suspended: list[str] = []
        """Names of the processes that were stopped for a while, in which the server may have ended a transaction."""

    def run(self) -> None:
        load, began = self.load, self._began
        ended = self._folder / "ended"
        service = FORK.Process(target=serve, args=(self._store, self._folder / "service", ended))
        service.start()
        alive = [self._start(load.warm_up_s) for _ in range(load.workers // load.threads)]
        whole = load.warm_up_s + load.seconds
        events = [(random.uniform(0.2, 0.8) * whole, signal.SIGKILL) for _ in range(load.killed // load.threads)]
        events += [(random.uniform(0.2, 0.6) * whole, signal.SIGSTOP) for _ in range(load.stopped // load.threads)]
        stopped = list[tuple[float, ForkProcess]]()
        for at, what in sorted(events):
            sleep(max(0.0, began + at - monotonic()))
            some = random.choice([process for process in alive if process not in {each for _, each in stopped}])
            os.kill(some.pid or 0, what)
            if what == signal.SIGSTOP:
                stopped.append((monotonic() + 1.5 * load.lease_s, some))
                self.suspended.append(some.name)
            else:
                some.join()
                alive.remove(some)
                alive.append(self._start(1))
            stopped = self._go_on(stopped)
        while stopped:
            sleep(0.05)
            stopped = self._go_on(stopped)
        for process in alive:
            process.join()
        ended.touch()
        service.join()
        self.failed += sum(process.exitcode != 0 for process in [*alive, service])

    def _go_on(self, stopped: list[tuple[float, ForkProcess]]) -> list[tuple[float, ForkProcess]]:
        """Let those go on that were stopped for long enough, and return the others."""
        for until, process in stopped:
            if until < monotonic():
                os.kill(process.pid or 0, signal.SIGCONT)
        return [(until, process) for until, process in stopped if until >= monotonic()]

    def _start(self, within_s: float) -> ForkProcess:
        self._number += 1
        name = f"process-{self._number}"
        names = [f"{name}-{thread}" for thread in range(self.load.threads)]
        workers = [Worker(self._store, name, self._folder / name, self.load, self._began) for name in names]
        process = FORK.Process(target=work_at_once, name=name, args=(workers, within_s))
        process.start()
        return process


def work_at_once(workers: Sequence[Worker], within_s: float) -> None:
    """Let workers work in threads, each from a random moment on within some seconds."""
    with ThreadPoolExecutor(len(workers)) as threads:
        for ended in [threads.submit(worker.work, within_s) for worker in workers]:
            ended.result()


@dataclass(frozen=True)
class Figures:
    """The outcome of one phase."""

    trials_per_s: float
    claims: int
    claim_p50_ms: float
    claim_p99_ms: float
    jobs: int
    taken_over: int
    """Jobs that were done by the successor of a worker."""
    wrong: Sequence[str]
    """Faults found, in words."""

    def __str__(self) -> str:
        claims = f"{self.claims} claims, p50 {self.claim_p50_ms:.1f} ms, p99 {self.claim_p99_ms:.1f} ms"
        return (
            f"{self.trials_per_s:,.0f} trials/s; {claims}; {self.jobs} jobs done, {self.taken_over} of them taken over"
        )


def figures(store: Store, folder: Path, fleet: Fleet) -> Figures:
    """Return the figures of a phase, and compare what was acknowledged with what is stored."""
    load = fleet.load
    lines = [line.split() for file in folder.iterdir() for line in file.read_text().splitlines()]

    def logged(word: str) -> list[tuple[int, ...]]:
        return [tuple(map(int, words)) for first, *words in lines if first == word]

    def stored(query: str) -> list[tuple[int, ...]]:
        with store._read() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(query)]

    trials = set(stored("SELECT run_id, (config->>'BLOCK')::int - 1 FROM trials"))
    acknowledged = [(run, number) for run, number, _ in logged("trial")]
    late_errors = [name for name in fleet.suspended for file in folder.glob(f"{name}-*") if "error" in file.read_text()]
    late = [run for _, run in logged("lost")]
    of_others = f"FROM trials JOIN runs ON run_id = runs.id WHERE NOT run_id = ANY(ARRAY{late}::int[])"
    doubled = stored(f"SELECT problem_id {of_others} GROUP BY problem_id, config_text HAVING count(*) > 1")
    done, ended = Counter((job,) for job, _ in logged("done")), set(stored("SELECT id FROM jobs WHERE status = 'done'"))
    answers = set(stored("SELECT id FROM answers"))
    (deadlocks,) = stored("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0]
    counts = {
        "acknowledged trials are lost": len({*acknowledged} - trials),
        "trials are doubled": len(doubled),
        "jobs were done twice": sum(times > 1 for times in done.values()),
        "jobs were done and are not": len(done.keys() - ended),
        "jobs ended without a word of their worker": max(0, len(ended - done.keys()) - load.killed),
        "acknowledged answers are lost": len({*logged("answered")} - answers),
        "answers were skipped by a reader by id": len(answers - {*logged("read")}),
        "deadlocks": deadlocks,
        "processes failed": fleet.failed,
        "errors of workers": len(logged("error")) - len(late_errors),
    }
    claims = sorted(us / 1000 for (us,) in logged("claimed"))
    return Figures(
        trials_per_s=sum(counts for *_, counts in logged("trial")) / load.seconds,
        claims=len(claims),
        claim_p50_ms=claims[len(claims) // 2] if claims else math.nan,
        claim_p99_ms=claims[len(claims) * 99 // 100] if claims else math.nan,
        jobs=len(ended),
        taken_over=len(stored("SELECT id FROM jobs WHERE status = 'done' AND tries > 1")),
        wrong=[f"{count} {what}" for what, count in counts.items() if count],
    )


def phase(url: str, load: Load) -> Figures:
    """Run a phase over an empty database."""
    Store.upgrade(url)
    store = opened(url, load)
    jobs = round(2 * load.workers * (1 + load.seconds / (len(CONFIGS) * load.interval_s)))
    with store._write() as connection:
        row = "INSERT INTO jobs (op, problem, device, priority, status, created_at)"
        row = f"{row} VALUES (%s, %s, %s, %s, 'pending', '')"
        texts = [problem(number + 1).text for number in range(jobs)]
        # A job whose worker was killed is more urgent than all that nobody has had yet, so it is done soon.
        rows = [(FLEET.op, text, CARD.id, jobs - number) for number, text in enumerate(texts)]
        connection.exec_driver_sql(row, rows)
    with tempfile.TemporaryDirectory() as folder:
        store.queue.has_work(ABLE)
        Worker(store, "first", Path(folder) / "first", replace(load, interval_s=0), monotonic()).do_one()
        store.close()  # its connections; what it has compiled is ready for all workers
        fleet = Fleet(store, Path(folder), load)
        fleet.run()
        found = figures(store, Path(folder), fleet)
    store.close()
    return found


def synced(folder: str) -> str:
    """Return the time that the disk of a folder needs to make a write durable, as each commit does, in words."""
    times = list[float]()
    with tempfile.TemporaryFile(dir=folder) as file:
        for _ in range(200):
            file.write(bytes(8192))
            file.flush()
            began = monotonic()
            os.fdatasync(file.fileno())
            times.append(1000 * (monotonic() - began))
    times.sort()
    return f"a sync of {folder} takes {times[100]:.2f} ms, p99 {times[198]:.2f} ms"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=Load.workers)
    parser.add_argument("--seconds", type=float, default=Load.seconds)
    parser.add_argument("--before", type=float, default=30, help="seconds with one lock over every write; 0: none")
    parser.add_argument("--folder", default="/tmp", help="where the server's data are, on the disk to be measured")
    parser.add_argument("--smoke", action="store_true", help="15 seconds, after 5 with the lock; misses no bar")
    given = parser.parse_args(arguments)
    load = Load(workers=given.workers, seconds=given.seconds)
    before = given.before
    if given.smoke:
        load, before = replace(load, seconds=15, lease_s=5, warm_up_s=4), 5
    print(f"{load.workers} workers, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {synced(given.folder)}")
    with cluster(given.folder, **SERVER) as server:
        if before:
            locked = replace(load, seconds=before, one_lock=True, killed=0, stopped=0, lease_s=60)
            print(f"one lock over every write, {before:g} s: {phase(server.url, locked)}", flush=True)
        after = phase(server.empty(), load)
        print(f"as it is, {load.seconds:g} s, {load.killed} workers killed: {after}; then {synced(given.folder)}")
    missed = [*after.wrong]
    if not given.smoke and after.trials_per_s < TRIALS_PER_S * load.workers:
        missed.append(f"fewer than {TRIALS_PER_S * load.workers:,} trials/s")
    if not given.smoke and after.claim_p99_ms > CLAIM_MS:
        missed.append(f"a claim takes more than {CLAIM_MS} ms in one of 100 cases")
    print("\n".join(missed) or "no acknowledged write lost or doubled, no job done twice, no deadlock")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
