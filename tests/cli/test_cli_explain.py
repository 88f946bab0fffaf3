"""`tuner explain` and `tuner show` as their users have them: a process, its output, its exit code."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import run_tuner
from helpers import H200
from scripted import BEST, DEFAULT, SPACE, TOY, bowl

from tuner import catalog
from tuner.cli.plot import knobs_drawn, landscape_figure, limits_figure, page, search_figure
from tuner.db.store import Store
from tuner.records import (
    VENDOR,
    Answer,
    CardState,
    Comparison,
    Environment,
    Evidence,
    Measurement,
    Outcome,
    Provenance,
    RooflineLimits,
)
from tuner.report.explain import explain
from tuner.report.explanation import Explanation
from tuner.report.text import config_text

FOUND = {
    "op", "problem", "device", "config", "match", "kind", "latency_us", "interval_us", "speedup", "speedup_interval",
    "tflops", "gb_per_s", "default_latency_us", "vendor_latency_us", "ties", "unresolved", "recorded", "imported",
    "vendor",
    "max_error", "tolerance", "checked", "marks", "neighbour", "tuned_with", "basis", "stale", "tuned_at", "snapshot",
}  # fmt: skip
ADDED = {
    "run", "rounds", "chosen", "ladder", "candidates", "importance", "importance_missing", "roofline", "seconds",
    "card", "outlook",
}  # fmt: skip
HEADS = ("comparison", "slower", "beaten", "failed", "not_tried")


WITHOUT = """
import sys
class Hiding:
    def find_spec(self, name, path=None, target=None):
        if name == {hidden!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Hiding())
from tuner.cli import main
main()
"""


def tuner(db: Path, *arguments: str, hidden: str = "", columns: int = 120) -> subprocess.CompletedProcess[str]:
    """Runs `tuner` against one database; with `hidden`, as if that package were not installed."""
    if not hidden:
        return run_tuner(*arguments, environment={"TUNER_DB": str(db), "COLUMNS": str(columns)})
    command = [sys.executable, "-P", "-c", WITHOUT.format(hidden=hidden), *arguments]
    environment = os.environ | {"TUNER_DB": str(db), "COLUMNS": str(columns)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with two searches of a recorded gemm, the second going on from the first."""
    db = tmp_path_factory.mktemp("replayed") / "tuner.db"
    for trials in ("30", "45"):
        assert tuner(db, "search", "gemm", "--M", "4096", "--trials", trials).returncode == 0
    return db


PROBLEM = TOY.problem({"N": 1000})
PROVENANCE = Provenance(H200, Environment("3.6.0", torch="2.10.0"), "9f2c", "cold-events-1", tuner="0.1.0")
CEILINGS = RooflineLimits(4000.0, {"fp32": 25.0}, {})
BROKEN = {
    SPACE[0]: (Outcome.COMPILE_ERROR, "compile", "ptxas fatal: [bold]too many\nregisters"),
    SPACE[1]: (Outcome.WRONG_RESULT, "check", "error 0.5, allowed 0.1"),
    SPACE[2]: (Outcome.WRONG_RESULT, "check", "error 0.7, allowed 0.1"),
}
LOOKED_AT = SPACE[3:7]
SETTINGS = {"trials": 40, "budget_s": None, "space": 60, "known": 0, "default": DEFAULT.text}


def measured(number: int) -> Measurement:
    config = SPACE[number]
    if config in BROKEN:
        outcome, stage, error = BROKEN[config]
        return Measurement(config, outcome, stage=stage, error=error)
    samples = (bowl(config),) * (3 if config in LOOKED_AT else 12)
    return Measurement(config, Outcome.OK, samples, registers=168, spills=8, shared_bytes=65_536)


def searched(db: Path, *, flops: int = 2_000_000_000) -> int:
    """A search as a GPU would have it: failures, a first look, a watched duel, ceilings. The number of its run."""
    store = Store.open(db)
    run = store.start_run(TOY, PROBLEM, PROVENANCE, SETTINGS)
    trials = [*range(40), SPACE.index(BEST)] if SPACE.index(BEST) >= 40 else range(40)
    for number in trials:
        store.add_trial(run, measured(number))
    latencies = (bowl(BEST), bowl(DEFAULT), 95.0)
    states = tuple(CardState(1755 - number, 3201, 41 + number, 590.5, ("power_cap",)) for number in range(20))
    comparison = Comparison((BEST.text, DEFAULT.text, VENDOR), (latencies,) * 20, states)
    speedup = bowl(DEFAULT) / bowl(BEST)
    answer = Answer(
        PROBLEM,
        "tuned",
        BEST,
        bowl(BEST),
        (bowl(BEST), bowl(BEST)),
        speedup,
        (speedup, speedup),
        bowl(DEFAULT),
        95.0,
        evidence=Evidence(1e-3, 1e-2),
        flops=flops,
        bytes=100_000_000,
    )
    store.add_answer(run, answer, PROVENANCE, "trials", {"measure": 12.25, "comparison": 4.0}, comparison)
    store.keep_roofline_limits(H200, CEILINGS)
    store.close()
    return run


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    db = tmp_path_factory.mktemp("toy") / "tuner.db"
    searched(db)
    return db


@pytest.fixture(scope="module")
def document(replayed: Path) -> Any:
    return json.loads(tuner(replayed, "explain", "gemm", "--M", "4096", "--json").stdout)


class TestExplain:
    def test_json_is_one_document_whose_counts_add_up_to_the_space(self, document: Any) -> None:
        assert document.keys() == FOUND | ADDED
        candidates = document["candidates"]
        assert candidates["space"] == 4948
        assert sum(candidates[head] for head in HEADS) == 4948
        assert candidates["not_tried"] == 4948 - 45
        assert (document["run"], candidates["outside"]) == (2, 0)
        assert document["importance"].keys() <= document["config"].keys()
        assert sum(document["importance"].values()) == pytest.approx(1, abs=1e-3)
        assert document["roofline"] is None
        assert document["card"] is None

    def test_the_ladder_is_the_answers_own_numbers(self, document: Any) -> None:
        ladder = document["ladder"]
        assert [contender["latency_us"] for contender in ladder] == sorted(c["latency_us"] for c in ladder)
        by_role = {role: contender for contender in ladder for role in contender["roles"]}
        answer = by_role["answer"]
        assert (answer["config"], answer["latency_us"]) == (document["config"], document["latency_us"])
        assert (answer["interval_us"], answer["speedup"]) == (document["interval_us"], 1.0)
        assert by_role["default"]["latency_us"] == document["default_latency_us"]
        assert by_role["vendor"]["latency_us"] == document["vendor_latency_us"]
        ties = [contender["config"] for contender in ladder if "tie" in contender["roles"]]
        assert sorted(map(str, ties)) == sorted(str(tie["config"]) for tie in document["ties"])

    def test_every_command_compares_with_torch_round_by_round(self, tmp_path: Path) -> None:
        """Clocks changed from round to round: of the medians torch's is the answer's, of each round it is 25 % more."""
        db = tmp_path / "tuner.db"
        store = Store.open(db)
        run = store.start_run(TOY, PROBLEM, PROVENANCE, SETTINGS)
        rounds = [(100.0, 125.0), (80.0, 100.0)] * 10 + [(125.0, 100.0)]
        answer = Answer(PROBLEM, "default", BEST, 100.0, (80.0, 125.0), 1.0, (1.0, 1.0), 100.0, 100.0)
        store.add_answer(run, answer, PROVENANCE, "trials", {}, Comparison((BEST.text, VENDOR), tuple(rounds)))
        store.close()
        for command in ("best", "explain"):
            (torch, *_) = (
                line for line in tuner(db, command, "toy", "--N", "1000").stdout.splitlines() if line[:7] == "  torch"
            )
            assert torch.split() == ["torch", "100.00", "us", "1.250", "x", "torch", "1.250", "-", "1.250"]
        with closing(sqlite3.connect(db)) as connection, connection:
            connection.execute("DELETE FROM rounds")
        shown = tuner(db, "best", "toy", "--N", "1000").stdout
        (torch,) = (line for line in shown.splitlines() if line[:7] == "  torch")
        assert torch.split() == ["torch", "100.00", "us", "1.000", "x", "torch"]  # of the medians, with no interval

    def test_a_person_reads_all_of_it(self, toy: Path) -> None:
        shown = tuner(toy, "explain", "toy", "--N", "1000", columns=80).stdout
        for line in (
            "Interleaved comparison  20 rounds; latency, and the answer's speed-up over it, with intervals",
            "  1      95.00 us        95.00 - 95.00  0.950  0.950 - 0.950  torch",
            "  2     100.00 us      100.00 - 100.00                        answer",
            "  3     250.00 us      250.00 - 250.00  2.500  2.500 - 2.500  default",
            "     168 registers, 8 B spilled, 64 KiB shared: 3 blocks, 18.8 % of warps (registers, shared)",
            "  chosen: the fastest config",
            "Space  60 configs",
            "      2  in the interleaved comparison",
            "      4  dropped after one measurement, far slower",
            "      2  wrong_result (check): error 0.5, allowed 0.1",
            f"         {config_text(SPACE[1])}",
            "      1  compile_error (compile): ptxas fatal: [bold]too many",
            "  80.0 % of the limit: the problem takes at least 80.00 us here, bound by compute",
            "  time: measure 12.2 s, comparison 4.0 s",
            "  card: 1,736 - 1,755 MHz, up to 60 C, up to 590 W, clocks throttled by power_cap",
        ):
            assert line in shown.splitlines()

    def test_every_line_of_ours_fits_a_narrow_terminal(self, replayed: Path) -> None:
        shown = tuner(replayed, "explain", "gemm", "--M", "4096", columns=80).stdout
        lines = [
            line for line in shown.partition("Interleaved comparison")[2].splitlines() if "BLOCK_M=" not in line
        ]  # a config is long
        assert max(map(len, lines)) <= 80

    def test_a_miss_is_as_honest_as_best(self, replayed: Path) -> None:
        for flags in ([], ["--json"]):
            done, best = (tuner(replayed, command, "gemm", "--M", "4097", *flags) for command in ("explain", "best"))
            assert (done.returncode, done.stdout, done.stderr) == (1, best.stdout, best.stderr)
            assert "tuner search gemm --M 4097" in done.stdout

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (["--device", "gpu9"], 2, "no device is called 'gpu9'; there are nvidia-h200"),
            (["--gpu", "first"], 2, "a GPU is auto or a number, not 'first'"),
            (["--plot", "/nowhere/out.html"], 2, "the page /nowhere/out.html cannot be written: No such file"),
        ],
    )
    def test_bad_input_is_refused(self, toy: Path, arguments: list[str], code: int, message: str) -> None:
        done = tuner(toy, "explain", "toy", "--N", "1000", *arguments)
        assert message in done.stderr
        assert (done.returncode, done.stdout) == (code, "")

    def test_it_needs_no_optuna(self, toy: Path) -> None:
        done = tuner(toy, "explain", "toy", "--N", "1000", "--json", hidden="optuna")
        document = json.loads(done.stdout)
        assert document["importance"]
        assert document["ladder"]

    def test_without_plotly_there_is_a_way_out(self, toy: Path, tmp_path: Path) -> None:
        out = tmp_path / "out.html"
        done = tuner(toy, "explain", "toy", "--N", "1000", "--plot", str(out), hidden="plotly")
        assert done.returncode == 2
        assert done.stderr == "tuner: --plot needs plotly; pip install 'triton-tuner[plot]'\n"
        assert not out.exists()
        assert tuner(toy, "explain", "toy", "--N", "1000", hidden="plotly").returncode == 0


def drawn(db: Path, flops: int = 2_000_000_000) -> tuple[Explanation, list[Measurement]]:
    number = searched(db, flops=flops)
    store = Store.open(db)
    run = store.run(number)
    assert run is not None
    (stored,) = store.answers_of(number)
    measurements, shares = store.known_to(run), {"A": 0.7, "B": 0.3}
    return explain(stored, run, store.comparison(number), measurements, CEILINGS, shares), measurements


class TestPlot:
    def test_it_is_one_page_that_needs_no_network(self, replayed: Path, tmp_path: Path) -> None:
        out = tmp_path / "out.html"
        done = tuner(replayed, "explain", "gemm", "--M", "4096", "--plot", str(out), "--json")
        assert f"Page written to {out}" in done.stderr
        assert json.loads(done.stdout)["run"] == 2
        text = out.read_text()
        assert "<title>gemm  M=4096 N=4096 K=4096 dtype=bf16  on NVIDIA H200</title>" in text
        assert "replayed from gemm-4096x4096x4096-bf16-nvidia-h200: measured on NVIDIA H200, not here" in text
        assert text.count("Plotly.newPlot(") >= 3
        assert "<script src=" not in text
        assert "<link" not in text

    def test_the_search_shows_best_so_far_and_what_failed(self, tmp_path: Path) -> None:
        report, measurements = drawn(tmp_path / "tuner.db")
        configs, best, failed = traces(search_figure(report, measurements))
        assert len(configs["x"]) == len(measurements) - 3
        assert best["x"][0] == 4  # the first three failed
        assert best["y"] == [min(m.latency_us for m in measurements[: count + 1]) for count in range(3, 41)]
        assert failed["x"] == [1, 2, 3]
        assert failed["text"][0].startswith("compile_error: ptxas fatal")

    def test_the_landscape_is_the_best_by_the_two_knobs_that_matter(self, tmp_path: Path) -> None:
        report, measurements = drawn(tmp_path / "tuner.db")
        assert knobs_drawn(report) == ("A", "B")
        (heat,) = traces(landscape_figure(report, measurements))
        assert (heat["x"], heat["y"]) == (["1", "2", "4", "8"], ["1", "2", "3", "4"])
        assert heat["z"][2][3] == 1.0
        assert heat["text"][2][3] == "100"
        assert heat["z"][3][3] is None  # A=8, B=4 was not tried
        best_of_others = min(m.latency_us for m in measurements if (m.config["A"], m.config["B"]) == (4, 2))
        assert heat["z"][1][2] == best_of_others / 100

    def test_the_roofline_has_the_card_and_the_three(self, tmp_path: Path) -> None:
        report, _ = drawn(tmp_path / "tuner.db")
        card, answer, default, torch = traces(limits_figure(report, CEILINGS))
        assert card["y"][1:] == [25.0, 25.0]
        assert card["x"][1] == pytest.approx(25e12 / 4000e9)
        assert [trace["x"] for trace in (answer, default, torch)] == [[20.0]] * 3
        assert answer["y"] == [pytest.approx(20.0)]
        assert default["y"] == [pytest.approx(8.0)]
        assert torch["name"] == "torch: 21.05 TFLOP/s"

    def test_tf32_products_are_held_against_the_cards_tf32(self, tmp_path: Path) -> None:
        report, _ = drawn(tmp_path / "tuner.db")
        gemm = catalog.load("gemm").signature.problem({"M": 64, "dtype": "fp32", "precision": "tf32"})
        report = replace(report, answer=replace(report.answer, problem=gemm))
        card, *_ = traces(limits_figure(report, replace(CEILINGS, tflops={"fp32": 25.0, "tf32": 200.0})))
        assert card["y"][1:] == [200.0, 200.0]

    def test_a_kernel_that_only_moves_data_has_bars_against_the_cards_copy(self, tmp_path: Path) -> None:
        report, _ = drawn(tmp_path / "tuner.db", flops=0)
        figure = limits_figure(report, CEILINGS)
        (bars,) = traces(figure)
        assert bars["y"] == ["answer", "default", "torch"]
        assert bars["x"] == [pytest.approx(1000.0), pytest.approx(400.0), pytest.approx(1e5 / 95)]
        assert figure.to_plotly_json()["layout"]["annotations"][0]["text"] == "device copy, 4,000 GB/s"

    def test_without_roofline_limits_it_says_so(self, tmp_path: Path) -> None:
        report, measurements = drawn(tmp_path / "tuner.db")
        (bars,) = traces(limits_figure(report, None))
        assert bars["text"][0] == "20 TFLOP/s"
        assert "The roofline limits of the card are not measured, or" in page(report, measurements, None)


def traces(figure: Any) -> list[Any]:
    """What a browser is given to draw."""
    drawn: list[Any] = [
        {key: list(value) if isinstance(value, tuple) else value for key, value in trace.to_plotly_json().items()}
        for trace in figure.data
    ]
    return drawn


class TestShow:
    def test_json_tells_what_was_asked_and_what_came_out(self, toy: Path) -> None:
        document = json.loads(tuner(toy, "show", "1", "--json").stdout)
        assert document.keys() == {
            "run", "op", "problem", "device", "recorded", "status", "stopped", "started_at", "ended_at", "measured",
            "taken_over", "answer_us", "settings", "measured_with", "seconds", "outcomes", "failures", "best", "answer",
        }  # fmt: skip
        assert document["settings"] == SETTINGS
        assert (document["status"], document["stopped"], document["device"]) == ("done", "trials", "nvidia-h200")
        assert document["seconds"] == {"measure": 12.25, "comparison": 4.0}
        assert document["outcomes"] == {"ok": document["measured"] - 3, "compile_error": 1, "wrong_result": 2}
        assert document["failures"][0] == {
            "outcome": "wrong_result",
            "count": 2,
            "stage": "check",
            "example": "error 0.5, allowed 0.1",
            "config": dict(SPACE[1]),
        }
        assert len(document["best"]) == 5
        assert document["best"][0] == {"config": dict(BEST), "latency_us": 100.0}
        assert document["answer"].keys() == FOUND
        assert document["answer"]["config"] == dict(BEST)

    def test_a_person_reads_which_config_failed(self, toy: Path) -> None:
        lines = tuner(toy, "show", "1").stdout.splitlines()
        assert lines[lines.index("      2  wrong_result (check): error 0.5, allowed 0.1") + 1].strip() == config_text(
            SPACE[1]
        )

    def test_a_person_reads_it_with_what_was_taken_over(self, replayed: Path) -> None:
        shown = tuner(replayed, "show", "2").stdout
        assert "Run 2  gemm  M=4096 N=4096 K=4096 dtype=bf16  on NVIDIA H200" in shown
        assert (
            "settings: sampler gp, seed 0, trials 45, budget_s none, min_improvement_probability none, space " in shown
        )
        assert "Configs  15 measured, 30 reused from earlier runs" in shown
        assert re.search(r"^     4\d  ok$", shown, re.MULTILINE)
        assert "ended:    done, stopped by trials" in shown
        assert "tuner explain shows why" in shown

    def test_a_run_that_gave_no_answer_says_so(self, tmp_path: Path) -> None:
        db = tmp_path / "tuner.db"
        store = Store.open(db)
        run = store.start_run(TOY, PROBLEM, PROVENANCE, {})
        store.close()
        shown = tuner(db, "show", str(run)).stdout
        assert "running since" in shown
        assert shown.endswith("Answer\n  none\n")
        document = json.loads(tuner(db, "show", str(run), "--json").stdout)
        assert (document["status"], document["answer"], document["best"]) == ("running", None, [])

    def test_an_unknown_run_names_the_newest(self, replayed: Path) -> None:
        done = tuner(replayed, "show", "7")
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == "tuner: there is no run 7; newest: 2, 1\n"
        assert tuner(replayed, "show", "0").returncode == 2

    def test_without_a_number_it_lists_the_newest_first(self, replayed: Path, tmp_path: Path) -> None:
        _, head, _, *lines, _ = tuner(replayed, "show", columns=60).stdout.splitlines()  # piped, so it is whole
        assert head.split() == ["run", "started", "UTC", "status", "tried", "answer,", "us", "problem", "on"]
        assert [line.split()[0] for line in lines] == ["2", "1"]
        assert [line.split()[4] for line in lines] == ["45", "30"]
        assert "  gemm M=4096 N=4096 K=4096 dtype=bf16   nvidia-h200, replayed " in lines[0]
        listed = json.loads(tuner(replayed, "show", "--json").stdout)
        assert [run["run"] for run in listed] == [2, 1]
        empty = tmp_path / "empty.db"
        Store.open(empty).close()
        assert tuner(empty, "show").stdout == "no search is stored; start one with tuner search OP\n"

    def test_a_run_of_a_killed_process_has_no_sign_of_life(self, tmp_path: Path) -> None:
        db = tmp_path / "tuner.db"
        store = Store.open(db)
        run = store.start_run(TOY, PROBLEM, PROVENANCE, {})
        store.close()
        assert " running " in tuner(db, "show").stdout
        with closing(sqlite3.connect(db)) as connection, connection:
            connection.execute("UPDATE runs SET started_at = '2026-01-31T12:00:00.000+00:00'")
        assert " no sign of life " in tuner(db, "show").stdout
        ended = "  ended:    no sign of life since 2026-01-31 12:00 UTC, probably killed; its trials are kept\n"
        assert ended in tuner(db, "show", str(run)).stdout

    @pytest.mark.parametrize(
        ("columns", "said"),
        [
            (60, "narrow terminal, left out: on"),
            (80, "narrow terminal, left out: on, started UTC"),
            (100, "narrow terminal, left out: on"),
            (120, ""),
        ],
    )
    def test_a_narrow_terminal_shows_how_each_run_ended_and_the_problem_whole(
        self, replayed: Path, columns: int, said: str
    ) -> None:
        pty = pytest.importorskip("pty")
        ours, theirs = pty.openpty()
        environment = os.environ | {"TUNER_DB": str(replayed), "COLUMNS": str(columns), "LINES": "24", "TERM": "dumb"}
        command = [sys.executable, "-P", "-m", "tuner", "show"]
        subprocess.run(command, env=environment, stdout=theirs, check=True, timeout=60)
        os.close(theirs)
        lines = os.read(ours, 65536).decode().split("\r\n")
        os.close(ours)
        assert max(map(len, lines)) <= columns
        shown = "\n".join(lines)
        assert all(text in shown for text in ("status", "tried", "answer, us", "gemm M=4096 N=4096 K=4096 dtype=bf16"))
        assert "  done  " in shown
        assert [line for line in lines if "left out" in line] == [said] * bool(said)
