"""The Job of a task: one pod with one GPU, as the document that Kubernetes takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tuner.fleet.command import TASK_VARIABLE
from tuner.fleet.scheduler import SETTINGS
from tuner.fleet.task import Task

FLEET = "triton-tuner/fleet"
"""Label of all Jobs and pods of one command."""
CONTAINER = "tuner"
"""Name of the container that runs the command."""
_DNS_LABEL = 63
"""Longest name of a Job, in characters, since its pods carry it as a label."""


@dataclass(frozen=True)
class JobSettings:
    """Settings of the Jobs of a fleet."""

    image: str = "triton-tuner-search"
    """Image that has `python` with the package on its path."""
    secret: str = "triton-tuner"
    """Secret of the namespace that holds the variables of a task, such as `TUNER_DB`, under their own names."""
    retries: int = SETTINGS.tries
    """Number of pods that are replaced, since they were killed or their node was lost, before the task is given up."""
    kept_s: int = 3600
    """Time that a Job and its log are kept once it has ended, in seconds."""
    lost_node_s: int = 60
    """Time until a pod on a node that does not answer is replaced, in seconds; by default Kubernetes waits for 300."""
    pod: Mapping[str, Any] = field(default_factory=dict)
    """Fields of a pod, such as `spec.nodeSelector`, merged into ours as Kubernetes merges them: lists by `name`."""


def job_name(fleet: str, number: int, task: Task) -> str:
    """Return a DNS label that differs for each task of a fleet and begins with the fleet's name."""
    start = f"{fleet}-{number}"
    words = re.sub(r"[^a-z0-9]+", "-", task.name.lower()).strip("-")
    return f"{start}-{words}"[:_DNS_LABEL].rstrip("-")


def job_of(task: Task, name: str, fleet: str, gpus: int, settings: JobSettings) -> dict[str, Any]:
    """Return the manifest of a task's Job. It names the variables of the task and holds none of their values."""
    labels = {"app.kubernetes.io/name": "triton-tuner", FLEET: fleet}
    pod = merged({"metadata": {"labels": labels}, "spec": _pod(task, gpus, settings)}, settings.pod)
    labels = pod["metadata"]["labels"]  # queues of Jobs are named by a label too
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels, "annotations": {"triton-tuner/task": task.name}},
        "spec": {
            "backoffLimit": settings.retries,
            "ttlSecondsAfterFinished": settings.kept_s,
            "template": pod,
        },
    }


def _pod(task: Task, gpus: int, settings: JobSettings) -> dict[str, Any]:
    variables = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": settings.secret, "key": name}}}
        for name in task.environment
    ]
    lost = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
    return {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "tolerations": [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": settings.lost_node_s}
            for key in lost
        ],
        "volumes": [{"name": "tmp", "emptyDir": {}}, {"name": "cache", "emptyDir": {}}],
        "containers": [
            {
                "name": CONTAINER,
                "image": settings.image,
                "command": ["python", "-m", "tuner.fleet.pod"],
                "env": [{"name": TASK_VARIABLE, "value": replace(task, environment={}).as_text()}, *variables],
                "resources": {"limits": {"nvidia.com/gpu": str(gpus)}} if gpus else {},
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
                "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}, {"name": "cache", "mountPath": "/cache"}],
            }
        ],
    }


def merged(ours: Any, theirs: Any) -> Any:
    """Return `ours` with `theirs` over it: mappings by key, lists by the `name` of their items; others are added."""
    if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
        return {**ours, **{key: merged(ours.get(key), value) for key, value in theirs.items()}}
    if isinstance(ours, list) and isinstance(theirs, list):
        both = {_name(item) or index: item for index, item in enumerate(ours)}
        for item in theirs:
            key = _name(item) or len(both)
            both[key] = merged(both.get(key), item)
        return list(both.values())
    return theirs


def _name(item: Any) -> Any:
    return item.get("name") if isinstance(item, Mapping) else None
