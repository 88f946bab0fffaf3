"""Schedulers on real clusters of two nodes, for those that are installed: Dask, and with `-m cluster` Ray and SLURM.

Those need daemons and large wheels. `benchmarks/fleet.py` runs whole searches on them.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from time import monotonic

import fleet_clusters
import pytest

from tuner.errors import FleetError
from tuner.fleet.scheduler import Scheduler, Wanted, parse
from tuner.fleet.task import Task
from tuner.tuning.events import StopToken

pytestmark = pytest.mark.filterwarnings("default")  # those of the schedulers are theirs
NEEDS = {"dask": find_spec("distributed"), "ray": find_spec("ray"), "slurm": find_spec("submitit")}


HEAVY = [pytest.param(name, marks=pytest.mark.cluster) for name in ("ray", "slurm")]


@contextmanager
def started(name: str, nodes: int) -> Iterator[fleet_clusters.Cluster]:
    """Yield a cluster, and find it by this process's environment. Skip if it is not installed.

    Nothing that it uses has a fixed name or port: test processes that run at once each start their own.
    """
    if NEEDS[name] is None:
        pytest.skip(f"the extra {name} is not installed")
    if name == "slurm" and (shutil.which("slurmctld") is None or os.geteuid() != 0):
        pytest.skip("SLURM's daemons are not installed, or this user may not start them")
    with (
        tempfile.TemporaryDirectory(prefix="tuner-fleet-", dir="/tmp") as folder,  # short: sockets lie there
        fleet_clusters.CLUSTERS[name](Path(folder), nodes) as cluster,
        pytest.MonkeyPatch.context() as patch,
    ):
        for variable, value in cluster.environment.items():
            patch.setenv(variable, value)
        yield cluster


@pytest.fixture(scope="module", params=["dask", *HEAVY])
def cluster(request: pytest.FixtureRequest) -> Iterator[fleet_clusters.Cluster]:
    with started(request.param, 2) as made:
        yield made


@pytest.fixture
def scheduler(cluster: fleet_clusters.Cluster) -> Iterator[Scheduler]:
    with parse(cluster.on, Wanted(gpus=0)) as entered:
        yield entered


@pytest.mark.parametrize("name", HEAVY)
def test_one_node_runs_a_task(name: str, migrated: Path) -> None:
    task = Task("list", ("list", "--json"), {"TUNER_DB": str(migrated)})
    with started(name, 1) as one, parse(one.on, Wanted(gpus=0)) as scheduler:
        (ended,) = scheduler.submit_all([task], StopToken(), lambda under_way: None)
    assert (ended.code, str(ended.output)) == (0, "[]"), ended.error


def test_tasks_under_way_are_stopped(scheduler: Scheduler, tmp_path: Path) -> None:
    stop, began = StopToken(), monotonic()
    words = ("work", "--replay", "auto", "--poll", "600s")
    tasks = [Task(f"work {n}", words, {"TUNER_DB": str(tmp_path / "tuner.db")}) for n in range(3)]
    seen = Counter[str]()

    def watch(under_way: Mapping[str, str]) -> None:
        seen.update(under_way.values())
        if len(under_way) == 2:
            stop.set()

    assert [ended.code for ended in scheduler.submit_all(tasks, stop, watch) if ended.code != 130] == []
    assert len(seen) == 2  # nodes
    assert monotonic() - began < 60


def test_every_task_ends_once_though_a_node_is_lost(
    scheduler: Scheduler, cluster: fleet_clusters.Cluster, migrated: Path
) -> None:
    environment = {"TUNER_DB": str(migrated)}
    tasks = [Task(f"list {n}", ("list", "--json"), environment) for n in range(6)]
    tasks.append(Task("wrong", ("search", "gemm", "--M=none"), environment))
    ends = {}
    for ended in scheduler.submit_all(tasks, StopToken(), lambda under_way: None):
        assert ended.task.name not in ends
        ends[ended.task.name] = ended
        if len(ends) == 1:
            Thread(target=cluster.lose, args=[os.getpid()]).start()
    wrong = ends.pop("wrong")
    assert (wrong.code, wrong.output) == (2, None), wrong.error
    assert wrong.error == "gemm: M is a whole number from 1 to 2147483647, not 'none'"
    assert {(ended.code, str(ended.output)) for ended in ends.values()} == {(0, "[]")}
    assert len(ends) == 6
    assert all(ended.where for ended in ends.values())


def test_a_dask_scheduler_that_is_lost_is_an_error(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    lost = list[object]()

    def watch(under_way: Mapping[str, str]) -> None:
        if under_way and not lost:
            lost.append(dask_cluster.close())

    task = Task("work", ("work", "--replay", "auto", "--poll", "600s"), {"TUNER_DB": str(tmp_path / "tuner.db")})
    dask_cluster = distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    with (
        dask_cluster,
        parse(f"dask:{dask_cluster.scheduler_address}", Wanted(gpus=0)) as scheduler,
        pytest.raises(FleetError, match=r"the Dask scheduler at tcp://\S+ does not answer any more"),
    ):
        list(scheduler.submit_all([task], StopToken(), watch))
    assert lost


def test_a_cluster_whose_daemon_ends_is_an_error_with_its_log(tmp_path: Path) -> None:
    code = "import sys; sys.exit('the port is in use')"
    with ExitStack() as stack:
        daemons = fleet_clusters.Daemons(tmp_path, stack)
        daemons.start(sys.executable, "-c", code)
        with pytest.raises(fleet_clusters.ClusterError) as raised:
            daemons.wait_for((tmp_path / "socket").exists, "munge")
    assert str(raised.value).splitlines() == [
        f"munge is not ready: {sys.executable} -c {code} ended with code 1",
        "daemons.log: the port is in use",
    ]
