"""Real clusters on one machine, for `fleet.py`: each has several nodes, and can lose one without warning."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, sleep

from ports import free_ports

_READY_S = 180.0
"""Seconds in which a cluster has to be ready; one on an idle machine needs about 5."""
_LOG_LINES = 40
"""Number of last lines of each log that a message about a cluster holds."""


@dataclass(frozen=True)
class Cluster:
    """A running cluster."""

    on: str
    """The text of `--on`."""
    lose: Callable[[int], str]
    """Lose a node that works; return its name. The argument is the process id of `tuner search`."""
    environment: dict[str, str] = field(default_factory=dict)
    """Variables by which `tuner search` finds it."""


class Daemons:
    """Processes that are started in groups of their own, log to a folder, and end with it."""

    def __init__(self, folder: Path, stack: ExitStack, environment: Mapping[str, str] | None = None) -> None:
        self._folder, self._stack, self._started = folder, stack, list[subprocess.Popen[bytes]]()
        self._environment = os.environ | (environment or {})

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self._folder / "daemons.log").open("a") as log:
            started = subprocess.Popen(words, stdout=log, stderr=log, env=self._environment, start_new_session=True)
        self._stack.callback(_kill, started)
        self._started.append(started)
        return started

    def wait_for(self, is_true: Callable[[], object], what: str) -> None:
        """Wait until something holds. Raises ClusterError with the logs if it does not in time, or if a daemon ends."""
        until = monotonic() + _READY_S
        while not is_true():
            ended = [daemon for daemon in self._started if daemon.poll() is not None]
            if ended:
                command = " ".join(map(str, ended[0].args))  # type: ignore[arg-type]
                raise ClusterError(
                    f"{what} is not ready: {command} ended with code {ended[0].returncode}", self._folder
                )
            if monotonic() > until:
                load = f"the load is {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
                raise ClusterError(f"{what} is not ready after {_READY_S:.0f} s; {load}", self._folder)
            sleep(0.1)


class ClusterError(Exception):
    """A cluster that did not get ready, with the ends of its daemons' logs."""

    def __init__(self, text: str, folder: Path, pattern: str = "*.log") -> None:
        logs = {file.name: file.read_text(errors="replace").splitlines() for file in sorted(folder.glob(pattern))}
        super().__init__("\n".join([text, *(f"{name}: {line}" for name in logs for line in logs[name][-_LOG_LINES:])]))


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
    with ExitStack() as stack:
        daemons = Daemons(folder, stack)
        daemons.start(*begin, "scheduler", "--port", "0", "--host", "127.0.0.1", *common)
        daemons.wait_for(file.exists, "the Dask scheduler")
        options = ["--nthreads", "1", "--no-nanny", "--memory-limit", "0", "--local-directory", str(folder), *common]
        workers = {
            f"node-{n}": daemons.start(*begin, "worker", "--name", f"node-{n}", *options) for n in range(1, nodes + 1)
        }

        def lose(search: int) -> str:
            def working() -> list[str]:
                return [name for name, worker in workers.items() if _children(worker.pid)]

            daemons.wait_for(working, "a task")
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

    Path("/tmp/ray").mkdir(exist_ok=True)  # where Ray notes the address of the head, whatever `temp_dir` is
    cluster = cluster_utils.Cluster()
    given = {"object_store_memory": 80_000_000, "temp_dir": str(folder), "wait": False}
    try:
        try:
            cluster.add_node(num_cpus=0, include_dashboard=False, **given)
            started = [cluster.add_node(num_cpus=1, **given) for _ in range(nodes)]
            cluster.wait_for_nodes(timeout=_READY_S)
        except Exception as error:
            raise ClusterError(f"Ray is not ready: {error}", folder, "session_2*/logs/*.*") from error

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
PartitionName=p Nodes=n[1-{nodes}] Default=YES
"""
_SLURM_NODE = "NodeName=n{n} NodeHostname=localhost NodeAddr=127.0.0.1 Port={port} CPUs=1 RealMemory=1000 Gres=gpu:1\n"


@contextmanager
def slurm(folder: Path, nodes: int) -> Iterator[Cluster]:
    """Yield a SLURM of several nodes on this host: slurmctld, a slurmd for each node, and munge. Needs root."""
    port, *ports = free_ports(1 + nodes)
    text = _SLURM.format(folder=folder, nodes=nodes, port=port)
    of_nodes = (_SLURM_NODE.format(n=n, port=port) for n, port in enumerate(ports, 1))
    (folder / "slurm.conf").write_text("".join([text, *of_nodes]))
    (folder / "gres.conf").write_text(
        "".join(f"NodeName=n{n} Name=gpu File=/dev/tty{n}\n" for n in range(1, nodes + 1))
    )
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o400)
    (folder / "state").mkdir()
    environment = {"SLURM_CONF": str(folder / "slurm.conf"), "TUNER_SLURM_FOLDER": str(folder / "jobs")}
    with ExitStack() as stack:
        daemons = Daemons(folder, stack, environment)
        munge = ["--foreground", "--force", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.socket"]
        files = [f"--{kind}-file={folder}/munged.{kind}" for kind in ("pid", "log", "seed")]
        daemons.start("munged", *munge, *files)
        daemons.wait_for((folder / "munge.socket").exists, "munge")
        daemons.start("slurmctld", "-D")
        of_node = {f"n{n}": daemons.start("slurmd", "-D", "-N", f"n{n}") for n in range(1, nodes + 1)}
        stack.callback(_kill_all, f"SLURM_CONF={folder}/slurm.conf")

        def idle() -> bool:
            command = ["sinfo", "--noheader", "--format=%t", "--Node"]
            done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True)
            return done.stdout.split() == ["idle"] * nodes

        def lose(search: int) -> str:
            _kill(of_node["n1"])
            _kill_all("SLURMD_NODENAME=n1", f"SLURM_CONF={folder}/slurm.conf")
            return "n1"

        daemons.wait_for(idle, "SLURM")
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
