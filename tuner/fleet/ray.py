"""Tasks on a Ray cluster."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, redirect_stdout, suppress
from typing import Any, Self

import ray

from tuner.errors import FleetError
from tuner.fleet.command import run
from tuner.fleet.scheduler import SETTINGS, Wanted, Watch
from tuner.fleet.task import Ended, Task
from tuner.tuning.events import StopToken

_log = logging.getLogger("tuner")


class RayScheduler:
    """Runs tasks on the cluster at an address, else the one of `RAY_ADDRESS`, else a new one on this machine.

    Ray runs the tasks of a lost node again.
    """

    name = "ray"

    def __init__(self, address: str, wanted: Wanted) -> None:
        self._address, self._wanted = address, wanted
        self._open = ExitStack()  # of Ray's messages on stdout: 40 lines for a lost node, amid the JSON of a command

    def __enter__(self) -> Self:
        try:
            _require_reachable(self._address)
            ray.init(address=self._address or None, log_to_driver=False, logging_level=logging.WARNING)
        except (OSError, ValueError, RuntimeError) as error:
            place = self._address or "the address in RAY_ADDRESS"
            raise FleetError(f"no Ray cluster answers at {place}: {error}; ray start --head starts one") from error
        self._open.enter_context(redirect_stdout(self._open.enter_context(open(os.devnull, "w"))))
        if self._wanted.gpus and not ray.cluster_resources().get("GPU"):
            _log.warning("The Ray cluster has no GPU now; the tasks wait until a node with one joins.")
        return self

    def __exit__(self, *_: object) -> None:
        ray.shutdown()
        self._open.close()

    def submit_all(self, tasks: Sequence[Task], stop: StopToken, watch: Watch) -> Iterator[Ended]:
        """Submit all tasks at once. Each writes the place where it begins on a board."""
        board = ray.remote(_Board).options(num_cpus=0).remote()
        how = {"num_gpus": self._wanted.gpus, "max_retries": SETTINGS.tries, "scheduling_strategy": "SPREAD"}
        left = {ray.remote(_run).options(name=task.name, **how).remote(task, board): task for task in tasks}
        places: dict[str, str] = {}
        try:
            while left and not stop():
                ready, _ = ray.wait([*left], num_returns=len(left), timeout=SETTINGS.poll_s)
                with suppress(ray.exceptions.RayError):  # the node of the board is lost
                    places = ray.get(board.all.remote(), timeout=SETTINGS.connect_s)
                for reference in ready:
                    yield _ended(reference, left.pop(reference), places)
                watch({task.name: places[task.name] for task in left.values() if task.name in places})
        finally:
            for reference in left:
                ray.cancel(reference)


def _require_reachable(address: str) -> None:
    """Raise OSError if nothing listens at `HOST:PORT` or `ray://HOST:PORT`: Ray waits for minutes then."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdigit():
        socket.create_connection((host, int(port)), SETTINGS.connect_s).close()


class _Board:
    """An actor with the places where tasks have begun, since Ray tells them only to its dashboard."""

    def __init__(self) -> None:
        self._places: dict[str, str] = {}

    def put(self, name: str, where: str) -> None:
        self._places[name] = where

    def all(self) -> dict[str, str]:
        return self._places


def _ended(reference: Any, task: Task, places: Mapping[str, str]) -> Ended:
    try:
        ended: Ended = ray.get(reference)
    except ray.exceptions.RayError as error:
        reason = next(iter(str(error).strip().splitlines()), "")
        return Ended(task, None, places.get(task.name, ""), error=f"{type(error).__name__}: {reason}")
    return ended


def _run(task: Task, board: Any) -> Ended:
    """Run a task on a node."""
    where = f"{ray.util.get_node_ip_address()} {ray.get_runtime_context().get_node_id()[:6]}"
    board.put.remote(task.name, where)
    return run(task, where=where)


def scheduler(place: str, wanted: Wanted) -> RayScheduler:
    """Return the scheduler of `ray[:ADDRESS]`."""
    return RayScheduler(place, wanted)
