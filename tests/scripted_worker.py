"""A worker process without a GPU, which fails as the FAULT knob of the toy `faulty` says.

Run as `python -m scripted_worker`; tests put this folder on PYTHONPATH.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from tuner.kernels.spec import Config
from tuner.measure.messages import Measure, Ready, Recheck, Rounds, Stage, Task, Unable
from tuner.measure.processes import connect
from tuner.records import VENDOR, Comparison, Evidence, Measurement, Outcome


def latency_us(config: Config) -> float:
    """Return a latency in us that is lower for larger blocks."""
    return 100_000 / float(config["BLOCK"])


def _first_time() -> bool:
    """Return whether this is the first worker process of a test."""
    try:
        Path(os.environ["FAULTY_PIDS"]).with_name("once").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _measure(config: Config) -> Measurement:
    fault = config["FAULT"]
    if fault == "wild":
        sys.stderr.write("an illegal memory access was encountered\n")
        sys.stderr.flush()
        os.abort()
    if fault == "killed once" and _first_time():
        os.kill(os.getpid(), signal.SIGKILL)  # as the system does when memory runs out
    if fault == "fills memory" or (fault == "fills memory once" and _first_time()):
        return Measurement(config, Outcome.OUT_OF_MEMORY, stage="launch", error="CUDA out of memory")
    if fault == "endless":
        time.sleep(3600)
    if fault == "wrong":
        return Measurement(config, Outcome.WRONG_RESULT, stage="check", error="deviates")
    return Measurement(config, Outcome.OK, (latency_us(config),) * 10, compiled_by="pool", max_error=0.0, tolerance=0.0)


def main() -> None:
    pipe = connect()
    task = pipe.recv()
    if task.problem["N"] == 13:  # the start fails
        sys.exit("no such device")
    if task.problem["N"] == 14:  # a small card
        pipe.send(Unable(f"the tensors of {task.problem.text} do not fit the memory of the card"))
        return
    pipe.send(Ready())
    with suppress(EOFError):
        while True:
            request = pipe.recv()
            if isinstance(request, Task):
                pipe.send(Ready())
                continue
            pipe.send(Stage("launch"))
            if isinstance(request, Measure):
                pipe.send(_measure(request.config))
            elif isinstance(request, Recheck):
                if request.config["FAULT"] == "loses its context":
                    pipe.send(Measurement(request.config, Outcome.CRASHED, stage="check", error="misaligned address"))
                    return
                pipe.send(Evidence(0.0, 0.0, ("normal",), 17))
            elif isinstance(request, Rounds):
                for config in request.configs:
                    pipe.send(Stage("comparison", config))
                    if config["FAULT"] == "dies in a comparison":
                        os.abort()
                names = (*(config.text for config in request.configs), VENDOR)
                once = (*map(latency_us, request.configs), 150.0)
                pipe.send(Comparison(names, (once,) * request.rounds))


if __name__ == "__main__":
    main()
