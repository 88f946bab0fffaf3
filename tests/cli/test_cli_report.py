"""`tuner report`: what it writes, what it says, and what it needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from helpers import H200
from stored import SCALE, answer, answered

from tuner.cli.report import command as report
from tuner.db.store import Store
from tuner.errors import NothingFound


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    for size in (64, 128, 256):
        answered(sqlite_store, answer(SCALE.problem({"M": size})))
    return sqlite_store


def run(store: Store, folder: Path, *words: str) -> int:
    given = ["--html", str(folder), "--db", str(store._database), *words]
    return int(report.main(given, standalone_mode=False) or 0)


def test_it_names_the_first_page_and_what_has_none(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(store, tmp_path / "out", "--problems", "2") == 0
    lines = capsys.readouterr().out.splitlines()
    pages = len([*(tmp_path / "out").glob("*.html")])
    assert lines[0] == f"{tmp_path / 'out' / 'index.html'} is the first of {pages} pages, for 2 problems"
    assert lines[1] == "  without a page, since their answers are older: 1 problem; --problems sets the number"
    assert run(store, tmp_path / "out", "--device", H200.id, "--op", "scale", "--json") == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (document["folder"], document["problems"], document["left_out"]) == (str(tmp_path / "out"), 3, 0)


def test_without_answers_there_is_no_report(tmp_path: Path) -> None:
    empty = Store.open(tmp_path / "tuner.db")
    with pytest.raises(NothingFound, match="there are no answers; tuner search OP finds and stores one"):
        run(empty, tmp_path / "out")
    empty.close()
    assert not (tmp_path / "out").exists()


def test_a_missing_package_is_named_with_its_extra(store: Store, tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['jinja2'] = None; from tuner.cli import main; main()"
    words = ["report", "--html", str(tmp_path / "out"), "--db", str(store._database)]
    done = subprocess.run([sys.executable, "-P", "-c", hidden, *words], capture_output=True, text=True, check=False)
    assert done.stderr == "tuner: a report needs jinja2; pip install 'triton-tuner[serve]'\n"
    assert done.returncode == 2
    assert not (tmp_path / "out").exists()
