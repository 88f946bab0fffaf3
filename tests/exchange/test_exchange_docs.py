"""Run the commands of docs/exchange.md in their order, in a folder with the files that they read."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from others import imported, put, table_config
from stored import answered, measured

from tuner.cli import cli
from tuner.db.store import Store
from tuner.exchange import t4
from tuner.exchange.kernel_tuner import to_cache

PAGE = (Path(__file__).parents[2] / "docs" / "exchange.md").read_text()
BLOCK = "dtype=fp8_w8a8,block_shape=[128, 128]"


def test_the_commands_of_the_page_run(tmp_path: Path, migrated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DB", str(shutil.copy(migrated, tmp_path / "tuner.db")))
    monkeypatch.chdir(tmp_path)
    store = Store.open(tmp_path / "tuner.db")
    answered(store)
    store.add_trial(1, measured())
    put(tmp_path, f"configs/triton_3_5_1/E=8,N=7168,device_name=NVIDIA_H200,{BLOCK}.json", {"64": table_config()})
    config = {"kwargs": {"BLOCK": 128}, "num_warps": 4, "num_stages": 2}
    cached = {"key": [64, 128, "torch.float16"], "configs_timings": [[config, [0.1, 0.1, 0.1]]]}
    put(tmp_path, "softmax_kernel.autotune.json", cached)
    put(tmp_path, "results.json", t4.to_document([measured()]))
    put(tmp_path, "cache.json", to_cache([measured()], "vector_add", (64, 128), "NVIDIA H200"))
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for line in block.splitlines():
            assert cli.main(shlex.split(line)[2:], standalone_mode=False) == 0, line
    assert [stored.answer.problem.op for stored in store.answers()] == [
        "scale",
        "fused_moe",
        "softmax_kernel",
        "vector_add",
        "scale",
    ]
    store.close()


def test_each_file_name_of_the_table_is_read_as_its_row_says(tmp_path: Path) -> None:
    rows = re.findall(r"^\| `([^`]+\.json)` \| `(\w+)` \| ([\w, ]+) \|$", PAGE, re.MULTILINE)
    assert len(rows) == 4
    for name, op, parameters in rows:
        table = {"1": table_config()}
        put(tmp_path, f"{op}/{name}", {"8-4096-bfloat16": table} if op == "moe_sum_reduce" else table)
        (one,), _ = imported(tmp_path / op)
        assert one.answer.problem.op == op
        assert set(parameters.split(", ")) <= set(one.answer.problem.values)
