"""`tuner spaces`, run as a process and as forks of one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from commands import run_tuner

from tuner import recorded

SOFTMAX, TRANSPOSE = "softmax-8192x8192-fp32-nvidia-h200", "transpose-8192x8192-fp32-nvidia-h200"


def _tuner(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run_tuner("spaces", *arguments, environment={"COLUMNS": "40"})


def test_spaces_are_listed_and_written_for_other_tools(tmp_path: Path) -> None:
    command, narrow = [sys.executable, "-P", "-m", "tuner", "spaces"], os.environ | {"COLUMNS": "40"}
    listed = subprocess.run(command, env=narrow, capture_output=True, text=True, timeout=120, check=True)
    assert [line.split()[0] for line in listed.stdout.splitlines() if "NVIDIA" in line] == recorded.names()
    listed_json = json.loads(_tuner("--json").stdout)
    assert (SOFTMAX, 402) in [(one["space"], one["configs"]) for one in listed_json]
    assert [one["space"] for one in listed_json] == recorded.names()
    written = _tuner(SOFTMAX, TRANSPOSE, "--export", "kernel-tuner", "--out", str(tmp_path / "new"))
    files = [Path(line) for line in written.stdout.splitlines()]
    assert [file.name for file in files] == [f"{SOFTMAX}.json", f"{TRANSPOSE}.json"]
    cache = json.loads(files[0].read_text())
    assert (cache["kernel_name"], cache["problem_size"], cache["device_name"]) == (
        "softmax",
        [8192, 8192],
        "NVIDIA H200",
    )
    assert cache["tune_params_keys"] == ["BLOCK_N", "ROWS", "SHARED", "num_warps", "num_stages"]
    assert len(cache["cache"]) == 402
    (t4,) = _tuner(SOFTMAX, "--export", "t4", "--out", str(tmp_path)).stdout.split()
    assert recorded.load(t4) == recorded.load(SOFTMAX)


def test_a_folder_that_cannot_be_written_and_an_unknown_name_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = _tuner(SOFTMAX, "--export", "t4", "--out", str(tmp_path / "file" / "folder"))
    assert refused.returncode == 2
    assert "cannot be written: Not a directory; give another folder with --out" in refused.stderr
    unknown = _tuner("nowhere")
    assert unknown.returncode == 2
    assert "no recorded space is called 'nowhere'; tuner spaces lists all" in unknown.stderr
