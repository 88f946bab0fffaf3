"""`tuner search --joint`: one config for several problems, over recorded spaces of one card."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread

import pytest
from helpers import H200, until
from invoked import Invoked

from tuner import catalog, recorded
from tuner.db.store import Store
from tuner.errors import TunerError
from tuner.records import StoredRun
from tuner.search.space import common, feasible

TWO = ("gemm", "--shapes", "two.csv")
"""One problem's default is not feasible for the other."""


class Tuner(Invoked):
    """With a file of two problems in its folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        (folder / "two.csv").write_text("M, N, K, layout\n16, 4096, 4096, nn\n1, 4096, 4096, nt\n")

    @contextmanager
    def store(self) -> Iterator[Store]:
        with closing(Store.open(self.db)) as store:
            yield store

    def runs(self) -> list[StoredRun]:
        """The oldest first."""
        with self.store() as store:
            return store.runs(20)[::-1]


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tuner:
    return Tuner.alone(tmp_path, monkeypatch)


def test_one_config_is_told_with_what_it_costs_and_what_serves_stays(tuner: Tuner) -> None:
    answered = tuner.json("search", *TWO, "--trials", "20")["rows"]
    with tuner.store() as store:
        before = store.answers()
    joint = tuner.json("search", *TWO, "--trials", "40", "--joint", "worst")
    assert (joint["joint"], joint["device"], joint["feasible_for_all"]) == ("worst", "nvidia-h200", 1359)
    assert (joint["tried"], joint["kind"]) == (40, "tuned")
    rows = joint["rows"]
    for row, own in zip(rows, answered, strict=True):
        space = recorded.load(row["recorded"])
        assert row["config"] == joint["config"]
        assert joint["config"] in [dict(m.config) for m in space.measurements if m.ok]
        assert space.default is not None
        assert row["baseline"] == space.default.text
        assert row["problem"] == own["problem"]
        assert row["own"]["latency_us"] == pytest.approx(own["latency_us"], rel=0.05)
        assert row["own"]["loss"] == pytest.approx(row["latency_us"] / row["own"]["latency_us"] - 1, abs=0.02)
    assert joint["speedup"] == pytest.approx(min(row["default"]["speedup"] for row in rows))
    assert joint["speedup"] < 0.95
    assert joint["vendor_speedup"] == pytest.approx(min(row["vendor"]["speedup"] for row in rows))
    assert [run.status for run in tuner.runs()] == ["done"] * 4
    with tuner.store() as store:
        assert store.answers() == before
        assert [store.comparison(row["run"]) is not None for row in rows] == [True, True]
    assert [row["searched"] for row in tuner.json("search", *TWO, "--trials", "20")["rows"]] == [False, False]


def test_the_same_command_measures_nothing_again_and_shows_a_table(tuner: Tuner) -> None:
    command = ("search", *TWO, "--trials", "40", "--joint", "geomean")
    first = tuner.json(*command)
    done = tuner(*command)
    assert [run.trials for run in tuner.runs()][2:] == [0, 0]
    lines = done.stdout.splitlines()
    assert lines[0] == "two.csv, one config for 2, on nvidia-h200"
    assert lines[2].split() == ["problem", "us", "x", "torch", "x", "default"]
    assert [line.split()[:6:5] for line in lines[4:6]] == [["gemm", "4096"]] * 2
    assert "tried 40 of the 1,359 configs that are feasible for all; " in done.stdout
    assert "not measured here" in done.stdout
    assert lines[-2].startswith(f"geometric mean  {first['speedup']:.3f} x default, ")
    assert lines[-1].split()[:3] == [f"{name}={first['config'][name]}" for name in ("BLOCK_M", "BLOCK_N", "BLOCK_K")]


def test_a_problems_own_search_tries_as_hard_as_if_there_had_been_no_joint_one(tuner: Tuner) -> None:
    """It would else be content with what was chosen for others too, and serve that."""
    tuner.json("search", *TWO, "--trials", "40", "--joint", "worst")
    answer = tuner.json("search", "gemm", "--M", "16", "--N", "4096", "--K", "4096", "--trials", "30")
    *_, own = tuner.runs()
    assert own.trials == 30
    assert own.settings["known"] == own.settings["known_jointly"] > 30
    shown = tuner("search", *TWO, "--trials", "40", "--joint", "worst").stdout
    assert f"{answer['latency_us']:.0f}" in shown
    assert "own answer, us   loss to it" in shown


def test_ctrl_c_tells_the_best_so_far_and_ends_the_runs(tuner: Tuner) -> None:
    def interrupt() -> None:
        until(lambda: tuner.db.exists() and any(run.trials > 30 for run in tuner.runs()))
        os.kill(os.getpid(), signal.SIGINT)

    Thread(target=interrupt).start()
    done = tuner("search", *TWO, "--sampler", "random", "--effort", "exhaustive", "--joint", "worst", "--json")
    assert done.return_value == 130
    assert "the same command continues from there" in done.stderr
    partial = json.loads(done.stdout)
    assert (partial["match"], partial["joint"]) == ("partial", "worst")
    assert 0 < partial["speedup"] < 1
    assert [run.status for run in tuner.runs()] == ["interrupted"] * 2


def test_a_dry_run_tells_how_many_there_are_to_choose_from(tuner: Tuner) -> None:
    command = ("search", "softmax", "--joint", "worst", "--dry-run", "--device", "nvidia-h200", "--M")
    plan = tuner.json(*command, "1024,4096")
    kernel = catalog.load("softmax")
    spaces = [list(feasible(kernel, kernel.signature.problem({"M": M}), H200.limits)) for M in (1024, 4096)]
    assert plan["feasible_for_all"] == len(common(spaces)) > 100
    assert [(row["feasible"], row["trials"]) for row in plan["rows"]] == [(len(space), 200) for space in spaces]
    none = tuner(*command, "64,4096")
    assert "feasible for all 2: 0; about 0 s on NVIDIA H200" in none.stdout
    assert "no config is feasible for all 2 problems" in none.stdout
    assert none.return_value == 1  # as of the search
    assert not tuner.db.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["gemm", "--M", "4096"], 2, "--joint finds one config for several problems, and gemm M=4096 N=4096 K=4096"),
        (["--suite", "lecture"], 2, "lecture has softmax, transpose; add --only op=softmax"),
        (["gemm", "--M", "16,64", "--replay", "any"], 2, "--replay names the space of one problem, and gemm has 2"),
        (["gemm", "--M", "4096,17"], 3, "there is no GPU here and no recorded space of gemm M=17 N=17 K=17"),
        (["gemm", "--M", "16,4096", "--N", "4096", "--K", "4096"], 1,
         "2 problems, and none for both gemm 16 x 4096 x 4096 bf16 and gemm 4096 x 4096 x 4096 bf16; search fewer"),
    ],
)  # fmt: skip
def test_what_it_refuses(tuner: Tuner, arguments: list[str], code: int, says: str) -> None:
    done = tuner("search", *arguments, "--joint", "geomean")
    assert isinstance(done.exception, TunerError)
    assert done.exception.exit_code == code
    assert says in str(done.exception)
    assert done.stdout == ""
