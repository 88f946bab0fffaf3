"""Run the recipes of docs/lookup.md as they stand."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from fresh_client import forget
from helpers import H200
from served import GEMM, answer, problem

from tuner.cli import cli
from tuner.db.store import Store

PAGE = (Path(__file__).parents[2] / "docs" / "lookup.md").read_text()
BY_SIZE, BY_RANKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(autouse=True)
def database(migrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Name a database with one answer in the environment."""
    store = Store.open(shutil.copy(migrated, tmp_path / "tuner.db"))
    answer(store, problem(M=4096))
    store.close()
    monkeypatch.setenv("TUNER_DB", str(tmp_path / "tuner.db"))
    monkeypatch.chdir(tmp_path)
    forget()
    yield
    forget()


def test_exporting_works_as_it_stands(tmp_path: Path) -> None:
    lines = [line for line in PAGE.splitlines() if line.startswith("$ tuner export")]
    for line in lines:
        assert CliRunner().invoke(cli, shlex.split(line)[2:], standalone_mode=False).return_value == 0
        assert (tmp_path / line.split()[3]).exists()
    assert len(lines) == 2


def test_a_server_that_buckets_gets_the_config_of_the_size_it_pads_to(capsys: pytest.CaptureFixture[str]) -> None:
    exec(BY_SIZE, {})
    assert capsys.readouterr().out.strip() == str(dict(GEMM.default_config(problem(M=4096), H200.limits)))


TWO_RANKS = """
import os, sys
import torch.distributed
import tuner.catalog
tuner.catalog.load("gemm")  # once for both ranks, since loading takes the longest
recipe, nowhere = sys.argv[1:]
for rank in range(2):
    if os.fork() == 0:
        os.environ.update(RANK=str(rank), WORLD_SIZE="2", **{"TUNER_DB": nowhere} if rank else {})
        exec(recipe)
        sys.exit()
sys.exit(sum(os.waitstatus_to_exitcode(os.wait()[1]) for _ in range(2)))
"""


def test_ranks_agree_though_only_one_of_them_has_the_database(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    command = [sys.executable, "-P", "-c", TWO_RANKS, BY_RANKS, str(tmp_path / "nothing.db")]
    done = subprocess.run(
        command, env=os.environ | place | {"PATH": path}, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    config = GEMM.default_config(problem(M=4096), H200.limits)
    assert done.stdout.replace("\n", "") == f"{config}" * 2  # both ranks print at once, each line in two pieces
