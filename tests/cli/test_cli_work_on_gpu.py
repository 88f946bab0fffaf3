"""Workers on real cards: ended, killed, and side by side."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from time import monotonic

import pytest
from databases import sqlite_store
from helpers import alive, until
from stored import rows

from tuner import catalog
from tuner.db.sqlite import SQLite
from tuner.db.store import Store
from tuner.measure import device

pytestmark = pytest.mark.gpu


store = sqlite_store


def ask(store: Store, op: str, **sizes: int) -> None:
    store.queue.add(catalog.load(op).signature.problem(sizes), device.describe(0).id)


def start(folder: Path, *options: str) -> subprocess.Popen[str]:
    environment = os.environ | {"TUNER_DB": str(folder / "tuner.db"), "TRITON_CACHE_DIR": str(folder / "cache")}
    command = [sys.executable, "-P", "-m", "tuner", "work", *options]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_another_goes_on_where_a_worker_was_ended_or_killed(store: Store, tmp_path: Path) -> None:
    ask(store, "gemm", M=2048)

    def trials() -> int:
        return int(rows(SQLite(tmp_path / "tuner.db"), "SELECT count(*) FROM trials")[0][0])

    for ending, options in ((signal.SIGTERM, ()), (signal.SIGKILL, ("--lease", "2s"))):
        before = trials()
        worker = start(tmp_path, "--trials", "400", *options)
        until(lambda before=before: trials() >= before + 10, 60)  # type: ignore[misc]
        children = descendants(worker.pid)
        worker.send_signal(ending)
        since = monotonic()
        told, _ = worker.communicate(timeout=20)
        assert worker.returncode == (0 if ending is signal.SIGTERM else -9), told
        assert ending is signal.SIGKILL or monotonic() - since < 3
        until(lambda children=children: not any(map(alive, children)), 10)  # type: ignore[misc]
        (job,) = store.queue.jobs(10)
        assert (job.status, job.tries) == (("pending", 0) if ending is signal.SIGTERM else ("running", 1))
    kept = trials()
    worker = start(tmp_path, "--poll", "0.5s", "--trials", str(kept + 10))
    until(lambda: store.queue.jobs(10)[0].status == "done", 90)
    worker.send_signal(signal.SIGTERM)
    told, _ = worker.communicate(timeout=20)
    assert worker.returncode == 0, told
    assert f"job 1  done    {job.problem}  " in told
    (stored,) = store.answers()
    assert stored.settings["known"] >= kept - 5  # what was cut off is tried again
    assert stored.provenance.recorded is None


def test_workers_of_two_cards_share_the_jobs(store: Store, tmp_path: Path) -> None:
    if device.count() < 2:
        pytest.skip("takes two GPUs")
    for M in (256, 512, 1024, 2048, 4096, 8192):
        ask(store, "softmax", M=M)
    workers = [start(tmp_path, "--drain", "--trials", "20", "--gpu", str(gpu)) for gpu in (0, 1)]
    for worker in workers:
        told, _ = worker.communicate(timeout=180)
        assert worker.returncode == 0, told
    jobs = store.queue.jobs(10)
    assert [(job.status, job.tries) for job in jobs] == [("done", 1)] * 6
    assert len(store.answers()) == len(store.runs(20)) == 6
    assert len(Counter(job.worker for job in jobs)) == 2


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found += [int(child), *descendants(int(child))]
    return found
