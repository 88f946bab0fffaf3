"""`tuner export` as its users have it: what a database holds is in a file that reads back."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from stored import HERE, SCALE, address, answer, answered, started

from tuner.cli.export import command
from tuner.cli.import_ import command as import_command
from tuner.db.database import Database
from tuner.db.store import Store
from tuner.errors import NothingFound, UnknownName, UsageError
from tuner.lookup import bundle
from tuner.records import Environment


def test_what_the_database_holds_is_in_the_file(store: Store, database: Database, tmp_path: Path) -> None:
    answered(store)
    started(store)  # a run that gave no answer
    file = tmp_path / "answers.json.gz"
    done = CliRunner().invoke(command, [str(file), "--db", address(database)], standalone_mode=False)
    assert done.return_value == 0
    held = bundle.read(file)
    assert held.answers == tuple(store.answers())
    assert [stored.id for stored in held.answers] == [1]
    assert (held.snapshot, held.signatures) == (store.snapshot, store.signatures())
    assert done.output == (
        f"{file} holds 1 answer of scale on nvidia-h200\n  snapshot  {held.snapshot}\n  sha256    {held.sha256}\n"
    )


def test_answers_that_later_ones_replaced_are_left_out(store: Store, database: Database, tmp_path: Path) -> None:
    replayed, older = replace(HERE, recorded="a-space"), replace(HERE, environment=Environment("3.5.0"))
    other = answer(SCALE.problem({"M": 64}))
    for _ in range(3):
        answered(store, provenance=older)
        answered(store)
        answered(store, other, replayed)
    asked = ["--db", address(database)]
    done = CliRunner().invoke(command, [str(tmp_path / "a.json"), *asked], standalone_mode=False)
    assert "a.json holds 3 answers of scale on nvidia-h200\n" in done.output
    assert [stored.id for stored in bundle.read(tmp_path / "a.json").answers] == [7, 8, 9]
    done = CliRunner().invoke(command, [str(tmp_path / "t"), "--format", "vllm", *asked], standalone_mode=False)
    assert "left out: 1 x a table cannot mark an answer as replayed" in done.stderr
    there = [str(tmp_path / "a.json"), "--db", str(tmp_path / "b.db")]
    imported = CliRunner().invoke(import_command, there, standalone_mode=False)
    assert "in place of" not in imported.output
    assert "3 stored" in imported.output


def test_a_bundle_is_written_to_a_regular_file_or_through_a_link(
    tmp_path: Path, migrated: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Store.open(shutil.copy(migrated, path))) as store:
        answered(store)
    monkeypatch.chdir(tmp_path)
    folder, link, dangling, fifo = (Path(name) for name in ("folder", "link", "dangling", "fifo"))
    folder.mkdir()
    os.mkfifo(fifo)
    link.symlink_to("folder/old.json")
    dangling.symlink_to("folder/new.json")
    (folder / "old.json").touch()
    before = set(os.listdir())
    for name, kind in (
        (".", "folder"),
        ("..", "folder"),
        ("folder", "folder"),
        ("fifo", "FIFO"),
        (os.devnull, "device"),
    ):
        with pytest.raises(UsageError) as caught:
            command.main([name, "--db", str(path)], standalone_mode=False)
        assert str(caught.value) == (
            f"{name} cannot be written: it is a {kind}, not a regular file; name one in a writable folder"
        )
    for file in (link, dangling):
        assert command.main([str(file), "--db", str(path)], standalone_mode=False) == 0
        assert file.is_symlink()
        assert len(bundle.read(file).answers) == 1
    assert (set(os.listdir()), sorted(os.listdir(folder))) == (before, ["new.json", "old.json"])
    with pytest.raises(UsageError, match="answers are written to a file, not to the standard output; name a file"):
        command.main(["-", "--db", str(path)], standalone_mode=False)
    with pytest.raises(UsageError, match="fifo is no folder, and this format has a file for each table"):
        command.main(["fifo", "--format", "vllm", "--op", "scale", "--db", str(path)], standalone_mode=False)


def test_one_op_or_one_device(tmp_path: Path, migrated: Path, path: Path) -> None:
    with closing(Store.open(shutil.copy(migrated, path))) as store:
        answered(store)
    asked = ["--op", "scale", "--device", "nvidia-h200", "--json"]
    done = subprocess.run(
        [sys.executable, "-P", "-m", "tuner", "export", str(tmp_path / "a.json"), *asked],
        env=os.environ | {"TUNER_DB": str(path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    held = bundle.read(tmp_path / "a.json")
    assert json.loads(done.stdout) == {
        "file": str(tmp_path / "a.json"),
        "answers": 1,
        "skipped": 0,
        "ops": ["scale"],
        "devices": ["nvidia-h200"],
        "snapshot": held.snapshot,
        "sha256": held.sha256,
    }
    for asked, refusal, says in (
        (["--op", "gemm"], NothingFound, "no answer of gemm is stored; tuner list shows what is"),
        (["--device", "../x"], UnknownName, r"no device is called '\.\./x'; there are nvidia-h200"),
    ):
        with pytest.raises(refusal, match=says):
            command.main([str(tmp_path / "b.json"), *asked, "--db", str(path)], standalone_mode=False)
    assert not (tmp_path / "b.json").exists()
