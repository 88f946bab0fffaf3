"""`tuner profile` without a GPU: the code that is compiled for a card, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import H200
from invoked import Invoked

from tuner.errors import NoDevice, UnknownName, UsageError

pytestmark = pytest.mark.usefixtures("forked_helpers")
ON = ("--device", H200.id)


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoked:
    return Invoked.alone(tmp_path, monkeypatch)


def test_a_config_is_compiled_for_a_card_and_its_bottleneck_named(tuner: Invoked) -> None:
    asked = ("profile", "transpose", "--M", "8192", *ON, "--config", "PAD=0 VEC=1")
    done = tuner(*asked)
    assert done.exception is None, done.exception
    shown = done.stdout.splitlines()
    assert shown[1] == "  TILE_M=64  TILE_N=64  PAD=0  VEC=1  num_warps=4  num_stages=1  (given)"
    assert "  missing: nothing was run: times, Proton and counters need the card" in shown
    assert shown[-1].startswith("  bottleneck: bank conflicts: the load at tiles.py:49 takes 32.0 times")
    document = tuner.json(*asked)
    assert (document["chosen"], document["latency_us"]) == ("given", None)
    assert document["bottleneck"]["findings"][0]["levers"][0]["name"] == "PAD"
    assert not tuner.db.exists()


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ((), NoDevice, "profiling runs a config on a GPU, and there is no .*; --device ID analyses the code"),
        (("--device", "tpu"), UnknownName, "no recorded card is called 'tpu'; known are "),
        ((*ON, "--trace", "a.json"), UsageError, "--trace is of a run, and --device runs nothing; leave one"),
        (
            (*ON, "--policy", "cold"),
            UsageError,
            "--policy is of a run, and --device runs nothing; leave one of them out",
        ),
        ((*ON, "--config", "PAD=3"), UsageError, "PAD is one of 0, 1, 2, 4, 8, 16, not '3'; choose one"),
    ],
)
def test_what_cannot_be_profiled_is_refused(
    tuner: Invoked, asked: tuple[str, ...], error: type[Exception], message: str
) -> None:
    done = tuner("profile", "transpose", "--M", "64", *asked)
    assert isinstance(done.exception, error)
    assert done.exception.args[0].startswith(message.split(".*")[0])
    assert done.exception.args[0].find(message.split(".*")[-1]) >= 0
