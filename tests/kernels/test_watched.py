"""A constraint may use the config that it is given like a dictionary, and each value that it uses counts as read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuner.kernels.watched import Watched

CONFIG = {"BLOCK": 64, "num_warps": 4, "num_stages": 2}


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (lambda config: config | {"BLOCK": 32}, {**CONFIG, "BLOCK": 32}),
        (lambda config: {"BLOCK": 32, "SPLIT": 1} | config, {"SPLIT": 1, **CONFIG}),
        (lambda config: config.copy(), CONFIG),
        (str, str(CONFIG)),
        (dict, CONFIG),
    ],
)
def test_all_values_count_as_read(use: Callable[[Any], object], expected: object) -> None:
    config = Watched(CONFIG, {"BLOCK": 0, "num_warps": 1, "num_stages": 2})
    assert use(config) == expected
    assert config.last_place == 2


def test_only_what_is_read_counts() -> None:
    config = Watched(CONFIG, {"BLOCK": 0, "num_warps": 1, "num_stages": -1})
    assert "num_warps" in config
    assert (config["num_stages"], config.last_place) == (2, -1)
    assert (config["BLOCK"], config.last_place) == (64, 0)
