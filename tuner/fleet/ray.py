"""Tasks on a Ray cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any, Self

import ray

from tuner.errors import FleetError
from tuner.fleet.command import run
from tuner.fleet.engine import SETTINGS, Wanted, Watch
from tuner.fleet.task import Ended, Task
from tuner.tuning.events import StopToken


class RayEngine:
    """Runs tasks on the cluster at an address, else the one of `RAY_ADDRESS`, else a new one on this machine.

    Ray runs the tasks of a lost node again.
    """

    name = "ray"

    def __init__(self, address: str, wanted: Wanted) -> None:
        self._address, self._wanted = address, wanted

    def __enter__(self) -> Self:
        try:
            ray.init(address=self._address or None, log_to_driver=False, logging_level=logging.WARNING)
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            place = self._address or "the address in RAY_ADDRESS"
            raise FleetError(f"no Ray cluster answers at {place}: {error}") from error
        return self

    def __exit__(self, *_: object) -> None:
        ray.shutdown()

    def submit_all(self, tasks: Sequence[Task], stop: StopToken, watch: Watch) -> Iterator[Ended]:
        """Submit all tasks at once. Each yields its place when it begins, and its end."""
        under_way = dict[str, str]()
        remote = ray.remote(
            num_gpus=self._wanted.gpus,
            max_retries=SETTINGS.tries,
            num_returns="streaming",
            scheduling_strategy="SPREAD",
        )(_run)
        left = {remote.options(name=task.name).remote(task): task for task in tasks}
        try:
            while left and not stop():
                ready, _ = ray.wait([*left], num_returns=len(left), timeout=SETTINGS.poll_s, fetch_local=False)
                for stream in ready:
                    ended = _next(stream, left[stream])
                    if isinstance(ended, str):
                        under_way[left[stream].name] = ended
                    else:
                        under_way.pop(left.pop(stream).name, None)
                        yield ended
                watch(dict(under_way))
        finally:
            for stream in left:
                ray.cancel(stream)


def _next(stream: Any, task: Task) -> Ended | str:
    """Return the next value of a task: its place or its end."""
    try:
        value: Ended | str = ray.get(next(stream))
    except (ray.exceptions.RayError, StopIteration) as error:
        return Ended(task, None, error=f"{type(error).__name__}: {str(error).strip().splitlines()[-1:]}")
    return value


def _run(task: Task) -> Iterator[Ended | str]:
    """Run a task on a node."""
    where = ray.util.get_node_ip_address()
    yield where
    yield run(task, where=where)


def engine(place: str, wanted: Wanted) -> RayEngine:
    """Return the engine of `ray[:ADDRESS]`."""
    return RayEngine(place, wanted)
