"""A running service on a socket of its own, and answers for its store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import sleep

import httpx
import uvicorn
from helpers import H200
from starlette.types import ASGIApp

import tuner
from tuner import catalog
from tuner.db.store import Store
from tuner.kernels.spec import Problem
from tuner.records import Answer, Comparison, Device, Environment, Policy, Provenance

GEMM = catalog.load("gemm")
TOKEN = "correct-horse-battery"


def problem(**values: object) -> Problem:
    return GEMM.signature.problem(values)


def answer(
    store: Store, about: Problem, device: Device = H200, triton: str = "3.6.0", replayed: str | None = None
) -> int:
    """Store an answer; return its id."""
    config = GEMM.default_config(about, device.limits)
    provenance = Provenance(
        device,
        Environment(triton, "12.8", "2.11.0", "580.1"),
        GEMM.source,
        Policy().text,
        replayed,
        tuner.__version__,
        GEMM.definition,
    )
    settings = {"trials": 10, "budget_s": None, "space": 100, "known": 0}
    run = store.start_run(GEMM.signature, about, provenance, settings)
    given = Answer(about, "tuned", config, 10.0, (9.9, 10.1), 1.2, (1.1, 1.3), 12.0, 11.0, flops=10**9, bytes=10**6)
    return store.add_answer(run, given, provenance, "trials", {}, Comparison((config.text, "vendor"), ((10.0, 11.0),)))


@contextmanager
def serving(app: ASGIApp) -> Iterator[httpx.Client]:
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning", access_log=False))
    thread = threading.Thread(target=server.run)
    thread.start()
    while not server.started:
        sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}") as made:
            yield made
    finally:
        server.should_exit = True
        thread.join()
