"""`tuner replay` as a process."""

from __future__ import annotations

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import run_tuner

from tuner.search import SAMPLERS

SOFTMAX = "softmax-8192x8192-fp32-nvidia-h200"


def _tuner(*arguments: str) -> CompletedProcess[str]:
    return run_tuner("replay", *arguments)


def test_a_table_of_samplers(tmp_path: Path) -> None:
    done = _tuner(SOFTMAX, "--sampler", "gp,random", "--seeds", "2", "--trials", "50")
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert ["space", "sampler", "10", "25", "50"] in rows
    gp, random = (next(row for row in rows if row[:2] == [SOFTMAX, sampler]) for sampler in ("gp", "random"))
    assert float(gp[-1]) > float(random[-1])
    assert f"{SOFTMAX}: gp, " in done.stderr


def test_a_kernel_tuner_cache_as_one_json_document(tmp_path: Path) -> None:
    file = tmp_path / "cache.json"
    entries = {f"{x},{y}": {"x": x, "y": y, "time": 1.0 + abs(x - 3) + abs(y - 5)} for x in range(8) for y in range(8)}
    file.write_text(json.dumps({"tune_params_keys": ["x", "y"], "cache": entries}))
    done = _tuner(str(file), "--sampler", "gp", "--seeds", "3", "--trials", "40", "--json")
    (score,) = json.loads(done.stdout)
    assert score["space"] == str(file)
    assert score["seeds"] == 3
    assert set(score["at"]) == {"10", "25"}
    assert score["at"]["25"] == {"share": 1.0, "share_p10": 1.0, "gap": 0.0}


def test_a_plot_opens_offline(tmp_path: Path) -> None:
    pytest.importorskip("plotly")
    page = tmp_path / "page.html"
    assert _tuner(SOFTMAX, "--seeds", "1", "--trials", "12", "--plot", str(page)).returncode == 0
    assert "share of the optimum" in page.read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "no file and no recorded space is 'nowhere'; tuner spaces lists all"),
        ([SOFTMAX, "--sampler", "magic"], f"samplers are {', '.join(SAMPLERS)}, not 'magic'"),
    ],
)
def test_unknown_names_are_usage_errors(arguments: list[str], says: str) -> None:
    done = _tuner(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
