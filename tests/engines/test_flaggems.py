"""FlagGems's real `libtuner` on the adapter; the package must be installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

WITH_FLAGGEMS = Path(__file__).parents[1] / "with_flaggems.py"

pytestmark = pytest.mark.skipif(find_spec("flag_gems") is None, reason="flag_gems is not installed")


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("flaggems")
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join([str(WITH_FLAGGEMS.parent), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, str(WITH_FLAGGEMS), str(folder)], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))


def test_without_an_answer_the_first_config_is_launched(seen: dict[str, Any]) -> None:
    assert seen["first config"] == [64, 64]
    assert seen["best_config"] == {"BLOCK": 64}


def test_what_flaggems_measured_before_is_better_than_the_first_config(seen: dict[str, Any]) -> None:
    assert seen["measured before"] == [128, 128, 64]


def test_a_captured_call_has_the_key_that_the_strategy_makes(seen: dict[str, Any]) -> None:
    assert seen["captured"] == [[64, 64], [{"n": 1024}]]
    assert seen["counts"] == [1]


def test_a_stored_answer_serves_the_sizes_that_the_strategy_takes_for_one_after_a_refresh(seen: dict[str, Any]) -> None:
    assert seen["before refresh"] == 64
    assert seen["served"] == [256, 256, 256, 64]


def test_nothing_is_measured_and_flaggems_keeps_only_what_it_measured_itself(seen: dict[str, Any]) -> None:
    assert seen["measured"] == []
    assert seen["kept by FlagGems"] == [500]


def test_off_is_flaggems_own_tuning(seen: dict[str, Any]) -> None:
    assert seen["off"] == [256, [64, 128, 256], {"BLOCK": 256}]


def test_uninstalled_flaggems_tunes_again(seen: dict[str, Any]) -> None:
    assert seen["uninstalled"] == [256, [64, 128, 256]]
