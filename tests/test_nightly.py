"""The nightly job: its steps, and its script, which measures stored answers and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import yaml
from helpers import A100, H200
from served import GEMM, answer, problem

from tuner.db.import_rules import ImportedAnswer, ImportOutcome
from tuner.db.store import Store
from tuner.records import IMPORTED, Answer, Environment, Provenance

ROOT = Path(__file__).parents[1]
NIGHTLY = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text())


def test_the_job_verifies_and_then_works_even_if_an_answer_changed() -> None:
    (job,) = NIGHTLY["jobs"].values()
    assert "self-hosted" in job["runs-on"]
    assert NIGHTLY["permissions"] == {"contents": "read"}
    *_, install, verify, work = job["steps"]
    assert "--constraint constraints.txt" in install["run"]
    assert verify["run"].split()[0] == "scripts/verify-stored"
    assert "if" not in verify
    assert (work["if"], work["run"]) == ("${{ !cancelled() }}", "tuner work --drain --missed")


def problem_text(values: dict[str, str]) -> str:
    return problem(**values).text


def test_every_answer_of_the_card_is_measured_again(migrated: Path, tmp_path: Path) -> None:
    """`verify` needs a GPU: a stand-in writes down its arguments, and says that one answer changed."""
    db = shutil.copy(migrated, tmp_path / "tuner.db")
    store = Store.open(db)
    answer(store, problem(M=64))
    answer(store, problem(M=16, N=32, K=48, layout="nt"))
    answer(store, problem(M=128), replace(H200, mig="1g.18gb"))
    answer(store, problem(M=256), A100)
    answer(store, problem(M=512), replayed="gemm-512x512x512-bf16-nvidia-h200")
    config = GEMM.default_config(problem(M=1024), H200.limits)
    untimed = Answer(problem(M=1024), IMPORTED, config, None, None, None, None, None, None)
    imported = ImportedAnswer(GEMM.signature, untimed, Provenance(H200, Environment(""), "", "unknown"), "E=8.json")
    assert store.import_answers([imported]) == [ImportOutcome.STORED]
    store.close()
    recorder = tmp_path / "bin" / "tuner"
    recorder.parent.mkdir()
    recorder.write_text(
        f"""#!/bin/sh
[ "$1" = verify ] || exec {sys.executable} -P -m tuner "$@"
echo "$@" >> {tmp_path}/called
case "$*" in *--M=16*) exit 4;; esac
"""
    )
    recorder.chmod(0o755)
    environment = os.environ | {"PATH": f"{recorder.parent}:{os.environ['PATH']}", "TUNER_DB": str(db)}
    done = subprocess.run([ROOT / "scripts" / "verify-stored", H200.id], env=environment, check=False)
    assert done.returncode == 4
    called = [line.split() for line in (tmp_path / "called").read_text().splitlines()]
    assert {tuple(words[:2]) for words in called} == {("verify", "gemm")}
    verified = [dict(word.removeprefix("--").split("=") for word in words[2:]) for words in called]
    expected = [problem(M=16, N=32, K=48, layout="nt"), problem(M=64)]
    assert sorted(map(problem_text, verified)) == sorted(each.text for each in expected)
