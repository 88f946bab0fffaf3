"""Random requests to a service, within its OpenAPI page and outside, by schemathesis.

Without a token and then with one: no 5xx, no response that the page does not describe, and without a token nothing is
written except the counts of misses.

    python benchmarks/rubbish.py --seconds 300
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic, sleep
from urllib.request import urlopen

from ports import free_ports

from tuner import catalog
from tuner.db import schema
from tuner.db.store import Store
from tuner.records import COLD, Answer, Comparison, Device, Environment, Provenance

CARD = Device("NVIDIA H200", (9, 0), 132, 150_754_820_096, 62_914_560, 232_448, "10de:2335")
TABLES: list[type[schema.Base]] = [
    schema.AnswerRow,
    schema.RunRow,
    schema.ProblemRow,
    schema.KernelRow,
    schema.DeviceRow,
    schema.JobRow,
]
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,ignored_auth"
TOKEN = "only-for-this-run"


def filled(path: Path) -> Store:
    """Return a store with three answers."""
    store, kernel = Store.open(path), catalog.load("gemm")
    for size in (1, 64, 4096):
        problem = kernel.signature.problem({"M": size})
        config = kernel.default_config(problem, CARD.limits)
        provenance = Provenance(CARD, Environment("3.6.0", "12.8", "2.11.0", "580.1"), kernel.source, COLD.text)
        run = store.start_run(kernel.signature, problem, provenance, {"trials": 10})
        answer = Answer(problem, "tuned", config, 10.0, (9.9, 10.1), 1.2, (1.1, 1.3), 12.0, None, bytes=10**6)
        store.add_answer(run, answer, provenance, "trials", {}, Comparison((config.text,), ((10.0,),)))
    return store


def wait_for(url: str) -> None:
    """Wait until the service answers, for a minute at most."""
    end = monotonic() + 60
    while True:
        try:
            urlopen(url).close()
            return
        except OSError:
            assert monotonic() < end, "the service does not answer"
            sleep(0.2)


def attack(url: str, seconds: int, folder: str, *options: str) -> int:
    """Run schemathesis, which writes its notes to `folder`, and return its exit code."""
    limits = ["--checks", CHECKS, "--max-time", str(seconds), "--warnings", "off", "--no-color"]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = ["schemathesis", "run", f"{url}/openapi.json", *limits, *options]
    return subprocess.run(command, env=os.environ | {"PATH": path}, cwd=folder, check=False).returncode


def main() -> int:
    """Run the requests; return 1 if a check failed or something was written without a token."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=300)
    seconds = parser.parse_args().seconds
    with tempfile.TemporaryDirectory() as folder:
        store = filled(Path(folder) / "tuner.db")
        before = {table: store.rows(table, 1000) for table in TABLES}
        (port,) = free_ports(1)
        command = ["-m", "tuner", "serve", "--no-access-log", "--port", str(port), "--db", f"{folder}/tuner.db"]
        with subprocess.Popen([sys.executable, "-P", *command], env=os.environ | {"TUNER_TOKEN": TOKEN}) as server:
            try:
                url = f"http://127.0.0.1:{port}"
                wait_for(f"{url}/readyz")
                broken = attack(url, seconds * 3 // 4, folder)
                written = [table.__tablename__ for table in TABLES if store.rows(table, 1000) != before[table]]
                broken |= attack(url, seconds // 4, folder, "--header", f"Authorization: Bearer {TOKEN}")
            finally:
                server.terminate()
        store.close()
    print(f"without a token {', '.join(written) or 'nothing'} was written")
    return 1 if broken or written else 0


if __name__ == "__main__":
    sys.exit(main())
