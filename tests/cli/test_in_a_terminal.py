"""Output of the commands, on terminals of several widths and without one."""

from __future__ import annotations

import json
import re
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from commands import run_tuner
from helpers import H200, toy

from tuner import catalog
from tuner.cli.grid import Output, print_lines
from tuner.db.store import Store
from tuner.records import VENDOR, Answer, Comparison, Environment, Measurement, Outcome, Provenance
from tuner.report.text import not_run_text, short, speed_text
from tuner.search import Budget
from tuner.tuning.effort import Effort

SIZES = {"BATCH": 128, "HEADS": 128, "QUERIES": 131072, "KEYS": 131072, "WIDTH": 256}
FIVE = (toy("five_dims"), *(word for name, size in SIZES.items() for word in (f"--{name}", str(size))), "--layout=bhsd")
LONG = "grouped_query_attention BATCH=128 HEADS=128 QUERIES=131072 KEYS=131072 WIDTH=256 fp32 layout=bhsd"
SEVERAL = ("gemm", "--M", "16,1024", "--N", "4096,6144", "--K", "4096", "--trials", "12")
JOINT = ("gemm", "--M", "16,64", "--N", "4096", "--K", "4096", "--trials", "12", "--joint", "geomean")
COMMANDS = [
    ("search", "softmax", "--M", "8192", "--trials", "30"),
    ("search", *SEVERAL),
    ("search", *JOINT),
    ("search", *FIVE, "--dry-run", "--device", "nvidia-h200"),
    ("search", *FIVE),
    ("best", *FIVE),
    ("best", "softmax", "--M", "8192", "--triton", "3.7.0"),
    ("best", "softmax", "--M", "8193"),
    ("why", *FIVE),
    ("why", "softmax", "--M", "8192", "--triton", "3.7.0"),
    ("explain", *FIVE),
    ("explain", "softmax", "--M", "8192"),
    ("list",),
    ("show",),
    ("show", "1"),
    ("bench", "--suite", "llama-3-8b", "--only", "layout=nn"),
    ("spaces",),
    ("replay", "softmax-8192x8192-fp32-nvidia-h200", "--seeds", "1", "--trials", "30"),
    ("jobs",),
    ("db", "info"),
    ("db", "prune", "--older-than", "30d", "--dry-run"),
    ("export", "answers.json"),
    ("export", "tables", "--format", "t4"),
    ("import", "E=8,N=3584,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json"),
]
TABLE = {M: {"BLOCK_SIZE_M": 16, "num_warps": 3} for M in ("16", "32")}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a database that holds searches of ops with short names and of one with a long one."""
    folder = tmp_path_factory.mktemp("terminal")
    store = Store.open(folder / "tuner.db")
    kernel = catalog.resolve(toy("five_dims"))
    problem = kernel.signature.problem({**SIZES, "layout": "bhsd"})
    made = Provenance(H200, Environment("3.6.0", "12.8", "2.10.0", "580.1"), kernel.source, "cold-events-1")
    best, default = kernel.signature.config({**FAST, "BLOCK": 256}), kernel.default_config(problem, H200.limits)
    settings = {**Effort(Budget(9)).settings, "space": 192, "default": default.text, "vendor": "cuDNN"}
    number = store.start_run(kernel.signature, problem, made, settings)
    for config, latency in ((best, 1_234_567.891), (default, 1_334_567.891)):
        store.add_trial(number, Measurement(config, Outcome.OK, (latency,) * 5))
    rounds = Comparison((best.text, default.text, VENDOR), ((1_234_567.891, 1_334_567.891, 1_300_000.0),) * 20)
    answer = Answer(
        problem, "tuned", best, 1_234_567.891, (1_234_500.0, 1_234_600.0), 1.081, (1.08, 1.082), 1_334_567.891, 1.3e6
    )
    store.add_answer(number, answer, made, "trials", {}, rounds)
    store.queue.add(problem, H200.id)
    (folder / COMMANDS[-1][1]).write_text(json.dumps(TABLE))
    store.close()
    for command, code in zip(COMMANDS[:3], (0, 1, 0), strict=True):  # of the second, not all problems are recorded
        assert run(folder, command, 80, terminal=False).returncode == code
    return folder


FAST = {f"ANOTHER_LONG_NAME_{number}": 32 for number in range(6)} | {"num_warps": 4, "num_stages": 1}


def run(folder: Path, command: tuple[str, ...], width: int, *, terminal: bool) -> CompletedProcess[str]:
    """Run a command as if its output was a terminal of a width, for which rich takes it with FORCE_COLOR."""
    settings = {"TUNER_DB": str(folder / "tuner.db"), "COLUMNS": str(width)}
    if terminal:
        settings["FORCE_COLOR"] = "1"
    return run_tuner(*command, environment=settings, folder=folder)


def plain(text: str) -> list[str]:
    """Return the lines that stay on a terminal, without colours."""
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).split("\n")
    return [line.rpartition("\r")[2].rstrip() for line in lines]


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command)[-60:])
def test_nothing_is_wider_than_the_terminal(folder: Path, command: tuple[str, ...], width: int) -> None:
    done = run(folder, command, width, terminal=True)
    lines = plain(done.stdout) + plain(done.stderr)
    assert [line for line in lines if len(line) > width and len(line.split()[-1]) < width - 10] == []  # long paths
    assert any(lines)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command)[-60:])
def test_without_a_terminal_no_line_is_broken(folder: Path, command: tuple[str, ...]) -> None:
    """For grep, and for files: whatever the width of the terminal they are started from."""
    narrow, wide = (run(folder, command, width, terminal=False).stdout for width in (60, 200))
    assert [*map(no_time, plain(narrow))] == [*map(no_time, plain(wide))]


def no_time(line: str) -> str:
    return re.sub(r"[0-9]+(\.[0-9]+)? s\b", "s", re.sub(r" +|─+", " ", line))


class TestBest:
    def test_a_stale_answer_says_so_and_why_on_one_line(self, folder: Path) -> None:
        shown = run(folder, ("best", "softmax", "--M", "8192", "--triton", "3.7.0"), 80, terminal=False).stdout
        (line,) = (line for line in shown.splitlines() if "stale" in line)
        assert line.startswith("  stale: triton: tuned with 3.6.0, the query has 3.7.0; recorded: replayed from softm")

    def test_latencies_have_one_unit_and_one_number_of_digits(self, folder: Path) -> None:
        shown = run(folder, ("best", *FIVE), 80, terminal=False).stdout
        rows = [line.split() for line in shown.splitlines() if " us " in line]
        assert [row[:3] for row in rows] == [
            ["tuned", "1,234,567.89", "us"],
            ["default", "1,334,567.89", "us"],
            ["cuDNN", "1,300,000.00", "us"],
        ]
        assert rows[1][3:6] == ["1.081", "x", "default"]
        assert rows[2][3:6] == ["1.053", "x", "cuDNN"]


def test_one_ratio_has_one_name_in_all_commands(folder: Path) -> None:
    """The default's latency over the answer's, here 1.081: a speed, above 1 if the answer is faster."""
    for command in (("best", *FIVE), ("list",), ("explain", *FIVE)):
        shown = run(folder, command, 200, terminal=False).stdout
        assert "1.081 x default" in shown, command
        assert not re.search(r"times as fast|over best|over default|slowdown|speedup", shown), command


def test_the_first_line_of_a_search_is_no_failure_and_its_last_says_what_did_not_run(tmp_path: Path) -> None:
    done = run(tmp_path, ("search", "softmax", "--M", "8192", "--effort", "exhaustive"), 200, terminal=False)
    first, *_, last = done.stderr.splitlines()
    assert first.startswith("No GPU here: replaying softmax-")
    assert last == "Of 402 configs, 6 did not fit the card; tuner show 1 has an example."
    assert "ail" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("op", "sizes"), [("softmax", ("--M", "8192")), ("transpose", ("--M", "8192")), ("gemm", ("--M", "4096"))]
)
def test_a_replayed_search_names_no_other_op(tmp_path: Path, op: str, sizes: tuple[str, ...]) -> None:
    for more in (("--trials", "5"), ("--replay", "nothing"), ("--M", "77")):
        done = run(tmp_path, ("search", op, *sizes, *more), 200, terminal=False)
        shown = done.stdout + done.stderr
        assert [other for other in catalog.names() if other != op and re.search(rf"\b{other}\b", shown)] == []


def test_a_check_is_a_line_for_each_step(tmp_path: Path) -> None:
    done = run(tmp_path, ("check", toy("double"), "N=300"), 80, terminal=True)
    lines = plain(done.stdout)
    assert max(map(len, lines)) <= 80
    assert "  load       ok       double; out = 2 x" in lines


def test_more_than_three_sizes_have_names() -> None:
    signature = catalog.resolve(toy("five_dims")).signature
    assert short(signature.problem({**SIZES, "layout": "bhsd"})) == LONG
    assert short(catalog.load("gemm").signature.problem({"M": 16})) == "gemm 16 x 16 x 16 bf16"


def test_words_of_speeds_and_of_what_did_not_run() -> None:
    assert speed_text(1.0416, "default") == "1.042 x default"
    assert not_run_text({"infeasible": 3}) == "3 did not fit the card"
    assert not_run_text({"timeout": 1, "crashed": 1200}) == "1,201 failed (1,200 crashed, 1 timeout)"
    assert not_run_text({"infeasible": 1, "error (KeyError)": 2}) == (
        "1 did not fit the card, 2 failed (2 error (KeyError))"
    )


def test_a_line_breaks_between_words_and_goes_on_indented(tmp_path: Path) -> None:
    with (tmp_path / "shown").open("w") as file:
        output = Output(file=file, force_terminal=True, width=40, color_system=None)
        print_lines(["  [green]BLOCK_M=128  BLOCK_N=256  BLOCK_K=64  num_warps=8[/]", "\nshort"], output)
    assert (tmp_path / "shown").read_text() == ("  BLOCK_M=128  BLOCK_N=256  BLOCK_K=64\n    num_warps=8\n\nshort\n")


def test_json_has_the_same_names(folder: Path) -> None:
    shown = [run(folder, (command, *FIVE, "--json"), 80, terminal=False).stdout for command in ("best", "explain")]
    best, report = map(json.loads, shown)
    by_role = {role: contender for contender in report["ladder"] for role in contender["roles"]}
    assert by_role["default"]["speedup"] == pytest.approx(best["speedup"], rel=1e-3)
    assert by_role["vendor"]["speedup"] > 1
    row = json.loads(run(folder, ("bench", "softmax", "--M", "8192", "--json"), 80, terminal=False).stdout)["rows"][0]
    assert row["vendor"].keys() == row["default"].keys() == {"latency_us", "speedup", "speedup_interval"}
