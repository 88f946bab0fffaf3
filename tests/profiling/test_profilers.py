"""Proton and Nsight Compute: what is read of their documents, and what is said where they are not permitted."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from helpers import alive, until
from profiled import task

from tuner.profiling import ncu, proton, trace
from tuner.profiling.messages import Failed, Stalls, Times
from tuner.profiling.ncu import Counters, NsightRun

TREE = [
    {
        "frame": {"name": "ROOT", "type": "function"},
        "metrics": {"count": 0, "time (ns)": 0},
        "children": [
            {"frame": {"name": "flush"}, "metrics": {"count": 20, "time (ns)": 9e9, "device_id": "0"}, "children": []},
            {
                "frame": {"name": "transpose_kernel"},
                "metrics": {"count": 20, "time (ns)": 1_300_000, "device_type": "CUDA"},
                "children": [],
            },
        ],
    },
    {"CUDA": {"0": {"arch": "90", "num_sms": 132}}},
]
SAMPLED = [
    {"frame": {"name": "flush"}, "metrics": {"num_samples": 900, "stalled_drain": 900}, "children": []},
    {
        "frame": {"name": "transpose_kernel"},
        "metrics": {},
        "children": [
            {
                "frame": {"name": "tiles.py:41"},
                "metrics": {"num_samples": 80, "stalled_short_scoreboard": 60, "stalled_barrier": 20},
                "children": [],
            },
            {
                "frame": {"name": "tiles.py:35"},
                "metrics": {"num_samples": 20, "stalled_long_scoreboard": 20, "stalled_wait": 0},
                "children": [],
            },
        ],
    },
]
METRICS = ncu.METRICS
CSV = f"""==PROF== Connected to process 41
==PROF== Profiling "transpose_kernel" - 0: 0%....50%....100% - 1 pass
"ID","Process ID","Kernel Name","Grid Size","{METRICS["time_ns"]}","{METRICS["shared_conflicts"]}"
"","","","","ns",""
"0","41","transpose_kernel","(16384, 1, 1)","331,456","65,011,712"
==PROF== Disconnected from process 41
"""


def nsight(folder: Path, prints: str, code: int = 0) -> str:
    """Return a program in the place of `ncu` that checks how it is called, and prints this."""
    file = folder / "ncu"
    file.write_text(
        f"#!{sys.executable}\nimport sys\nassert sys.argv[-4:-2] == ['-m', 'tuner.profiling.once'], sys.argv\n"
        f"import pathlib, time\nwhile not pathlib.Path(sys.argv[-2]).exists():\n    time.sleep(0.01)\n"
        f"print({prints!r})\nsys.exit({code})\n"
    )
    file.chmod(0o755)
    return str(file)


def counted(tool: str | None) -> tuple[Counters, ...] | Failed:
    """Return the counters of a config by this program."""
    with closing(NsightRun({"CUDA_VISIBLE_DEVICES": "0"}, tool)) as run:
        run.begin(task("without pad"))
        return run.counters()


def test_times_are_means_of_the_kernels_that_are_asked_for() -> None:
    assert proton.times(json.dumps(TREE), ["transpose_kernel"]) == Times({"transpose_kernel": 65.0})
    missing = proton.times(json.dumps(TREE), ["other"])
    assert missing == Failed("Proton recorded no launch of other")


def test_stalls_are_shares_of_the_samples_of_the_configs_own_kernels() -> None:
    names = ["transpose_kernel"]
    found = proton.stalls(json.dumps(SAMPLED), names)
    assert found == Stalls(
        {"short_scoreboard": 0.6, "barrier": 0.2, "long_scoreboard": 0.2}, {"tiles.py:41": 0.8, "tiles.py:35": 0.2}
    )
    assert isinstance(proton.stalls(json.dumps(TREE), names), Failed)


def test_a_machine_on_which_proton_cannot_run_is_told_so() -> None:
    ran = []
    found = proton.profiled(lambda: ran.append(1), "tree")
    assert isinstance(found, Failed)
    assert found.why.startswith("Proton could not run: ")
    assert "\n" not in found.why


def test_counters_are_read_of_the_rows_of_nsight_compute(tmp_path: Path) -> None:
    found = counted(nsight(tmp_path, CSV))
    assert found == (Counters("transpose_kernel", {"time_ns": 331456.0, "shared_conflicts": 65011712.0}),)


@pytest.mark.parametrize(
    ("prints", "why"),
    [
        (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance Counters",
            "the driver permits no counters to this user (ERR_NVGPUCTRPERM)",
        ),
        ("==ERROR== The application returned an error code (1).", "The application returned an error code (1)."),
        ("==WARNING== No kernels were profiled.", "it printed none"),
    ],
)
def test_without_permission_nsight_compute_gives_the_reason(tmp_path: Path, prints: str, why: str) -> None:
    found = counted(nsight(tmp_path, prints, 1))
    assert isinstance(found, Failed)
    assert why in found.why


def test_without_nsight_compute_that_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert counted(None) == Failed("Nsight Compute (ncu) is not installed")
    gone = counted(str(tmp_path / "ncu"))
    assert isinstance(gone, Failed)
    assert gone.why.startswith("Nsight Compute could not run: ")


def test_a_run_that_takes_too_long_is_ended_with_what_it_profiles(tmp_path: Path) -> None:
    file = tmp_path / "ncu"
    file.write_text(f"#!/bin/sh\nsleep 60 &\necho $! > {tmp_path}/profiled\nwait\n")
    file.chmod(0o755)
    with closing(NsightRun({}, str(file))) as run:
        run.begin(task("without pad"))
        until(lambda: (tmp_path / "profiled").exists() and (tmp_path / "profiled").read_text() != "")
        assert run.counters(0.0) == Failed("Nsight Compute took longer than 0 s")
        profiled = int((tmp_path / "profiled").read_text())
    until(lambda: not alive(profiled))


def test_the_process_that_waits_for_its_config_ends_with_the_profile(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    once = [sys.executable, "-P", "-m", "tuner.profiling.once", str(tmp_path / "task"), str(ended.pid)]
    assert subprocess.run(once, timeout=60).returncode == 1


def test_a_trace_has_complete_events() -> None:
    text = trace.of_spans([("transpose_kernel", 1.5, 65.0), ("transpose_kernel", 300.0, 64.0)])
    assert trace.has_kernels(text, ["transpose_kernel"])
    assert not trace.has_kernels(text, ["other"])
    first, _ = json.loads(text)["traceEvents"]
    assert (first["name"], first["ph"], first["ts"], first["dur"]) == ("transpose_kernel", "X", 1.5, 65.0)
    for other in ("", "[]", '{"traceEvents": []}', '{"traceEvents": [{"ph": "M"}]}'):
        assert not trace.has_kernels(other, ["transpose_kernel"])
