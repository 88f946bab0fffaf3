"""Counters of the card by Nsight Compute, if it is installed and permitted."""

from __future__ import annotations

import csv
import os
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tuner.profiling.messages import Failed, ProfileTask

METRICS = {
    "time_ns": "gpu__time_duration.sum",
    "memory_read_bytes": "dram__bytes_read.sum",
    "memory_written_bytes": "dram__bytes_write.sum",
    "shared_conflicts": "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",
    "load_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum",
    "load_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",
    "store_sectors": "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum",
    "store_requests": "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum",
    "occupancy_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
}
"""Counters by our name, each with Nsight Compute's."""
LIMIT_S = 180.0
"""Time limit of the process, in seconds."""


@dataclass(frozen=True)
class Counters:
    """Counters of one launch, by our names."""

    kernel: str
    values: Mapping[str, float]


def counters(task: ProfileTask, visible: str, tool: str | None = None) -> tuple[Counters, ...] | Failed:
    """Return the counters of each launch of a config, or why there are none.

    Args:
        visible: value of CUDA_VISIBLE_DEVICES for the process.
        tool: path of `ncu`; None is the one in PATH.
    """
    tool = tool or shutil.which("ncu")
    if tool is None:
        return Failed("Nsight Compute (ncu) is not installed")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "task"
        file.write_bytes(pickle.dumps(task))
        command = [
            tool, "--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off",
            "--metrics", ",".join(METRICS.values()), sys.executable, "-P", "-m", "tuner.profiling.once", str(file),
        ]  # fmt: skip
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": visible}
        try:
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=LIMIT_S)
        except (OSError, subprocess.SubprocessError) as error:
            return Failed(f"Nsight Compute could not run: {str(error)[:200]}")
    shown = f"{done.stdout}\n{done.stderr}"
    if "ERR_NVGPUCTRPERM" in shown:
        return Failed("the driver permits no counters to this user (ERR_NVGPUCTRPERM)")
    found = parsed(done.stdout.splitlines())
    if not found:
        errors = re.findall(r"==ERROR== (.*)", shown)
        return Failed(f"Nsight Compute gave no counters: {(errors or ['it printed none'])[0][:200]}")
    return found


def parsed(lines: Sequence[str]) -> tuple[Counters, ...]:
    """Return the counters in the lines that Nsight Compute prints as CSV, without its messages and row of units."""
    rows = csv.DictReader(line for line in lines if line.startswith('"'))
    found = []
    for row in rows:
        numbers = {ours: _number(row.get(theirs)) for ours, theirs in METRICS.items()}
        known = {name: number for name, number in numbers.items() if number is not None}
        if known and row.get("ID"):
            found.append(Counters(row.get("Kernel Name") or "", known))
    return tuple(found)


def _number(text: str | None) -> float | None:
    try:
        return float((text or "").replace(",", ""))
    except ValueError:
        return None
