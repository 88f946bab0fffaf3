"""`tuner export` as its users have it: what a database holds is in a file that reads back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from stored import address, answered, change, started

from tuner import bundle
from tuner.cli.export import command
from tuner.db.database import Database
from tuner.db.store import Store
from tuner.errors import NothingFound


def export(*arguments: str, db: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-P", "-m", "tuner", "export", *arguments]
    done = subprocess.run(command, env=os.environ | {"TUNER_DB": str(db)}, capture_output=True, text=True, timeout=120)
    assert "Traceback" not in done.stderr
    return done


def test_what_the_database_holds_is_in_the_file(store: Store, database: Database, tmp_path: Path) -> None:
    answered(store)
    retired = answered(store)
    answered(store)
    change(database, f"UPDATE answers SET kind = 'quarantine', about_id = {retired} WHERE id = {retired + 1}")
    started(store)  # a run that gave no answer
    file = tmp_path / "answers.json.gz"
    done = export(str(file), "--db", address(database), db=tmp_path / "other.db")
    held = bundle.read(file)
    assert held.answers == tuple(store.answers())
    assert [stored.id for stored in held.answers] == [1]
    assert (held.snapshot, held.signatures) == (store.snapshot, store.signatures())
    assert done.stdout == (
        f"{file} holds 1 answer of scale on nvidia-h200\nsnapshot {held.snapshot}, sha256 {held.sha256}\n"
    )


def test_one_op_or_one_device(tmp_path: Path, path: Path) -> None:
    with_answer = Store.open(path)
    answered(with_answer)
    with_answer.close()
    done = export(str(tmp_path / "a.json"), "--op", "scale", "--device", "nvidia-h200", "--json", db=path)
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
    for asked, about in ((["--op", "gemm"], "of gemm"), (["--device", "../x"], "on ../x")):
        with pytest.raises(NothingFound, match=f"no answer {about} is stored; tuner list shows what is"):
            command.main([str(tmp_path / "b.json"), *asked, "--db", str(path)], standalone_mode=False)
    assert not (tmp_path / "b.json").exists()
