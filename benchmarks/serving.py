"""Throughput and latency of lookups over HTTP, against a route of the same app that returns constant bytes.

One uvicorn worker. `wrk` sends lookups of random stored problems and the same queries to the constant route, in turn.
Access lines are written and discarded. The medians of the rounds are printed.

    apt-get install wrk
    python benchmarks/serving.py --answers 100 100000
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from time import monotonic, sleep
from typing import Any
from urllib.request import urlopen

import uvicorn
from ports import free_ports
from sqlalchemy import URL, create_engine, insert, select
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tuner import catalog
from tuner.cli.serve import Served, listening_on
from tuner.db import schema
from tuner.db.store import Store, database_at
from tuner.kernels.spec import Problem
from tuner.records import COLD, Answer, Comparison, Device, Environment, Provenance, Tie

GEMM = catalog.load("gemm")
CARD = Device("NVIDIA H200", (9, 0), 132, 150_754_820_096, 62_914_560, 232_448, "10de:2335")
ROWS_AT_ONCE = 500
SCRIPT = """
math.randomseed(7)
request = function()
  local i = math.random(0, {last})
  local M, N = 1 + i % 400, 1024 + 128 * math.floor(i / 400)
  return wrk.format("GET", string.format("{path}?op=gemm&M=%d&N=%d&K=4096", M, N))
end
"""


def problem(number: int) -> Problem:
    return GEMM.signature.problem({"M": 1 + number % 400, "N": 1024 + 128 * (number // 400), "K": 4096})


def fill(path: Path, count: int) -> None:
    """Store a number of answers: the first as a search does, the others as copies of its rows."""
    store, first = Store.open(path), problem(0)
    config = GEMM.default_config(first, CARD.limits)
    provenance = Provenance(CARD, Environment("3.6.0", "12.8", "2.11.0", "580.1"), GEMM.source, COLD.text, None, "0")
    run = store.start_run(GEMM.signature, first, provenance, {"trials": 10, "space": 100, "known": 0})
    ties = (Tie(config, 1.002, (1.0, 1.01)),)
    answer = Answer(
        first, "tuned", config, 10.0, (9.9, 10.1), 1.2, (1.1, 1.3), 12.0, 11.0, ties, flops=10**9, bytes=10**6
    )
    store.add_answer(run, answer, provenance, "trials", {}, Comparison((config.text,), ((10.0,),)))
    store.close()
    with create_engine(URL.create("sqlite", database=str(path))).begin() as connection:
        kept = dict(connection.execute(select(schema.AnswerRow)).one()._mapping)
        search = dict(connection.execute(select(schema.RunRow)).one()._mapping)
        for start in range(1, count, ROWS_AT_ONCE):
            problems = [(number + 1, problem(number)) for number in range(start, min(start + ROWS_AT_ONCE, count))]
            rows: dict[Any, list[dict[str, Any]]] = {
                schema.ProblemRow: [{"id": n, "op": p.op, "text": p.text, "parameters": p.values} for n, p in problems],
                schema.RunRow: [search | {"id": n, "problem_id": n} for n, _ in problems],
                schema.AnswerRow: [kept | {"id": n, "run_id": n, "problem": p.text} for n, p in problems],
            }
            for table, values in rows.items():
                connection.execute(insert(table), values)


def serve(path: Path, port: int) -> None:
    served = Served(database_at(path), None, {}, None, access_log=True).app()
    constant = b""

    async def bare(request: Request) -> Response:
        return Response(constant, media_type="application/json")

    async def sized(request: Request) -> Response:
        nonlocal constant
        constant = b"x" * int(request.query_params["size"])
        return Response()

    served.router.routes[:0] = [Route("/bare", bare), Route("/size", sized)]
    config = uvicorn.Config(served, log_level="warning", access_log=False)
    uvicorn.Server(config).run(sockets=[listening_on("127.0.0.1", port)])


def load(port: int, path: str, count: int, seconds: float, connections: int, folder: Path) -> tuple[float, float]:
    """Return requests per second and the 99th percentile of the latency, in ms."""
    script = folder / "ask.lua"
    script.write_text(SCRIPT.replace("{last}", str(count - 1)).replace("{path}", path))
    options = ["-t1", f"-c{connections}", f"-d{seconds:.0f}s", "--latency", "-s", str(script)]
    done = subprocess.run(["wrk", *options, f"http://127.0.0.1:{port}"], capture_output=True, text=True, check=True)
    assert "Non-2xx" not in done.stdout, done.stdout
    p99 = re.search(r"99%\s+([\d.]+)(us|ms|s)", done.stdout)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", done.stdout)
    assert p99
    assert rate
    return float(rate[1]), float(p99[1]) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[p99[2]]


def measure(count: int, given: argparse.Namespace, folder: Path) -> None:
    path = folder / f"{count}.db"
    fill(path, count)
    (port,) = free_ports(1)
    command = [sys.executable, __file__, "--serve", str(path), str(port)]
    started = monotonic()
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as server:
        try:
            size = len(first_answer(port))
            ready_s = monotonic() - started
            urlopen(f"http://127.0.0.1:{port}/size?size={size}").close()
            ask = partial(load, port, count=count, connections=given.connections, folder=folder)
            ask("/best-config", seconds=given.warm)
            rounds = [
                [ask(route, seconds=given.seconds) for route in ("/bare", "/best-config")] for _ in range(given.rounds)
            ]
            memory = int(re.findall(r"VmRSS:\s+(\d+)", Path(f"/proc/{server.pid}/status").read_text())[0]) / 1024
        finally:
            server.terminate()
    bare, ours = ([median(run[side][what] for run in rounds) for what in (0, 1)] for side in (0, 1))
    ratio = median(run[1][0] / run[0][0] for run in rounds)
    tail = median(run[1][1] / run[0][1] for run in rounds)
    print(
        f"| {count:,} | {bare[0]:,.0f} | {ours[0]:,.0f} | {ratio:.2f} | {bare[1]:.1f} | {ours[1]:.1f} | {tail:.2f} "
        f"| {ready_s:.1f} | {memory:,.0f} |",
        flush=True,
    )


def first_answer(port: int) -> bytes:
    end = monotonic() + 300
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/best-config?op=gemm&M=1&N=1024&K=4096") as answer:
                return bytes(answer.read())
        except OSError:
            assert monotonic() < end, "the service did not start within 300 s"
            sleep(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--answers", type=int, nargs="+", default=[100, 100_000])
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--warm", type=float, default=4, help="Seconds of lookups before the first round.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.serve:
        serve(Path(given.serve[0]), int(given.serve[1]))
        return
    if shutil.which("wrk") is None:
        parser.error("wrk is missing; apt-get install wrk")
    print("| answers | bare req/s | lookup req/s | ratio | bare p99 ms | lookup p99 ms | ratio | first answer s | MB |")
    print("|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for count in given.answers:
            measure(count, given, Path(folder))


if __name__ == "__main__":
    main()
