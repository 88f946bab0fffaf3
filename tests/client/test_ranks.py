"""Ranks of a distributed job: one set of answers, one rank that tunes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from served import answer, problem

from tuner.client.ranks import is_tuning_rank
from tuner.db.store import Store
from tuner.lookup import bundle

RANKED = Path(__file__).parents[1] / "ranked.py"


@pytest.fixture(scope="module")
def seen(migrated: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return what each of three ranks saw. Rank 0 has two answers, rank 2 another one, rank 1 none but a bundle."""
    folder = tmp_path_factory.mktemp("ranks")
    for rank, sizes in enumerate([(64, 4096), (), (512,)]):
        store = Store.open(shutil.copy(migrated, folder / f"{rank}.db"))
        for M in sizes:
            answer(store, problem(M=M))
        if rank == 2:
            bundle.write(folder / "other.json", store.snapshot, [*store.signatures().values()], store.answers())
        store.close()
    unset = ("TUNER_SNAPSHOT", "TUNER_URL", "TUNER_DISABLE", "TUNER_REFRESH_S")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"PYTHONPATH": str(RANKED.parent), "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, str(RANKED), str(folder)], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(3)]


def test_all_ranks_have_the_answers_of_rank_0(seen: list[dict[str, Any]]) -> None:
    assert [rank["before"]["matches"] for rank in seen] == [
        ["exact", "none", "exact"],
        ["none", "none", "none"],
        ["none", "exact", "none"],
    ]
    assert all(rank["synced"]["matches"] == ["exact", "none", "exact"] for rank in seen)
    numbers = [rank["synced"]["outcome"][:3] for rank in seen]
    assert numbers == [[0, 3, 2], [1, 3, 2], [2, 3, 2]]
    assert len({rank["synced"]["outcome"][3] for rank in seen}) == 1
    assert all(rank["synced"]["lines"] == [] for rank in seen)


def test_newer_answers_come_with_the_next_synchronisation_and_not_with_a_refresh(seen: list[dict[str, Any]]) -> None:
    assert all(rank["newer"]["matches"] == ["exact", "none", "exact"] for rank in seen)
    assert all(rank["synced again"]["matches"] == ["exact"] * 3 for rank in seen)


def test_a_rank_that_differs_is_named_in_one_line_on_rank_0(seen: list[dict[str, Any]]) -> None:
    first, second = seen[0]["differing"]["lines"]
    assert first.startswith("rank 1 on ")
    assert " differs from rank 0: snapshot " in first
    assert first.endswith(", not none; Triton 3.6.0, not 3.7.1")
    assert second.startswith("rank 2 on ")
    assert second.endswith(" differs from rank 0: card nvidia-a100-sxm4-80gb, not nvidia-h200; source of halve")
    assert all(rank["differing"]["lines"] == [] for rank in seen[1:])
    assert all(rank["differing"]["outcome"][4:] == [first, second] for rank in seen)


def test_a_rank_with_another_card_gets_the_answers_of_its_card(seen: list[dict[str, Any]]) -> None:
    assert [rank["differing"]["matches"] for rank in seen] == [["exact"] * 3, ["exact"] * 3, ["none"] * 3]


def test_no_rank_has_answers_if_rank_0_cannot_read_its_own(seen: list[dict[str, Any]]) -> None:
    assert all(rank["unreadable"]["matches"] == ["none"] * 3 for rank in seen)
    (line,) = seen[0]["unreadable"]["lines"]
    assert line.startswith("all ranks use the kernels' defaults, since rank 0 cannot read its answers: ")


def test_a_group_of_some_ranks_has_the_answers_of_its_first(seen: list[dict[str, Any]]) -> None:
    assert all(rank["pair"]["matches"] == ["none"] * 3 for rank in seen[1:])
    assert [rank["pair"]["outcome"][:3] for rank in seen[1:]] == [[0, 2, 0], [1, 2, 0]]
    assert seen[0]["outside"] == "sync_ranks is called by the ranks of its group, and this rank is not in it"


def test_without_a_process_group_there_is_nothing_to_synchronise(seen: list[dict[str, Any]]) -> None:
    assert {rank["without a group"] for rank in seen} == {
        "sync_ranks is called by all ranks of a process group, and this process is in none; "
        "call torch.distributed.init_process_group first"
    }


def test_only_rank_0_may_tune(seen: list[dict[str, Any]]) -> None:
    for step in ("may tune by environment", "may tune by the group"):
        assert [rank[step] for rank in seen] == [True, False, False]


@pytest.mark.parametrize(
    ("variables", "may_tune"),
    [
        ({}, True),
        ({"RANK": "0", "SLURM_PROCID": "3"}, True),
        ({"RANK": "8", "LOCAL_RANK": "0"}, False),
        ({"SLURM_PROCID": "1"}, False),
        ({"LOCAL_RANK": "1"}, False),
        ({"OMPI_COMM_WORLD_RANK": "2"}, False),
        ({"RANK": ""}, True),
        ({"RANK": "first"}, True),
    ],
)
def test_without_a_group_the_environment_states_the_rank(
    variables: dict[str, str], may_tune: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert is_tuning_rank() is may_tune
