"""Jobs of SLURM, without a SLURM: `test_clusters.py` has a real one where its daemons are installed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.errors import FleetError
from tuner.fleet.scheduler import Wanted, parse
from tuner.fleet.task import Task

pytest.importorskip("submitit")


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sbatch").touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TUNER_SLURM_FOLDER", str(tmp_path / "sbatch"))
    with pytest.raises(FleetError) as refused, parse("slurm", Wanted(gpus=0)):
        pass
    assert str(refused.value) == (
        f"--on slurm needs a folder that all nodes share, and {tmp_path}/sbatch cannot be written: Not a directory; "
        "give another with TUNER_SLURM_FOLDER"
    )


def test_a_preempted_job_has_no_result(tmp_path: Path) -> None:
    (tmp_path / "ended.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGTERM)")
    task = Task("ended", ("search", str(tmp_path / "ended.py")))
    code = "import sys; from tuner.fleet import slurm, task; print(slurm.Command()(task.Task.from_text(sys.argv[1])))"
    job = subprocess.run([sys.executable, "-P", "-c", code, task.as_text()], capture_output=True, text=True)
    assert (job.returncode, job.stdout) == (128 + signal.SIGTERM, ""), job.stderr
