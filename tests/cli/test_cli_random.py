"""Random suites and dry runs on the command line: which problems, for which ops, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import toy
from invoked import Invoked

from tuner.errors import TunerError

ON_H200 = ("--dry-run", "--device", "nvidia-h200")


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoked:
    return Invoked.alone(tmp_path, monkeypatch)


def problems(tuner: Invoked, *arguments: str) -> list[tuple[str, ...]]:
    rows = tuner.json(*arguments, *ON_H200)["rows"]
    return [(row["op"], *map(str, row["problem"].values())) for row in rows]


def test_each_command_that_takes_a_suite_has_the_same_problems(tuner: Invoked) -> None:
    drawn = problems(tuner, "search", "--suite", "random:3:7", "--only", "op=softmax")
    assert len(drawn) == 3
    assert problems(tuner, "search", "softmax", "--suite", "random:3:7") == drawn
    assert problems(tuner, "search", "--suite=random:2:7", "softmax") == drawn[:2]
    assert problems(tuner, "bench", "softmax", "--suite", "random:3:7") == drawn
    shown = tuner("record", "softmax", "--suite", "random:3:7", *ON_H200).stdout
    assert "dry run on NVIDIA H200: problems to record" in shown
    assert all(f"softmax {M} x {N} {dtype}" in shown for _, M, N, dtype in drawn)
    assert not tuner.db.exists()


def test_a_bench_searches_problems_without_an_answer(tuner: Invoked) -> None:
    words = ("bench", "softmax", "--suite", "random:3:7", *ON_H200)
    alone, searched = tuner.json(*words), tuner.json(*words, "--search", "10s")
    assert {row["trials"] for row in alone["rows"]} == {0}
    assert all(row["trials"] > 0 for row in searched["rows"])
    assert 0 < alone["seconds"] < searched["seconds"]


def test_a_kernel_file_draws_problems_too(tuner: Invoked) -> None:
    source = Path(toy("double")).read_text().rstrip().removesuffix(")")
    file = tuner.folder / "mine.py"
    file.write_text(f'{source}    draw=lambda random: {{"N": random.randint(64, 4096)}},\n)\n')
    assert len({N for _, N, _ in problems(tuner, "search", "mine.py", "--suite", "random:5:1")}) == 5


def test_a_plan_repeats_the_reason_of_a_kernel_file_as_it_is(tuner: Invoked) -> None:
    source = Path(toy("double")).read_text().rstrip().removesuffix(")")
    (tuner.folder / "mine.py").write_text(f'{source}    valid=lambda problem, config, limits: "x[/N] is odd",\n)\n')
    planned = tuner("search", "mine.py", "--N", "64", *ON_H200)
    assert planned.return_value == 1
    assert "x[/N] is odd" in planned.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("search", toy("double"), "--suite", "random:5:1"), "states no draw; give a suite file.json"),
        (("search", "softmax", "--suite", "random:5:1", "--M", "16"), "select some with --only M=VALUE, not with --M"),
        (("search", "softmax", "--suite", "random:5"), "a random suite is random:COUNT:SEED with 1 to 9999 problems"),
        (("search", "softmax", "--suite", "odd"), "--suite takes the place of OP; leave out softmax or --suite"),
        (("bench", "--suite", "random:5:1", "--only", "op=nope"), "no kernel is called 'nope'"),
        (("bench", "--suite", "random:1:7", "--only", "M=0"), "no problem of random:1:7 has M=0; the first is add "),
        (("bench", "softmax", "--M", "64", "--device", "nvidia-h200"), "--device names the card of a --dry-run"),
        (("record", "softmax", "--M", "64", "--device", "nvidia-h200"), "--device names the card of a --dry-run"),
        (("record", "--suite", "lecture"), "recording measures on a GPU, and there is no GPU here"),
    ],
)
def test_what_is_refused(tuner: Invoked, words: tuple[str, ...], says: str) -> None:
    error = tuner(*words).exception
    assert isinstance(error, TunerError)
    assert says in str(error)
    assert "\n" not in str(error)
