"""Recorded spaces on a real cluster that loses a node, compared with a local search.

    python benchmarks/fleet.py --scheduler slurm|ray|dask|local [--smoke]

Needs PostgreSQL, for the shared store, and the scheduler: SLURM's daemons (Debian: slurmctld, slurmd, munge; as root),
the extra `ray` or the extra `dask`. Each problem is searched exhaustively, so that a search that was cut off and goes
on elsewhere measures the same configs as one that was not.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from threading import Thread
from time import monotonic, sleep
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from fleet_clusters import CLUSTERS, Cluster
from postgres import cluster as postgresql

from tuner import recorded
from tuner.db import schema
from tuner.db.store import Store

SMOKE = (
    "gemm-16x14336x4096-fp16-nvidia-h200",
    "gemm-16x4096x4096-bf16-nvidia-h200",
    "gemm-1x4096x4096-bf16-nt-nvidia-h200",
    "gemm-2048x2048x2048-fp32-tf32-nvidia-h200",
    "transpose-8192x8192-bf16-nvidia-h200",
)
"""Recorded spaces of the short form."""
NODES = 2
COMPARED = ("op", "problem", "device", "kind", "config", "latency_us", "interval_us", "speedup", "tried")
"""Fields in which the answers of both runs have to be equal."""
_ENDED = re.compile(r" *(\d+)/(\d+)  .*?(?:  \((.*)\))?$")


def suite(folder: Path, *, smoke: bool) -> Path:
    """Write a suite of all problems recorded on an H200, or of a few."""
    spaces = [recorded.load(name) for name in (SMOKE if smoke else recorded.names()) if name.endswith("h200")]
    problems = {space.problem.text: {"op": space.problem.op, **space.problem.values} for space in spaces}
    file = folder / "recorded.json"
    file.write_text(json.dumps([*problems.values()]))
    return file


def search(file: Path, database: str, on: Cluster | None = None) -> tuple[list[dict[str, Any]], float, Counter[str]]:
    """Return the rows of a search of the suite, its seconds, and the number of tasks that each node ended.

    Args:
        on: where to run it; None is this process. It loses a node in the middle.
    """
    how = ["--replay", "auto", "--effort", "exhaustive", "--no-warm-start", "--json"]
    command = [sys.executable, "-P", "-m", "tuner", "search", "--suite", str(file), *how]
    environment = os.environ | {"TUNER_DB": database} | (on.environment if on else {})
    started, places = monotonic(), Counter[str]()
    process = subprocess.Popen(
        [*command, *(["--on", on.on] if on else [])],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    assert process.stdout is not None
    for line in process.stderr:
        print(f"  {monotonic() - started:5.1f} s  {line.rstrip()}", flush=True)
        ended = _ENDED.match(line.rstrip())
        if ended and on:
            places[ended[3]] += 1
            if int(ended[1]) == 1:
                Thread(target=lose, args=[on, process.pid, database], daemon=True).start()
    printed = process.stdout.read()
    if process.wait() != 0 or not printed.startswith("{"):
        raise SystemExit(f"the search ended with code {process.returncode} and printed {printed[:2000]}")
    document = json.loads(printed)
    return document["rows"], monotonic() - started, places


def lose(on: Cluster, search: int, database: str) -> None:
    """Lose a node once each has a search under way."""
    store = Store.open(database)
    while sum(row["status"] == "running" for row in store.rows(schema.RunRow, 1000)) < NODES:
        sleep(0.05)
    store.close()
    print(f"           lost: {on.lose(search)}", flush=True)


def differences(rows: Sequence[Mapping[str, Any]], others: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for each field in which two lists of rows differ."""
    if len(rows) != len(others):
        return [f"{len(rows)} rows and {len(others)}"]
    return [
        f"{row['problem']}: {name} is {row[name]} and {other[name]}"
        for row, other in zip(rows, others, strict=True)
        for name in COMPARED
        if row[name] != other[name]
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheduler", choices=[*CLUSTERS], required=True)
    parser.add_argument("--smoke", action="store_true", help="a few small problems, in at most a minute")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tuner-fleet-", dir="/tmp") as name, postgresql() as server:
        folder = Path(name)
        file = suite(folder, smoke=given.smoke)
        alone, alone_s, _ = search(file, str(folder / "local.db"))
        print(f"one process: {len(alone)} problems, {alone_s:.1f} s")
        Store.upgrade(server.url)
        started = monotonic()
        with CLUSTERS[given.scheduler](folder, NODES) as on:
            print(f"{on.on}: {NODES} nodes, ready after {monotonic() - started:.1f} s")
            rows, seconds, places = search(file, server.url, on)
        store = Store.open(server.url)
        runs = len(store.rows(schema.RunRow, 1000))
        store.close()
    found = differences(alone, rows)
    by = ", ".join(f"{place} {count}" for place, count in sorted(places.items()))
    print(f"{given.scheduler}: {len(rows)} problems, {seconds:.1f} s; {runs} runs; ended by {by}")
    print(f"answers that differ from the local run's: {len(found)}")
    for line in found:
        print(f"  {line}")
    return 1 if found or runs <= len(rows) else 0


if __name__ == "__main__":
    sys.exit(main())
