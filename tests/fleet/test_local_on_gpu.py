"""`--on local` on a real card: a process for each GPU searches, measures again, and takes jobs."""

from __future__ import annotations

from pathlib import Path

import pytest
from invoked import Invoked

from tuner import catalog
from tuner.db.store import Store
from tuner.fleet.scheduler import Wanted, parse
from tuner.measure import device

pytestmark = pytest.mark.gpu
PROBLEMS = ("softmax", "--M", "64,128", "--N", "1024", "--dtype", "fp32")


def test_problems_answers_and_jobs_are_tasks_of_this_card(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuner, card = Invoked.alone(tmp_path, monkeypatch), device.describe(0).id
    rows = tuner.json("search", *PROBLEMS, "--trials", "6", "--on", "local")["rows"]
    assert [(row["problem"]["M"], row["device"], row["match"], row["searched"]) for row in rows] == [
        (64, card, "exact", True),
        (128, card, "exact", True),
    ]
    again = tuner.json("search", *PROBLEMS, "--trials", "6", "--on", "local")["rows"]
    assert not any(row["searched"] for row in again)

    found = tuner("retune", "softmax", "--check", "--json", "--on", "local")
    assert found.return_value in (0, 4), found.stderr  # a loaded host may slow a short kernel
    assert '"not_measured": 0' in found.stdout

    store = Store.open(tuner.db)
    store.queue.add(catalog.resolve("softmax").signature.problem({"M": 256, "N": 1024, "dtype": "fp32"}), card)
    done = tuner("work", "softmax", "--trials", "6", "--on", "local")
    assert done.return_value == 0, done.stderr
    assert done.stdout.startswith("job 1  done")


def test_each_process_sees_one_gpu() -> None:
    scheduler = parse("local", Wanted(gpus=1))
    names = [(slot.name, slot.environment["CUDA_VISIBLE_DEVICES"]) for slot in scheduler._slots]  # type: ignore[attr-defined]
    assert len(names) == device.count()
    assert names[0][0] == "GPU 0"
