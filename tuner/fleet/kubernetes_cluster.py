"""Requests to the API server of Kubernetes that a fleet makes, by the official client."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from http.client import CONFLICT, GONE, NOT_FOUND
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.watch import Watch
from urllib3 import Retry
from urllib3.exceptions import HTTPError, ProtocolError, ReadTimeoutError
from yaml import YAMLError

from tuner.errors import FleetError
from tuner.fleet.kubernetes_job import CONTAINER

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
"""Namespace of the pod that this process runs in, if it runs in one."""
_ALSO_PODS = "Background"
"""Deletion of a Job at once, and of its pods after it."""
_UNDER_WAY = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
"""Field selector of pods that have a node and have not ended."""


@dataclass(frozen=True)
class ClusterSettings:
    """Retries and waits of requests. A pause is twice the one before, from half a second on."""

    first_retries: int = 2
    """Number of retries of the first request, so that a wrong address is soon refused."""
    retries: int = 22
    """Number of retries of a later request while the API server is restarted or upgraded: about eight minutes."""
    pause_s: int = 30
    """Longest pause between two of them, in seconds."""
    reply_s: int = 30
    """Longest wait for the next bytes of a reply, in seconds."""


SETTINGS = ClusterSettings()
_BUSY = (429, 500, 502, 503, 504)
"""Statuses of an API server that may answer later."""


class Cluster:
    """A namespace, by the current context of the kubeconfig, or as the service account of this process's pod.

    Args:
        namespace: empty for that of the context or the service account.

    Raises:
        FleetError: there is no cluster, it cannot be reached, or it refuses a request; each method raises it too.
    """

    def __init__(self, namespace: str) -> None:
        logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)  # it warns of each retry
        settings = client.Configuration()
        with _one_line("the cluster"):
            try:
                file = os.environ.get("KUBECONFIG")  # the client reads it when it is imported
                config.load_kube_config(file, client_configuration=settings)
                current = config.list_kube_config_contexts(file)[1]["context"].get("namespace", "default")
            except config.ConfigException:
                if not _ACCOUNT.exists():
                    raise
                config.load_incluster_config(client_configuration=settings)
                current = _ACCOUNT.read_text()
        self.namespace = namespace or current
        self._here: dict[str, Any] = {"namespace": self.namespace, "_request_timeout": SETTINGS.reply_s}
        settings.retries = Retry(total=SETTINGS.first_retries, backoff_factor=0.5)
        with self._asked(), client.ApiClient(settings) as connection:
            client.BatchV1Api(connection).list_namespaced_job(limit=1, **self._here)
        settings.retries = Retry(
            total=SETTINGS.retries,
            backoff_factor=0.5,
            backoff_max=SETTINGS.pause_s,
            status_forcelist=_BUSY,
            allowed_methods=None,
        )
        self._connection = client.ApiClient(settings)
        self._core, self._batch = client.CoreV1Api(self._connection), client.BatchV1Api(self._connection)

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()

    def create(self, job: Mapping[str, Any]) -> None:
        """Create a Job. Creating it again changes nothing."""
        with self._asked():
            try:
                self._batch.create_namespaced_job(body=job, **self._here)
            except ApiException as error:
                if error.status != CONFLICT:
                    raise

    def jobs(self, selector: str) -> tuple[dict[str, Any], str]:
        """Return the Jobs with a label by name, and their version."""
        with self._asked():
            listed = self._batch.list_namespaced_job(label_selector=selector, **self._here)
        return {job.metadata.name: job for job in listed.items}, listed.metadata.resource_version

    def changes(self, selector: str, version: str, limit_s: int) -> tuple[dict[str, Any], str | None]:
        """Return the Jobs that change in the seconds after a version; one that was deleted is None.

        Returns:
            Also the version to go on from; None if the Jobs must be listed again.
        """
        watch, changed = Watch(), {}
        with self._asked():
            try:
                for change in watch.stream(
                    self._batch.list_namespaced_job,
                    label_selector=selector,
                    resource_version=version,
                    allow_watch_bookmarks=True,
                    timeout_seconds=limit_s,
                    **self._here,
                ):
                    if change["type"] != "BOOKMARK":
                        name = change["object"].metadata.name
                        changed[name] = None if change["type"] == "DELETED" else change["object"]
            except (ProtocolError, ReadTimeoutError):  # the connection was cut
                return changed, None
            except ApiException as error:
                if error.status != GONE:
                    raise
                return changed, None
        return changed, watch.resource_version

    def pods_under_way(self, selector: str) -> list[Any]:
        """Return the pods with a label that have a node and have not ended."""
        with self._asked():
            return self._pods(label_selector=selector, field_selector=_UNDER_WAY)

    def last_pod(self, job: str) -> tuple[Any, str]:
        """Return the newest pod of a Job, or one that succeeded, and its log; None and "" if it is gone."""
        with self._asked():
            pods = self._pods(label_selector=f"job-name={job}")
            if not pods:
                return None, ""
            pod = max(pods, key=lambda pod: (pod.status.phase == "Succeeded", pod.metadata.creation_timestamp))
            try:
                reply = self._core.read_namespaced_pod_log(
                    pod.metadata.name, container=CONTAINER, _preload_content=False, **self._here
                )
                return pod, str(reply.read(), errors="replace").strip()
            except (ApiException, HTTPError):  # lost with its node
                return pod, ""

    def delete(self, job: str) -> None:
        """Delete a Job and its pods, which get SIGTERM. Deleting it again changes nothing."""
        with self._asked():
            try:
                self._batch.delete_namespaced_job(job, propagation_policy=_ALSO_PODS, **self._here)
            except ApiException as error:
                if error.status != NOT_FOUND:
                    raise

    def delete_all(self, selector: str) -> None:
        """Delete all Jobs with a label, and their pods, which get SIGTERM."""
        with self._asked():
            self._batch.delete_collection_namespaced_job(
                label_selector=selector, propagation_policy=_ALSO_PODS, **self._here
            )

    def _pods(self, **selectors: str) -> list[Any]:
        pods: list[Any] = self._core.list_namespaced_pod(**selectors, **self._here).items
        return pods

    def _asked(self) -> AbstractContextManager[None]:
        return _one_line(f"namespace {self.namespace}")


@contextmanager
def _one_line(where: str) -> Iterator[None]:
    """Raise the errors of the client as FleetError, in one line."""
    try:
        yield
    except (config.ConfigException, YAMLError, UnicodeDecodeError, OSError) as error:  # of the kubeconfig
        why = str(error).splitlines()[0]
        raise FleetError(f"--on kubernetes needs a cluster, and {why}; set KUBECONFIG to the file of one") from error
    except HTTPError as error:
        why = str(getattr(error, "reason", error))[:200]
        raise FleetError(
            f"the API server of {where} cannot be reached: {why}; kubectl cluster-info says whether it answers"
        ) from error
    except ApiException as error:
        raise FleetError(f"the API server refuses a request for {where}: {_message(error)}") from error


def _message(error: ApiException) -> str:
    """Return the message of the Status that the API server sent, or what there is."""
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return f"{error.status} {error.reason}"
