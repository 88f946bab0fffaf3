"""An API server of Kubernetes with a few nodes, as far as a fleet uses them: over HTTP, for the real client.

It keeps Jobs and pods, runs a pod for each Job on a free node, and replaces those that fail or whose node is lost. It
stands in for a cluster, which tests cannot have.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

Run = Callable[[dict[str, str], str], tuple[int, str]]
"""Runs a pod with its variables on a node: its exit code and its log."""
ROLE = yaml.safe_load((Path(__file__).parents[1] / "docker" / "kubernetes" / "fleet-role.yaml").read_text())
"""Requests that the Role of a fleet allows. Others are refused."""
PATHS = re.compile(
    r"/(?:api|apis/batch)/v1/namespaces/(?P<namespace>[^/]+)/(?P<kind>jobs|pods)(?:/(?P<name>[^/]+))?(?P<log>/log)?"
)


class Cluster:
    """Jobs, pods and nodes.

    Args:
        run: runs each pod, in a thread of its node.
        secrets: the Secrets of the namespace, by name.
    """

    def __init__(self, run: Run, secrets: Mapping[str, Mapping[str, str]]) -> None:
        self.run, self.secrets, self.namespace = run, secrets, "tuning"
        self.jobs: dict[str, Any] = {}
        self.pods: dict[str, Any] = {}
        self.bodies: list[str] = []
        """Bodies of all requests."""
        self.requests: list[str] = []
        self.answers: list[tuple[int, str]] = []
        """Statuses and messages that the next requests are refused with."""
        self.cut = False
        """True to cut the connection of the next watch."""
        self.images = {"triton-tuner-search"}
        self._events: list[tuple[int, str, Any]] = []
        self._oldest = self._version = 0
        self._changed = threading.Condition(threading.RLock())
        self._free = ["n1", "n2"]
        self._lost: set[str] = set()
        self._waiting: list[str] = []
        self._logs: dict[str, str] = {}

    def create(self, job: Any) -> Any:
        """Store a Job, and a pod that waits for a node."""
        with self._changed:
            name = job["metadata"]["name"]
            assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)
            if name in self.jobs:
                return None
            self.jobs[name] = {**job, "status": {}}
            self._publish("ADDED", name)
            self._add_pod(name)
            return job

    def delete(self, name: str, told: bool = True) -> None:
        """Delete a Job and its pods; with `told` False, as if watchers had missed it."""
        with self._changed:
            if told:
                self._publish("DELETED", name)
            del self.jobs[name]
            self.pods = {key: pod for key, pod in self.pods.items() if pod["metadata"]["labels"]["job-name"] != name}

    def lose(self, node: str) -> None:
        """Lose a node: its pods are deleted, but never end, since nobody there says so; their Jobs replace them."""
        with self._changed:
            self._lost.add(node)
            for name, pod in list(self.pods.items()):
                if pod["spec"].get("nodeName") == node and pod["status"]["phase"] == "Running":
                    pod["metadata"]["deletionTimestamp"] = _now()
                    self._replace(name)

    def expire(self) -> None:
        """Forget all changes so far, so that watches from before are refused with 410."""
        with self._changed:
            self._oldest = self._version + 1
            self._version += 1

    def changes(self, version: int, limit_s: float) -> Iterator[dict[str, Any] | None]:
        """Yield the changes after a version; None where the connection is to be cut."""
        end = datetime.now().timestamp() + limit_s
        while True:
            with self._changed:
                if version < self._oldest:
                    status = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
                    yield {"type": "ERROR", "object": status}
                    return
                if self.cut:
                    self.cut = False
                    yield None
                    return
                news = [event for event in self._events if event[0] > version]
                if not news:
                    left = end - datetime.now().timestamp()
                    if left <= 0 or not self._changed.wait(left):
                        job = {"metadata": {"resourceVersion": str(version)}, "spec": {"template": {}}}
                        yield {"type": "BOOKMARK", "object": {"kind": "Job", "apiVersion": "batch/v1", **job}}
                        return
                    continue
            for version, type_, job in news:  # noqa: B007
                yield {"type": type_, "object": job}

    @property
    def version(self) -> str:
        return str(self._version)

    def log(self, pod: str) -> str | None:
        return self._logs.get(pod)

    def _publish(self, type_: str, name: str) -> None:
        self._version += 1
        job = self.jobs[name]
        job["metadata"] = {**job["metadata"], "resourceVersion": str(self._version)}
        self._events.append((self._version, type_, json.loads(json.dumps(job))))
        self._changed.notify_all()

    def _add_pod(self, job: str) -> None:
        template = self.jobs[job]["spec"]["template"]
        name = f"{job}-{len(self.pods)}"
        self.pods[name] = {
            "metadata": {
                "name": name,
                "creationTimestamp": _now(),
                "labels": {**template["metadata"]["labels"], "job-name": job},
            },
            "spec": dict(template["spec"]),
            "status": {"phase": "Pending"},
        }
        self._waiting.append(name)
        self._place()

    def _place(self) -> None:
        while self._free and self._waiting:
            node, name = self._free.pop(0), self._waiting.pop(0)
            if name not in self.pods:
                self._free.append(node)
                continue
            pod = self.pods[name]
            pod["spec"]["nodeName"] = node
            container = pod["spec"]["containers"][0]
            stuck = self._stuck(container)
            if stuck:
                pod["status"]["containerStatuses"] = [_status({"waiting": stuck})]
                self._free.append(node)
                continue
            pod["status"] = {"phase": "Running", "containerStatuses": [_status({"running": {"startedAt": _now()}})]}
            threading.Thread(target=self._run, args=(name, node, container), daemon=True).start()

    def _stuck(self, container: Any) -> dict[str, str] | None:
        if container["image"] not in self.images:
            return {"reason": "ImagePullBackOff", "message": f'Back-off pulling image "{container["image"]}"'}
        for wanted in _references(container).values():
            if wanted["key"] not in self.secrets.get(wanted["name"], ()):
                return {"reason": "CreateContainerConfigError", "message": f'secret "{wanted["name"]}" not found'}
        return None

    def _run(self, name: str, node: str, container: Any) -> None:
        stated = {one["name"]: one["value"] for one in container["env"] if "value" in one}
        secret = {name: self.secrets[one["name"]][one["key"]] for name, one in _references(container).items()}
        assert container["command"] == ["python", "-m", "tuner.fleet.pod"]
        started = _now()
        code, log = self.run(stated | secret, node)
        with self._changed:
            if node not in self._lost:
                self._free.append(node)
                if name in self.pods:
                    self._logs[name] = log
                    end = {"exitCode": code, "startedAt": started, "finishedAt": _now()}
                    self.pods[name]["status"] = {
                        "phase": "Failed" if code else "Succeeded",
                        "containerStatuses": [_status({"terminated": end})],
                    }
                    if code:
                        self._replace(name)
                    else:
                        self._finish(self.pods[name]["metadata"]["labels"]["job-name"], "Complete", "", "")
            self._place()

    def _replace(self, pod: str) -> None:
        """Replace a pod that failed or is deleted, unless its Job has reached its limit."""
        name = self.pods[pod]["metadata"]["labels"]["job-name"]
        job = self.jobs[name]
        assert "podFailurePolicy" not in job["spec"], "such a Job waits until the pods of a lost node have ended"
        job["status"]["failed"] = job["status"].get("failed", 0) + 1
        if job["status"]["failed"] > job["spec"]["backoffLimit"]:
            self._finish(name, "Failed", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
        else:
            self._publish("MODIFIED", name)
            self._add_pod(name)

    def _finish(self, name: str, type_: str, reason: str, message: str) -> None:
        condition = {"type": type_, "status": "True", "reason": reason, "message": message}
        self.jobs[name]["status"]["conditions"] = [condition]
        self._publish("MODIFIED", name)


def _references(container: Any) -> dict[str, Any]:
    return {one["name"]: one["valueFrom"]["secretKeyRef"] for one in container["env"] if "valueFrom" in one}


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")


def _status(state: Any) -> dict[str, Any]:
    return {"name": "tuner", "image": "", "imageID": "", "ready": False, "restartCount": 0, "state": state}


class _Handler(BaseHTTPRequestHandler):
    """Speaks the requests that a fleet makes; all others are 404."""

    protocol_version = "HTTP/1.1"
    cluster: Cluster

    def log_message(self, *_: Any) -> None:
        pass

    def do_POST(self) -> None:
        body = self._begin()
        if body is None:
            return
        job = self.cluster.create(json.loads(body))
        self._reply(201, job) if job else self._refuse(409, "jobs.batch already exists")

    def do_DELETE(self) -> None:
        if self._begin() is None:
            return
        name, wanted = self._path["name"], self._query.get("labelSelector")
        for job in [name] if name else [job for job, held in self.cluster.jobs.items() if _matches(held, wanted)]:
            self.cluster.delete(job)
        self._reply(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"})

    def do_GET(self) -> None:
        if self._begin() is None:
            return
        if self._path["log"]:
            assert self._query["container"] == "tuner", "a pod may have others"
            log = self.cluster.log(self._path["name"])
            self._reply(200, log) if log is not None else self._refuse(404, "the node of the pod is lost")
        elif self._query.get("watch"):
            self._watch()
        else:
            jobs = self._path["kind"] == "jobs"
            held = list((self.cluster.jobs if jobs else self.cluster.pods).values())
            items = [one for one in held if _matches(one, self._query.get("labelSelector"))]
            if "fieldSelector" in self._query:
                assert self._query["fieldSelector"] == "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
                items = [one for one in items if one["spec"].get("nodeName") and _is_under_way(one)]
            kind, version = ("JobList", "batch/v1") if jobs else ("PodList", "v1")
            listed = {"resourceVersion": self.cluster.version}
            self._reply(200, {"kind": kind, "apiVersion": version, "metadata": listed, "items": items})

    def _begin(self) -> str | None:
        """Read the request; return its body, or None if it is refused."""
        split = urlsplit(self.path)
        self._query = {name: values[0] for name, values in parse_qs(split.query).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        self.cluster.bodies.append(body)
        self.cluster.requests.append(f"{self.command} {split.path}")
        found = PATHS.fullmatch(split.path)
        if self.cluster.answers:
            self._refuse(*self.cluster.answers.pop(0))
            return None
        if found is None or found["namespace"] != self.cluster.namespace:
            self._refuse(404, "the server could not find the requested resource")
            return None
        self._path = found
        resource, verb = found["kind"] + (found["log"] or ""), self._verb()
        if not any(resource in rule["resources"] and verb in rule["verbs"] for rule in ROLE["rules"]):
            self._refuse(403, f'{resource} is forbidden: User "me" cannot {verb} resource "{resource}"')
            return None
        return body

    def _verb(self) -> str:
        if self.command == "GET":
            return "get" if self._path["name"] else "watch" if self._query.get("watch") else "list"
        if self.command == "DELETE":
            return "delete" if self._path["name"] else "deletecollection"
        return "create"

    def _watch(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for change in self.cluster.changes(
                int(self._query["resourceVersion"]), float(self._query["timeoutSeconds"])
            ):
                if change is None:
                    self.close_connection = True
                    return
                if change["type"] == "BOOKMARK" or _matches(change["object"], self._query.get("labelSelector")):
                    line = json.dumps(change).encode() + b"\n"
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
            self.wfile.write(b"0\r\n\r\n")
        except OSError:  # the client is gone
            self.close_connection = True

    def _refuse(self, status: int, message: str) -> None:
        self._reply(status, {"kind": "Status", "apiVersion": "v1", "code": status, "message": message})

    def _reply(self, status: int, what: Any) -> None:
        text = what if isinstance(what, str) else json.dumps(what)
        self.send_response(status)
        self.send_header("Content-Type", "text/plain" if isinstance(what, str) else "application/json")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())


def _matches(item: Any, selector: str | None) -> bool:
    key, _, value = (selector or "").partition("=")
    return not key or item["metadata"].get("labels", {}).get(key) == value


def _is_under_way(pod: Any) -> bool:
    return pod["status"]["phase"] not in ("Succeeded", "Failed")


@contextmanager
def served(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """Serve a cluster on the loopback interface, and yield the kubeconfig that names it."""

    class Handler(_Handler):
        pass

    Handler.cluster = cluster
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    named = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "here",
        "clusters": [{"name": "here", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me", "namespace": cluster.namespace}}],
        "users": [{"name": "me", "user": {}}],
    }
    kubeconfig = folder / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(named))
    try:
        yield kubeconfig
    finally:
        server.shutdown()
        server.server_close()
