"""The number of usable cores: of the machine, by the process's affinity, and by its container's quota."""

from __future__ import annotations

import os
from pathlib import Path
from threading import Thread

import numpy as np  # noqa: F401  loads its BLAS
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from tuner.measure import cores


@pytest.fixture
def groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make control groups without limits, on a machine of 64 cores."""
    (tmp_path / "pod/container").mkdir(parents=True)
    for folder in (tmp_path / "pod", tmp_path / "pod/container"):
        (folder / "cpu.max").write_text("max 100000\n")
    monkeypatch.setattr(cores, "_CGROUPS", tmp_path)
    monkeypatch.setattr(cores, "_own_group", lambda: "pod/container")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(64)), raising=False)
    return tmp_path


def test_all_cores_without_limits(groups: Path) -> None:
    assert cores.usable() == 64


def test_affinity_limits_cores(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3, 5})
    assert cores.usable() == 2


@pytest.mark.parametrize(("quota", "usable"), [("800000 100000", 8), ("250000 100000", 3), ("1000 100000", 1)])
def test_a_containers_quota_limits_cores(groups: Path, quota: str, usable: int) -> None:
    (groups / "pod/container/cpu.max").write_text(quota)
    assert cores.usable() == usable


def test_a_pods_quota_limits_cores(groups: Path) -> None:
    (groups / "pod/cpu.max").write_text("400000 100000")
    assert cores.usable() == 4


def test_an_invisible_group_sets_no_limit(groups: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cores, "_own_group", lambda: "../../elsewhere")
    assert cores.usable() == 64


def test_cores_of_this_machine() -> None:
    assert 1 <= cores.usable() <= (os.cpu_count() or 1)


def blas_threads() -> set[int]:
    """Return the thread counts of numpy's BLAS: libraries loaded later keep theirs."""
    return {one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas" and "numpy" in one["filepath"]}


def test_blas_uses_one_thread_until_the_last_user_leaves() -> None:
    with threadpool_limits(limits=3, user_api="blas"):
        assert blas_threads() == {3}
        with cores.ONE_THREAD:
            other = Thread(target=cores.ONE_THREAD.__enter__)
            other.start()
            other.join()
            assert blas_threads() == {1}
        assert blas_threads() == {1}
        cores.ONE_THREAD.__exit__()
        assert blas_threads() == {3}
