"""Tasks as Jobs of Kubernetes, in pods of the project's image.

Kubernetes places the pods, keeps their logs and replaces those of a node that is lost. The Jobs of one command share a
label: they are watched until they end, and deleted if the command is stopped.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import yaml

from tuner.errors import UsageError
from tuner.fleet.kubernetes_cluster import Cluster
from tuner.fleet.kubernetes_job import FLEET, JobSettings, job_name, job_of
from tuner.fleet.scheduler import Wanted, Watch
from tuner.fleet.task import Ended, Task
from tuner.tuning.events import StopToken

POD = "TUNER_POD"
"""Environment variable: a YAML file with fields of a pod, which are merged into the pods of the tasks."""
_STUCK = ("CreateContainerConfigError", "ErrImageNeverPull", "ImagePullBackOff", "InvalidImageName")
"""Reasons of waiting pods that only a person can remove."""


class Kubernetes:
    """Jobs in a namespace; empty for that of the current context."""

    name = "kubernetes"

    def __init__(self, namespace: str, gpus: int, settings: JobSettings) -> None:
        self._namespace, self._gpus, self._settings = namespace, gpus, settings

    def __enter__(self) -> Self:
        self._cluster = Cluster(self._namespace)
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.close()

    def submit_all(self, tasks: Sequence[Task], stop: StopToken, watch: Watch) -> Iterator[Ended]:
        """Create a Job for each task, and yield each task when its Job has ended."""
        fleet = f"tuner-{secrets.token_hex(4)}"
        selector, running = f"{FLEET}={fleet}", {job_name(fleet, n, task): task for n, task in enumerate(tasks)}
        try:
            for name, task in running.items():
                if stop():
                    return
                self._cluster.create(job_of(task, name, fleet, self._gpus, self._settings))
            version = None
            while running and not stop():
                if version is None:
                    jobs, version = self._cluster.jobs(selector)
                    jobs = dict.fromkeys(running) | jobs
                else:
                    jobs, version = self._cluster.changes(selector, version, _wait_s(len(running)))
                for name in jobs.keys() & running.keys():
                    if (ended := self._ended(name, jobs[name], running[name])) is not None:
                        del running[name]
                        yield ended
                yield from self._look(selector, running, watch)
        finally:
            if running:
                self._cluster.delete_all(selector)

    def _ended(self, name: str, job: Any, task: Task) -> Ended | None:
        """Return the end of a task, as its Job and the log of the last pod tell it; None if it goes on."""
        if job is None:
            return Ended(task, None, error=f"its Job {name} was deleted")
        true = {one.type: one for one in job.status.conditions or () if one.status == "True"}
        condition = true.get("Complete") or true.get("Failed")
        if condition is None:
            return None
        pod, log = self._cluster.last_pod(name)
        where = (pod and pod.spec.node_name) or ""
        stated = next(_stated(log, task), None)
        if condition.type == "Complete":
            lost = Ended(task, None, error="its log is lost; the store has what it found")
            return replace(stated or lost, where=where)
        last = stated.error if stated else (log.splitlines() or [condition.message])[-1]
        return Ended(task, None, where, error=f"{condition.reason}: {last}")

    def _look(self, selector: str, running: dict[str, Task], watch: Watch) -> Iterator[Ended]:
        """Report the nodes of the tasks under way, and yield the tasks whose pod cannot start."""
        under_way = {}
        for pod in self._cluster.pods_under_way(selector):
            name = pod.metadata.labels["job-name"]
            if (task := running.get(name)) is None or pod.metadata.deletion_timestamp:  # of a lost node
                continue
            waiting = [one.state.waiting for one in pod.status.container_statuses or () if one.state.waiting]
            if waiting and waiting[0].reason in _STUCK:
                del running[name]
                self._cluster.delete(name)
                why = f"{waiting[0].reason}: {waiting[0].message or 'its pod cannot start'}"
                yield Ended(task, None, pod.spec.node_name, error=why)
            else:
                under_way[task.name] = pod.spec.node_name
        watch(under_way)


def _wait_s(tasks: int) -> int:
    """Return the time between two looks at the pods and the stop token, in seconds; many pods are a long list."""
    return min(5, 1 + tasks // 200)


def scheduler(place: str, wanted: Wanted) -> Kubernetes:
    """Return the scheduler of a namespace.

    Raises:
        UsageError: the namespace is not a DNS label, or the file that TUNER_POD names does not hold fields of a pod.
    """
    if place and not re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", place):
        raise UsageError(f"a namespace has at most 63 of a-z, 0-9 and -, and --on kubernetes names {place[:80]!r}")
    return Kubernetes(place, wanted.gpus, JobSettings(pod=_stated_pod(os.environ.get(POD))))


def _stated_pod(path: str | None) -> dict[str, Any]:
    if not path:
        return {}
    try:
        pod = yaml.safe_load(Path(path).read_text())
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise UsageError(f"{POD} names a YAML file, and {path} cannot be read: {str(error).splitlines()[0]}") from error
    if not isinstance(pod, dict) or not pod.keys() <= {"metadata", "spec"}:
        raise UsageError(f"{POD} names a file with the fields metadata and spec of a pod, and {path} has others")
    return pod


def _stated(log: str, task: Task) -> Iterator[Ended]:
    """Yield the end that the command of a pod wrote. It is near the end of the log, which has both outputs."""
    for line in reversed(log.splitlines()):
        with suppress(ValueError, TypeError):
            yield Ended.from_text(line, task)
