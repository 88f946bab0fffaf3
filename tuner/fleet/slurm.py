"""Tasks as jobs of SLURM, one array for each few hundred. `SBATCH_ACCOUNT`, `SBATCH_TIMELIMIT` and others apply.

Whether a job has ended is read from its result file and from `squeue`: without an accounting database `sacct` knows
nothing.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Self
from uuid import uuid4

import platformdirs
import submitit
from submitit.core.utils import FailedJobError, FailedSubmissionError
from submitit.helpers import DelayedSubmission

from tuner.errors import FleetError
from tuner.fleet.command import run
from tuner.fleet.scheduler import SETTINGS, Wanted, Watch
from tuner.fleet.task import Ended, Task
from tuner.tuning.events import StopToken

FOLDER_VARIABLE = "TUNER_SLURM_FOLDER"
"""Environment variable with a folder that the submitting host and all nodes share, for the files of the jobs."""


@dataclass(frozen=True)
class SlurmSettings:
    """Sizes and limits of the jobs."""

    array: int = 500
    """Number of jobs of an array; SLURM's default limit is 1,000."""
    minutes: int = 240
    """Time limit of a job. One that reaches it is queued again, and keeps its trials."""
    listing_s: float = 5.0
    """Seconds between two calls of `squeue`."""
    lost_s: float = 90.0
    """Seconds after which a job that `squeue` does not list and that has no result file has ended without one.

    A new file on NFS is seen after up to 60 s (`acdirmax`).
    """
    unreachable_s: float = 600.0
    """Seconds for which `squeue` may fail, such as during a restart of the controller."""


SLURM = SlurmSettings()


class Command:
    """The command of a task. A job whose time is up is queued again with the same task."""

    def __call__(self, task: Task) -> Ended:
        """Run it, and end without a result if SLURM ends the job: it may queue it again."""
        ended = run(task, where=os.environ.get("SLURMD_NODENAME", ""))
        if ended.code == -signal.SIGTERM:  # sent to all processes of a job that is preempted; submitit ignores it
            os._exit(128 + signal.SIGTERM)
        return ended

    def checkpoint(self, task: Task) -> Any:
        """Return what submitit queues when the time is up: the same again, since the store has the trials."""
        return DelayedSubmission(self, task)


class SlurmScheduler:
    """Submits jobs with `sbatch`. SLURM queues those of a lost node again."""

    name = "slurm"

    def __init__(self, partition: str, wanted: Wanted) -> None:
        self._name = f"tuner-{uuid4().hex[:8]}"
        shared = os.environ.get(FOLDER_VARIABLE) or platformdirs.user_cache_path("triton-tuner") / "slurm"
        self._folder = Path(shared).absolute() / self._name
        gpus = {"gpus_per_node": wanted.gpus} if wanted.gpus else {}
        named = {"slurm_partition": partition} if partition else {}
        self._parameters: dict[str, Any] = {**gpus, **named}

    def __enter__(self) -> Self:
        if shutil.which("sbatch") is None:
            raise FleetError("--on slurm needs the commands of SLURM, and there is no sbatch; run it on a login node")
        try:
            self._folder.mkdir(parents=True, mode=0o700)  # the tasks in it may hold a password
        except OSError as error:
            raise FleetError(
                f"--on slurm needs a folder that all nodes share, and {self._folder.parent} cannot be written: "
                f"{error.strerror}; give another with {FOLDER_VARIABLE}"
            ) from error
        self._executor = submitit.AutoExecutor(self._folder, cluster="slurm")
        self._executor.update_parameters(
            name=self._name,
            timeout_min=SLURM.minutes,
            slurm_array_parallelism=SLURM.array,
            slurm_additional_parameters={"requeue": True},
            **self._parameters,
        )
        return self

    def __exit__(self, *_: object) -> None:
        subprocess.run(["scancel", "--quiet", f"--name={self._name}"], check=False, capture_output=True)
        for file in self._folder.glob("*.pkl"):
            file.unlink()

    def submit_all(self, tasks: Sequence[Task], stop: StopToken, watch: Watch) -> Iterator[Ended]:
        """Submit arrays of jobs, and yield each job's result once its file is there."""
        left = dict(zip(self._jobs(tasks), tasks, strict=True))
        nodes, asked = dict[str, str](), monotonic()
        seen = dict.fromkeys(left, asked)
        while left and not stop():
            for job in [job for job in left if job.paths.result_pickle.exists()]:
                yield _ended(job, left.pop(job), nodes.get(job.job_id, ""))
            if left and monotonic() - asked > SLURM.listing_s and (listed := self._listed()) is not None:
                asked, nodes = monotonic(), nodes | listed
                seen |= {job: asked for job in left if job.job_id in listed}
                for job in [job for job in left if asked - seen[job] > SLURM.lost_s]:
                    yield _ended(job, left.pop(job), nodes.get(job.job_id, ""))
                watch({task.name: node for job, task in left.items() if (node := listed.get(job.job_id))})
            if monotonic() - asked > SLURM.unreachable_s:
                raise FleetError(f"squeue has failed for {SLURM.unreachable_s:.0f} s; the jobs are named {self._name}")
            sleep(SETTINGS.poll_s)

    def _jobs(self, tasks: Sequence[Task]) -> Iterator[Any]:
        for first in range(0, len(tasks), SLURM.array):
            try:
                yield from self._executor.map_array(Command(), tasks[first : first + SLURM.array])
            except (FailedJobError, FailedSubmissionError) as error:
                raise FleetError(f"SLURM refuses the jobs: {_last_line(error)}") from error

    def _listed(self) -> dict[str, str] | None:
        """Return the node of each job that has not ended, empty if it waits; None if SLURM does not answer."""
        command = ["squeue", "--noheader", "--array", f"--name={self._name}", "--format=%F|%K|%N"]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode:
            return None
        rows = (line.split("|") for line in done.stdout.splitlines())
        return {job if index == "N/A" else f"{job}_{index}": node.strip() for job, index, node in rows}


def _ended(job: Any, task: Task, node: str) -> Ended:
    why = "SLURM ended the job without a result"
    if job.paths.result_pickle.exists():
        try:
            ended: Ended = job.result()
            return ended
        except FailedJobError:
            why = "the job failed"
    return Ended(task, None, node, error=f"{why}; its log is {job.paths.stderr}")


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1][:200]


def scheduler(place: str, wanted: Wanted) -> SlurmScheduler:
    """Return the scheduler of `slurm[:PARTITION]`."""
    return SlurmScheduler(place, wanted)
