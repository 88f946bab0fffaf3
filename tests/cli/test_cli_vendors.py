"""`--vendors` as with a GPU: a scripted driver, real processes, the kernel and its vendors on torch's CPU."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from helpers import toy
from machines import Machine

from tuner.cli import cli
from tuner.db.store import Store
from tuner.errors import UsageError

ONE = (toy("vendors"), "--N", "4096")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forked_helpers: None) -> Machine:
    return Machine(tmp_path, monkeypatch)


def run(*words: str) -> Any:
    done = CliRunner().invoke(cli, [*words, "--json"], standalone_mode=False)
    assert done.exception is None, done.exception
    return json.loads(done.stdout)


def test_the_vendor_of_an_answer_is_timed_again_and_a_bench_times_each(machine: Machine) -> None:
    answer = run("search", *ONE, "--trials", "6", "--vendors", "returning,wrong")
    assert answer["vendor"] == "returning"
    assert answer["vendor_latency_us"] > 0
    verified = run("verify", *ONE)["verified"]
    assert " x returning (" in verified["text"]
    (row,) = run("bench", *ONE, "--vendors", "eager,returning,torch.compile,wrong,missing")["rows"]
    assert list(row["vendors"]) == ["torch", "torch.compile", "returning"]
    assert row["vendor_name"] in row["vendors"]
    assert row["vendor"] == row["vendors"][row["vendor_name"]]
    assert row["left_out"]["missing"].startswith("not installed: ")
    assert row["left_out"]["wrong"].startswith("deviates from the reference")
    with closing(Store.open(machine.db)) as store:
        (stored,) = store.answers()
        assert stored.settings["vendor"] == "returning"


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("search", *ONE, "--vendors", "liger"), "vendors of on_torch are torch, torch.compile, returning, wrong, "),
        (("search", *ONE, "--vendors", "liger", "--dry-run"), "not 'liger'; correct it"),
        (("bench", *ONE, "--vendors", "liger", "--dry-run"), "not 'liger'; correct it"),
        (("bench", *ONE, "--vendors", ""), "ending, and groups of them all, libraries, eager, not ''; correct it"),
        (("bench", *ONE, "--vendors", "all", "--replay", "auto"), "leave out --vendors or --replay"),
        (("search", "--captured", "--vendors", "all"), "takes no --vendors"),
    ],
)
def test_a_choice_that_no_kernel_has_is_refused(words: tuple[str, ...], error: str) -> None:
    done = CliRunner().invoke(cli, words, standalone_mode=False)
    assert isinstance(done.exception, UsageError)
    assert error in str(done.exception)
