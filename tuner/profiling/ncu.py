"""Counters of the card by Nsight Compute, if it is installed and permitted."""

from __future__ import annotations

import csv
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tuner.measure.processes import helper_environment
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
"""Nsight Compute's name of each counter."""
LIMIT_S = 180.0
"""Time limit of the process, in seconds."""


@dataclass(frozen=True)
class Counters:
    """Counters of one launch, by the names of `METRICS`."""

    kernel: str
    values: Mapping[str, float]


class NsightRun:
    """A process under Nsight Compute. It starts at once, imports torch, and launches nothing until it has its config.

    Args:
        environment: variables added to those of a helper process.
        tool: path of `ncu`; None is the one in PATH.
    """

    def __init__(self, environment: dict[str, str], tool: str | None = None) -> None:
        self._folder = TemporaryDirectory()
        self._process: subprocess.Popen[bytes] | None = None
        self._why = "Nsight Compute (ncu) is not installed"
        tool = tool or shutil.which("ncu")
        if tool is None:
            return
        command = [
            tool, "--csv", "--page", "raw", "--print-units", "base", "--profile-from-start", "off",
            "--clock-control", "none", "--metrics", ",".join(METRICS.values()),
            sys.executable, "-P", "-m", "tuner.profiling.once", str(self._file("task")), str(os.getpid()),
        ]  # fmt: skip
        try:
            with self._file("stdout").open("wb") as printed, self._file("stderr").open("wb") as errors:
                self._process = subprocess.Popen(
                    command,
                    env=helper_environment() | environment,
                    stdin=subprocess.DEVNULL,
                    stdout=printed,
                    stderr=errors,
                    start_new_session=True,  # its group has the process that it profiles
                )
        except OSError as error:
            self._why = f"Nsight Compute could not run: {str(error)[:200]}"

    def begin(self, task: ProfileTask) -> None:
        """Launch a config."""
        whole = self._file("whole")
        whole.write_bytes(pickle.dumps(task))
        whole.rename(self._file("task"))

    def counters(self, limit_s: float = LIMIT_S) -> tuple[Counters, ...] | Failed:
        """Return the counters of each launch of the config, or why there are none."""
        if self._process is None:
            return Failed(self._why)
        try:
            self._process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return Failed(f"Nsight Compute took longer than {limit_s:g} s")
        printed = self._file("stdout").read_text(errors="replace")
        shown = f"{printed}\n{self._file('stderr').read_text(errors='replace')}"
        if "ERR_NVGPUCTRPERM" in shown:
            return Failed("the driver permits no counters to this user (ERR_NVGPUCTRPERM)")
        found = parsed(printed.splitlines())
        if not found:
            errors = re.findall(r"==ERROR== (.*)", shown)
            return Failed(f"Nsight Compute gave no counters: {(errors or ['it printed none'])[0][:200]}")
        return found

    def close(self) -> None:
        """End the process and what it profiles."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._folder.cleanup()

    def _file(self, name: str) -> Path:
        return Path(self._folder.name) / name


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
