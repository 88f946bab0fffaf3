"""Real clusters on one machine, for `fleet.py`: each has several nodes, and can lose one without warning."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

_READY_S = 60.0
"""Seconds in which a cluster has to be ready."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    on: str
    """The text of `--on`."""
    lose: Callable[[int], str]
    """Lose a node that works; return its name. The argument is the process id of `tuner search`."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables by which `tuner search` finds it."""


def wait_for(is_true: Callable[[], object], what: str) -> None:
    until = monotonic() + _READY_S
    while not is_true():
        if monotonic() > until:
            raise TimeoutError(f"{what} is not ready after {_READY_S:.0f} s")
        sleep(0.1)


@contextmanager
def local(folder: Path, nodes: int) -> Iterator[Cluster]:
    """Yield the processes of this machine; the loss of a node is the end of one of them."""

    def lose(search: int) -> str:
        process = next(pid for pid in _children(search) if b"tuner.fleet.command" in _cmdline(pid))
        os.kill(process, signal.SIGKILL)
        return f"process {process}"

    yield Cluster(f"local:{nodes}", lose)


@contextmanager
def dask(folder: Path, nodes: int) -> Iterator[Cluster]:
    """Yield a Dask cluster: a scheduler and workers, each a process."""
    file, begin = folder / "scheduler.json", [str(Path(sys.executable).with_name("dask"))]
    common = ["--scheduler-file", str(file), "--no-dashboard"]
    with ExitStack() as stack, (folder / "dask.log").open("w") as log:

        def start(*words: str) -> subprocess.Popen[bytes]:
            started = subprocess.Popen([*begin, *words, *common], stdout=log, stderr=log, start_new_session=True)
            stack.callback(_kill, started)
            return started

        start("scheduler", "--port", "0", "--host", "127.0.0.1")
        wait_for(file.exists, "the Dask scheduler")
        options = ["--nthreads", "1", "--no-nanny", "--memory-limit", "0", "--local-directory", str(folder)]
        workers = {f"node-{n}": start("worker", "--name", f"node-{n}", *options) for n in range(1, nodes + 1)}

        def lose(search: int) -> str:
            def working() -> list[str]:
                return [name for name, worker in workers.items() if _children(worker.pid)]

            wait_for(working, "a task")
            name = working()[0]
            _kill(workers[name])
            return name

        from distributed import Client

        with Client(scheduler_file=str(file), set_as_default=False) as client:
            client.wait_for_workers(nodes)
            address = client.scheduler.address
        yield Cluster(f"dask:{address}", lose)


@contextmanager
def ray(folder: Path, nodes: int) -> Iterator[Cluster]:
    """Yield a Ray cluster: a head that runs no tasks, and nodes with a core each."""
    from ray import cluster_utils

    sizes = {"object_store_memory": 80_000_000, "include_dashboard": False}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args={"num_cpus": 0, **sizes})
    try:
        started = [cluster.add_node(num_cpus=1, object_store_memory=80_000_000) for _ in range(nodes)]

        def lose(search: int) -> str:
            cluster.remove_node(started[0], allow_graceful=False)
            return f"node {started[0].node_id[:8]}"

        yield Cluster(f"ray:{cluster.address}", lose)
    finally:
        cluster.shutdown()


_SLURM = """\
ClusterName=tuner
SlurmctldHost=localhost
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthInfo=socket={folder}/munge.socket,cred_expire=10
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SlurmdTimeout=5
GresTypes=gpu
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
NodeName=n[1-{nodes}] NodeHostname=localhost NodeAddr=127.0.0.1 Port=[{first}-{last}] CPUs=1 RealMemory=1000 Gres=gpu:1
PartitionName=p Nodes=n[1-{nodes}] Default=YES
"""
_PORT = 26820
"""Port of the controller; those of the nodes follow."""


@contextmanager
def slurm(folder: Path, nodes: int) -> Iterator[Cluster]:
    """Yield a SLURM of several nodes on this host: slurmctld, a slurmd for each node, and munge. Needs root."""
    text = _SLURM.format(folder=folder, nodes=nodes, port=_PORT, first=_PORT + 1, last=_PORT + nodes)
    (folder / "slurm.conf").write_text(text)
    (folder / "gres.conf").write_text(
        "".join(f"NodeName=n{n} Name=gpu File=/dev/tty{n}\n" for n in range(1, nodes + 1))
    )
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    (folder / "state").mkdir()
    environment = {"SLURM_CONF": str(folder / "slurm.conf"), "TUNER_SLURM_FOLDER": str(folder / "jobs")}
    with ExitStack() as stack, (folder / "slurm.log").open("w") as log:

        def start(*words: str) -> subprocess.Popen[bytes]:
            started = subprocess.Popen(
                words, stdout=log, stderr=log, env=os.environ | environment, start_new_session=True
            )
            stack.callback(_kill, started)
            return started

        socket = folder / "munge.socket"
        munge = ["--foreground", "--force", f"--key-file={folder}/munge.key", f"--socket={socket}"]
        files = [f"--{kind}-file={folder}/munged.{kind}" for kind in ("pid", "log", "seed")]
        start("munged", *munge, *files)
        wait_for(socket.exists, "munge")
        start("slurmctld", "-D")
        daemons = {f"n{n}": start("slurmd", "-D", "-N", f"n{n}") for n in range(1, nodes + 1)}
        stack.callback(_kill_all, f"SLURM_CONF={folder}/slurm.conf")

        def idle() -> bool:
            command = ["sinfo", "--noheader", "--format=%t", "--Node"]
            done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
            return done.stdout.split() == ["idle"] * nodes

        def lose(search: int) -> str:
            _kill(daemons["n1"])
            _kill_all("SLURMD_NODENAME=n1", f"SLURM_CONF={folder}/slurm.conf")
            return "n1"

        wait_for(idle, "SLURM")
        yield Cluster("slurm:p", lose, environment)


CLUSTERS = {"local": local, "dask": dask, "ray": ray, "slurm": slurm}


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _kill_all(*variables: str) -> None:
    """Kill the processes with all these variables in their environment, and the daemons of SLURM that run them."""
    wanted = {text.encode() for text in variables}
    for pid in _pids():
        if wanted <= {*_read(pid, "environ").split(b"\0")}:
            parent = _parent(pid)
            if _cmdline(parent).startswith(b"slurmstepd"):
                _end(parent)
            _end(pid)


def _end(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _pids() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit() and int(path.name) != os.getpid()]


def _children(pid: int) -> list[int]:
    return [one for one in _pids() if _parent(one) == pid]


def _parent(pid: int) -> int:
    fields = _read(pid, "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _cmdline(pid: int) -> bytes:
    return _read(pid, "cmdline")


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""
