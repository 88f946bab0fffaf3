"""The recipes for model code in docs/serving.md are run, as they stand."""

from __future__ import annotations

import os
import re
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from helpers import H200
from served import GEMM, answer, problem
from test_client import forget

from tuner.cli import cli
from tuner.db.store import Store

PAGE = (Path(__file__).parents[1] / "docs" / "serving.md").read_text()
BY_SIZE, BY_RANKS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One that has an answer."""
    store = Store.open(tmp_path / "tuner.db")
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


def test_e05_ranks_agree_though_only_one_of_them_has_the_database(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, "-P", "-c", BY_RANKS],
            env=os.environ
            | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
            | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "RANK": str(rank)}
            | ({"TUNER_DB": str(tmp_path / "nothing.db")} if rank else {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    printed = [rank.communicate(timeout=120) for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], printed
    assert printed[0][0] == printed[1][0]
    assert printed[0][0].startswith("Config(BLOCK_M=")
