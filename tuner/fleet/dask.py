"""Tasks on a Dask cluster. Workers with a GPU state it as a resource: `dask worker SCHEDULER --resources GPU=1`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any, Self
from uuid import uuid4

import distributed

from tuner.errors import FleetError
from tuner.fleet.command import run
from tuner.fleet.scheduler import SETTINGS, Wanted, Watch
from tuner.fleet.task import Ended, Task
from tuner.tuning.events import StopToken

_GPU = "GPU"


class DaskScheduler:
    """Submits tasks to the scheduler at an address. The scheduler runs those of a lost worker again."""

    name = "dask"

    def __init__(self, address: str, wanted: Wanted) -> None:
        self._address, self._wanted = address, wanted

    def __enter__(self) -> Self:
        try:
            self._client = distributed.Client(self._address, timeout=SETTINGS.connect_s)
        except (OSError, ValueError) as error:
            raise FleetError(
                f"no Dask scheduler answers at {self._address}: {error}; dask scheduler starts one"
            ) from error
        workers = self._client.scheduler_info(n_workers=-1)["workers"].values()
        if self._wanted.gpus and workers and not any(_GPU in worker["resources"] for worker in workers):
            self._client.close()
            raise FleetError(
                f"no worker of {self._address} has the resource {_GPU}; start one for each GPU with "
                f"dask worker {self._address} --nthreads 1 --resources {_GPU}=1"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def submit_all(self, tasks: Sequence[Task], stop: StopToken, watch: Watch) -> Iterator[Ended]:
        """Submit all tasks at once; an event of the cluster stops those under way.

        A client that connects again has lost its tasks, so the loss of the scheduler ends them all.
        """
        topic, under_way = f"tuner-{uuid4().hex}", dict[str, str]()
        halt = distributed.Event(topic, client=self._client)
        self._client.subscribe_topic(topic, lambda event: under_way.update([event[1]]))
        resources = {_GPU: self._wanted.gpus} if self._wanted.gpus else None
        left = {
            self._client.submit(
                _run, task, topic, key=f"{task.name}-{topic}", resources=resources, retries=SETTINGS.tries, pure=False
            ): task
            for task in tasks
        }
        try:
            while left and not stop():
                with suppress(TimeoutError):
                    distributed.wait([*left], SETTINGS.poll_s, "FIRST_COMPLETED")
                for future in [future for future in left if future.done()]:
                    task = left.pop(future)
                    yield _ended(future, task, under_way.get(task.name, ""))
                watch({task.name: under_way[task.name] for task in left.values() if task.name in under_way})
        except distributed.CancelledError as error:
            raise FleetError(
                f"the Dask scheduler at {self._address} does not answer any more; start it again"
            ) from error
        finally:
            if self._client.status == "running":
                halt.set()
                self._client.cancel([*left])
                self._client.unsubscribe_topic(topic)


def _ended(future: Any, task: Task, where: str) -> Ended:
    if future.status == "error":
        reason = future.exception()
        return Ended(task, None, where, error=f"{type(reason).__name__}: {reason}")
    ended: Ended = future.result()
    return ended


def _run(task: Task, topic: str) -> Ended:
    """Run a task on a worker, until the event of this name is set."""
    worker = distributed.get_worker()
    worker.log_event(topic, (task.name, str(worker.name)))
    with distributed.worker_client(separate_thread=False) as client:
        return run(task, distributed.Event(topic, client=client).is_set, where=str(worker.name))


def scheduler(place: str, wanted: Wanted) -> DaskScheduler:
    """Return the scheduler of `dask:ADDRESS`."""
    return DaskScheduler(place, wanted)
