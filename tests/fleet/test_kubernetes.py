"""Fleets on Kubernetes: the real client with an API server over HTTP, since tests cannot have a cluster."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_api import ROLE, Cluster, Run, served

from tuner.errors import FleetError, UsageError
from tuner.fleet.kubernetes_job import CONTAINER, JobSettings, job_name, job_of
from tuner.fleet.pod import exit_code
from tuner.fleet.scheduler import Wanted, parse
from tuner.fleet.task import Ended, Task
from tuner.tuning.events import StopToken

pytest.importorskip("kubernetes")

KUBERNETES = Path(__file__).parents[2] / "docker" / "kubernetes"
DB = "postgresql://tuner:password@db/tuner"
SECRET = {"TUNER_DB": DB}
SPACE = "gemm-4096x4096x4096-bf16-nvidia-h200"
POD = {
    "metadata": {"labels": {"kueue.x-k8s.io/queue-name": "gpus"}},
    "spec": {
        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H200"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [{"name": CONTAINER, "image": "registry/search:1", "resources": {"requests": {"cpu": "8"}}}],
    },
}
"""Fields of a pod as a user states them."""


def task(name: str, *words: str) -> Task:
    return Task(name, words or ("search", "gemm", "--M", name), SECRET)


def said(environment: Mapping[str, str], code: int, error: str = "", output: Any = None) -> tuple[int, str]:
    """Return what a pod leaves whose command ended by itself."""
    done = Ended(Task.from_text(environment["TUNER_TASK"]), code, "pod", output, error, 1.5)
    return 0, f"Searching.\n{done.as_text()}\nlast words\n"


@pytest.fixture
def cluster_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Cluster]]:
    """Return a function that starts a cluster, which the current kubeconfig then names."""
    with ExitStack() as stack:

        def start(run: Run, secret: str = "triton-tuner", values: Mapping[str, str] = SECRET) -> Cluster:
            cluster = Cluster(run, {secret: values})
            monkeypatch.setenv("KUBECONFIG", str(stack.enter_context(served(cluster, tmp_path))))
            return cluster

        yield start


def run_all(*tasks: Task, on: str = "kubernetes", stop: StopToken | None = None, gpus: int = 1) -> dict[str, Ended]:
    seen: dict[str, str] = {}
    with parse(on, Wanted(gpus)) as scheduler:
        ends = list(scheduler.submit_all(tasks, stop or StopToken(), seen.update))
    assert len({ended.task.name for ended in ends}) == len(ends)
    return {ended.task.name: ended for ended in ends}


def test_each_task_is_a_job_and_its_end_is_what_the_command_says(cluster_of: Callable[..., Cluster]) -> None:
    def run(environment: Mapping[str, str], node: str) -> tuple[int, str]:
        assert environment["TUNER_DB"] == DB
        wanted = Task.from_text(environment["TUNER_TASK"])
        if wanted.name == "wrong":
            return said(environment, 1, "no config ran")
        return said(environment, 0, output={"words": wanted.words, "node": node})

    cluster = cluster_of(run)
    tasks = [task("wrong"), *(task(str(number)) for number in range(5))]
    ends = run_all(*tasks)
    assert set(ends) == {one.name for one in tasks}
    for number in range(5):
        ended = ends[str(number)]
        assert (ended.code, ended.error, ended.seconds) == (0, "", 1.5)
        assert ended.output == {"words": ["search", "gemm", "--M", str(number)], "node": ended.where}
        assert ended.task == tasks[number + 1]
    assert {ended.where for ended in ends.values()} == {"n1", "n2"}
    assert (ends["wrong"].code, ends["wrong"].error) == (1, "no config ran")
    assert len(cluster.pods) == 6, "a command that ended by itself is not run again"
    assert not any(request.startswith("DELETE") for request in cluster.requests)
    assert len(cluster.jobs) == 6, "Kubernetes deletes them later, so that their logs can be read"


def test_no_value_of_a_variable_is_in_a_request(cluster_of: Callable[..., Cluster]) -> None:
    cluster = cluster_of(lambda environment, node: said(environment, 0))
    run_all(task("one"))
    created = [json.loads(body) for body in cluster.bodies if '"Job"' in body]
    (container,) = created[0]["spec"]["template"]["spec"]["containers"]
    assert {"name": "triton-tuner", "key": "TUNER_DB"} in [
        one["valueFrom"]["secretKeyRef"] for one in container["env"][1:]
    ]
    assert "password" not in str(cluster.bodies)


def test_a_killed_pod_is_replaced_until_the_task_is_given_up(cluster_of: Callable[..., Cluster]) -> None:
    counts = dict.fromkeys(("once", "command", "pod"), 0)

    def run(environment: Mapping[str, str], node: str) -> tuple[int, str]:
        name = Task.from_text(environment["TUNER_TASK"]).name
        counts[name] += 1
        if name == "once" and counts[name] == 2:
            return said(environment, 0)
        return 137, said(environment, -9, "out of memory")[1] if name == "command" else "Searching.\nlast words\n"

    cluster_of(run)
    ends = run_all(*map(task, counts))
    assert ends["once"].code == 0
    assert (ends["command"].code, ends["command"].error) == (None, "BackoffLimitExceeded: out of memory")
    assert (ends["pod"].code, ends["pod"].error) == (None, "BackoffLimitExceeded: last words")
    assert counts == {"once": 2, "command": 4, "pod": 4}


def test_a_task_whose_node_is_lost_runs_on_another(cluster_of: Callable[..., Cluster]) -> None:
    begun, release = threading.Event(), threading.Event()

    def run(environment: Mapping[str, str], node: str) -> tuple[int, str]:
        if node == "n1":
            begun.set()
            release.wait(30)
        return said(environment, 0)

    cluster = cluster_of(run)

    def lose() -> None:
        begun.wait(30)
        cluster.lose("n1")

    threading.Thread(target=lose).start()
    ends = run_all(*(task(str(number)) for number in range(6)))
    release.set()
    assert {(ended.code, ended.where) for ended in ends.values()} == {(0, "n2")}
    assert len(ends) == 6
    assert len(cluster.pods) == 7


def test_a_pod_that_cannot_start_ends_its_task(
    cluster_of: Callable[..., Cluster], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = cluster_of(lambda environment, node: said(environment, 0), "other")
    (ended,) = run_all(task("one")).values()
    assert (ended.code, ended.where) == (None, "n1")
    assert ended.error == 'CreateContainerConfigError: secret "triton-tuner" not found'
    assert cluster.jobs == {}
    monkeypatch.setenv("TUNER_POD", str(tmp_path / "pod.yaml"))
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(POD))
    (ended,) = run_all(task("two")).values()
    assert ended.error == 'ImagePullBackOff: Back-off pulling image "registry/search:1"'
    container = {"name": CONTAINER, "env": [{"name": "TUNER_DB", "valueFrom": {"secretKeyRef": {"name": "other"}}}]}
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump({"spec": {"containers": [container]}}))
    assert run_all(task("three"))["three"].code == 0


def test_a_stop_deletes_the_jobs(cluster_of: Callable[..., Cluster]) -> None:
    release, stop = threading.Event(), StopToken()

    def run(environment: Mapping[str, str], node: str) -> tuple[int, str]:
        release.wait(30)
        return said(environment, 0)

    cluster = cluster_of(run)
    places: list[Mapping[str, str]] = []

    def watch(under_way: Mapping[str, str]) -> None:
        places.append(under_way)
        stop.set()

    with parse("kubernetes:tuning", Wanted()) as scheduler:
        assert list(scheduler.submit_all([task("a"), task("b"), task("c")], stop, watch)) == []
    release.set()
    assert places == [{"a": "n1", "b": "n2"}]
    assert cluster.jobs == {}
    assert cluster.pods == {}


def test_what_a_watch_misses_is_listed(cluster_of: Callable[..., Cluster]) -> None:
    """The connection is cut, the changes so far are forgotten, a Job is deleted meanwhile, and requests fail."""
    first, others = threading.Event(), threading.Event()

    def run(environment: Mapping[str, str], node: str) -> tuple[int, str]:
        name = Task.from_text(environment["TUNER_TASK"]).name
        (first if name == "first" else others).wait(30)
        return said(environment, 0)

    cluster = cluster_of(run)
    done = []
    with parse("kubernetes", Wanted()) as scheduler:
        ends = scheduler.submit_all([task("first"), task("second"), task("gone")], StopToken(), lambda _: first.set())
        done.append(next(ends))
        cluster.delete(next(name for name in cluster.jobs if name.endswith("-gone")), told=False)
        cluster.expire()
        cluster.cut = True
        cluster.answers = [(503, "the server is restarted")] * 2
        done.append(next(ends))
        others.set()
        done += ends
    assert not cluster.cut
    assert not cluster.answers
    assert [(ended.task.name, ended.code) for ended in done] == [("first", 0), ("gone", None), ("second", 0)]
    assert re.fullmatch(r"its Job tuner-[0-9a-f]{8}-2-gone was deleted", done[1].error)


def test_what_the_api_server_refuses_is_said_in_a_line(cluster_of: Callable[..., Cluster]) -> None:
    cluster = cluster_of(lambda environment, node: said(environment, 0))
    with parse("kubernetes", Wanted()) as scheduler:
        cluster.answers = [(403, 'jobs.batch is forbidden: User "me" cannot create resource "jobs"')]
        with pytest.raises(FleetError) as refused:
            list(scheduler.submit_all([task("one")], StopToken(), lambda _: None))
    assert str(refused.value) == (
        'the API server refuses a request for namespace tuning: jobs.batch is forbidden: User "me" cannot create '
        'resource "jobs"'
    )


@pytest.mark.parametrize("text", [None, "", "a: [", "\xff\xfe"])
def test_a_kubeconfig_that_names_no_cluster_is_refused_in_a_line(
    text: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    if text is not None:
        (tmp_path / "config").write_text(text, encoding="latin-1")
    with pytest.raises(
        FleetError, match=r"^--on kubernetes needs a cluster, and .*; set KUBECONFIG to the file of one$"
    ):
        parse("kubernetes", Wanted()).__enter__()


def test_a_job_that_is_gone_can_be_deleted(cluster_of: Callable[..., Cluster]) -> None:
    """As if the reply to the first request was lost."""
    from tuner.fleet import kubernetes_cluster

    cluster = cluster_of(lambda environment, node: said(environment, 0))
    namespace = kubernetes_cluster.Cluster("")
    cluster.answers = [(404, 'jobs.batch "one" not found')]
    namespace.delete("one")
    namespace.close()
    assert not cluster.answers


def test_a_server_that_does_not_answer_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(Cluster(lambda environment, node: (0, ""), {}), tmp_path) as kubeconfig:
        monkeypatch.setenv("KUBECONFIG", str(kubeconfig))
    with pytest.raises(FleetError, match=r"the API server of namespace tuning cannot be reached: .*refused"):
        parse("kubernetes", Wanted()).__enter__()


def test_a_search_in_a_pod_stores_its_answer(cluster_of: Callable[..., Cluster], tmp_path: Path) -> None:
    """The command of the pod is run as it is, with the variables that the pod has."""
    from tuner.db.store import Store, database_at

    database = str(tmp_path / "tuner.db")

    def run(environment: Mapping[str, str], node: str) -> tuple[int, str]:
        command = [sys.executable, "-P", "-m", "tuner.fleet.pod"]
        both: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        done = subprocess.run(command, env=os.environ | environment, check=False, text=True, **both)
        return done.returncode, done.stdout

    cluster_of(run, values={"TUNER_DB": database})
    words = ("search", "gemm", "--M", "4096", "--replay", SPACE, "--trials", "5", "--json")
    (ended,) = run_all(task("gemm 4096", *words), gpus=0).values()
    assert (ended.code, ended.error) == (0, "")
    (stored,) = Store.open(database_at(Path(database))).answers()
    assert dict(stored.answer.config) == ended.output["config"]


@pytest.mark.parametrize(("pod", "gpus", "version"), [({}, 0, "1.31"), ({}, 1, "1.37"), (POD, 1, "1.37")])
def test_the_manifest_is_valid(pod: dict[str, Any], gpus: int, version: str) -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    job = job_of(task("gemm 4096 x 4096"), "tuner-1-0-gemm", "tuner-1", gpus, JobSettings(pod=pod))
    assert validate(job, version, strict=True) == version
    spec = job["spec"]["template"]["spec"]
    assert spec["restartPolicy"] == "Never"
    assert len(spec["containers"]) == 1
    limits = spec["containers"][0]["resources"].get("limits", {})
    assert limits == ({"nvidia.com/gpu": "1"} if gpus else {})
    if pod:
        assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
        assert spec["containers"][0]["resources"]["requests"] == {"cpu": "8"}
        assert spec["containers"][0]["image"] == "registry/search:1"
        assert [one["key"].rpartition("/")[2] for one in spec["tolerations"]] == ["not-ready", "unreachable", "gpu"]


def test_the_files_for_a_cluster_are_valid() -> None:
    validate = pytest.importorskip("kubernetes_validate").validate
    validate(ROLE, "1.37", strict=True)
    pod = yaml.safe_load((KUBERNETES / "pod.yaml").read_text())
    job = job_of(task("gemm"), "tuner-1-0-gemm", "tuner-1", 1, JobSettings(pod=pod))
    validate(job, "1.37", strict=True)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"}
    assert container["resources"]["requests"] == pod["spec"]["containers"][0]["resources"]["requests"]


def test_a_pod_fails_only_if_its_command_was_killed() -> None:
    assert [exit_code(code) for code in (0, 1, 5, -9, -15)] == [0, 0, 0, 137, 143]


def test_names_are_dns_labels_and_differ() -> None:
    for number, name in enumerate(["gemm 4096 x 1 bf16", "", "-", "Ü" * 300, "a" * 300, "x.py::softmax", "a" * 300]):
        given = job_name("tuner-0123abcd", number, task(name))
        assert re.fullmatch(r"tuner-0123abcd-\d+([a-z0-9-]*[a-z0-9])?", given)
        assert len(given) <= 63
    assert job_name("tuner-0123abcd", 7, task("gemm 16 x 4096 bf16")) == "tuner-0123abcd-7-gemm-16-x-4096-bf16"


@pytest.mark.parametrize(
    ("on", "pod", "message"),
    [
        (
            "kubernetes:Tuning/x",
            None,
            "a namespace has at most 63 of a-z, 0-9 and -, and --on kubernetes names 'Tuning/x'",
        ),
        (
            "kubernetes",
            "image: x\n",
            "TUNER_POD names a file with the fields metadata and spec of a pod, and .* has others",
        ),
        ("kubernetes", "a: [", "TUNER_POD names a YAML file, and .* cannot be read: while parsing a flow node"),
    ],
)
def test_what_is_stated_wrongly_is_refused(
    on: str, pod: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pod is not None:
        (tmp_path / "pod.yaml").write_text(pod)
        monkeypatch.setenv("TUNER_POD", str(tmp_path / "pod.yaml"))
    with pytest.raises(UsageError, match=f"^{message}"):
        parse(on)
