"""Without a GPU every command replays the same of two cards, and says what else there is."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers import toy
from invoked import Invoked

from tuner import recorded
from tuner.errors import NoDevice, UnknownName
from tuner.tuning.events import Events
from tuner.tuning.other_gpus import Machine
from tuner.tuning.stand_in import none_recorded, note_what_stands_in

ONE = ("softmax", "--M", "8192")
"""Recorded on an H200, and later on an H100."""
SEVERAL = ("softmax", "--M", "8192,4096", "--N", "8192,65536")
"""Two of them were recorded, one of these on the H200 alone."""
H100, H200 = "softmax-8192x8192-fp32-nvidia-h100-80gb-hbm3", "softmax-8192x8192-fp32-nvidia-h200"
OTHER = "softmax-4096x65536-fp32-nvidia-h200"
ALSO = "also recorded on NVIDIA H100 80GB HBM3: --replay"
CHANGED = "; softmax has changed since it was recorded"


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoked:
    monkeypatch.setattr("tuner.measure.device.count", lambda: 0)
    (tmp_path / "two.csv").write_text("M,N\n8192,8192\n4096,65536\n")
    (tmp_path / "suite.json").write_text('[{"op": "softmax", "M": 8192}, {"op": "softmax", "M": 4096, "N": 65536}]')
    return Invoked.alone(tmp_path, monkeypatch)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["search", *ONE, "--trials", "2"], f"No GPU here: replaying {H200} ({ALSO} {H100}){CHANGED}.\n"),
        (["bench", *ONE], f"No GPU here: replaying {H200} ({ALSO} {H100}){CHANGED}.\n"),
        (["search", *SEVERAL, "--trials", "2"],
         f"({ALSO} NAME, one problem at a time); 2 of 4 were not recorded and are left out{CHANGED}.\n"),
        (["search", "--suite", "suite.json", "--trials", "2"],
         f"No GPU here: replaying {OTHER}, {H200} ({ALSO} NAME, one problem at a time){CHANGED}.\n"),
        (["bench", "--suite", "suite.json"], f"{OTHER}, {H200} ({ALSO} NAME, one problem at a time){CHANGED}.\n"),
        (["search", "softmax", "--shapes", "two.csv", "--trials", "9", "--joint", "worst"],
         f"{OTHER}, {H200}{CHANGED}.\n"),
        (["bench", "softmax", "--M", "4096", "--N", "65536"], f"No GPU here: replaying {OTHER}{CHANGED}.\n"),
        (["search", "gemm", "--M", "16", "--N", "4096", "--K", "4096", "--trials", "2"],
         "gemm-16x4096x4096-bf16-nvidia-h200; gemm has changed since it was recorded.\n"),
    ],
)  # fmt: skip
def test_the_card_that_most_spaces_come_from_stands_in(tuner: Invoked, command: list[str], says: str) -> None:
    done = tuner(*command)
    assert done.return_value == (1 if "left out" in says else 0), (done.stderr, done.exception)
    assert says in done.stderr
    assert "nvidia-h200" in done.stdout.lower().replace(" ", "-")
    assert "h100" not in done.stdout.lower()


@pytest.mark.parametrize("more", [(), ("--joint", "worst")])
def test_a_dry_run_means_the_card_that_would_be_replayed(tuner: Invoked, more: tuple[str, ...]) -> None:
    assert tuner.json("search", "softmax", "--M", "8192,4096", *more, "--dry-run")["device"] == "nvidia-h200"


def test_a_dry_run_says_that_the_command_replays(tuner: Invoked) -> None:
    command = ("search", "softmax", "--M", "8192", "--dry-run")
    line = "There is no GPU here: without --dry-run, recorded measurements and their answers are replayed."
    assert tuner(*command).stdout.splitlines()[-1] == line
    assert line not in tuner(*command, "--device", "nvidia-h200").stdout
    assert tuner.json(*command)["replays"]
    assert not tuner.json(*command, "--device", "nvidia-h200")["replays"]


def test_one_recorded_problem_of_a_suite_is_not_promised_what_replay_refuses(tuner: Invoked) -> None:
    command = ("search", "softmax", "--M", "8192,17", "--trials", "2")
    left_out = "1 of 2 was not recorded and is left out"
    assert f"({ALSO} NAME, one problem at a time); {left_out}{CHANGED}." in tuner(*command).stderr
    refused = tuner(*command, "--replay", H100)
    assert str(refused.exception) == "--replay names the space of one problem, and softmax has 2"


def test_the_other_card_is_replayed_by_name(tuner: Invoked) -> None:
    assert tuner.json("search", *ONE, "--trials", "2", "--replay", H100)["device"] == "nvidia-h100-80gb-hbm3"
    (row,) = tuner.json("bench", *ONE, "--replay", H100)["rows"]
    assert row["device"] == "nvidia-h100-80gb-hbm3"


@pytest.mark.parametrize("verb", ["search", "bench"])
def test_what_was_not_recorded_is_refused_with_the_ops_own_spaces(tuner: Invoked, verb: str) -> None:
    (tuner.folder / "none.json").write_text('[{"op": "softmax", "M": 17}, {"op": "transpose", "M": 17}]')
    alone, both = tuner(verb, "softmax", "--M", "17"), tuner(verb, "--suite", "none.json")
    assert isinstance(alone.exception, NoDevice)
    assert str(alone.exception) == (
        "there is no GPU here and no recorded space of softmax M=17 N=17 dtype=fp32; "
        f"recorded spaces to replay: {OTHER}, {H100}, {H200}"
    )
    told, _, names = str(both.exception).partition("; recorded spaces to replay: ")
    assert told == "there is no GPU here and none of these 2 problems was recorded"
    assert {name.partition("-")[0] for name in names.split(", ")} == {"softmax", "transpose"}


@pytest.mark.parametrize("verb", ["search", "bench"])
def test_a_kernel_of_ones_own_is_named_no_spaces(tuner: Invoked, verb: str) -> None:
    refused = tuner(verb, toy("double"), "--N", "64")
    assert isinstance(refused.exception, NoDevice)
    assert str(refused.exception) == (
        "there is no GPU here and no recorded space of double N=64 dtype=fp32; run it on a machine with an NVIDIA GPU"
    )
    unknown = tuner(verb, toy("double"), "--N", "64", "--replay", "double")
    assert str(unknown.exception) == "no recorded space is called 'double'; there are none of double"


@pytest.mark.parametrize("verb", ["search", "bench"])
def test_the_beginning_of_a_name_is_completed(tuner: Invoked, verb: str) -> None:
    refused = tuner(verb, *ONE, "--replay", "softmax-8192x8192-fp32")
    assert isinstance(refused.exception, UnknownName)
    assert str(refused.exception).endswith(f"; did you mean {H100} or {H200}?")


@pytest.mark.parametrize(
    ("machine", "named"),
    [
        (Machine("Linux", "x86_64", has_kfd=False), "GPU here"),
        (Machine("Linux", "x86_64", has_kfd=False, torch="2.10.0+cu128"), "GPU here"),
        (Machine("Linux", "x86_64", has_kfd=True), "NVIDIA GPU here (tuner does not measure on AMD GPUs)"),
        (
            Machine("Linux", "x86_64", has_kfd=False, torch="2.10.0+rocm7.0"),
            "NVIDIA GPU here (tuner does not measure on AMD GPUs)",
        ),
        (Machine("Darwin", "arm64", has_kfd=False), "NVIDIA GPU here (tuner does not measure on Apple GPUs)"),
        (Machine("Darwin", "x86_64", has_kfd=False), "GPU here"),
    ],
)
def test_a_gpu_of_another_vendor_is_named_in_the_line_on_the_missing_one(machine: Machine, named: str) -> None:
    class Notes(Events):
        def note(self, message: str) -> None:
            notes.append(message)

    notes: list[str] = []
    space = recorded.load(H200)
    note_what_stands_in([[space]], Notes(), machine=machine)
    assert notes == [f"No {named}: replaying {H200}{CHANGED}."]
    error = str(none_recorded([space.signature.problem({"M": 17})], machine))
    assert error.startswith(f"there is no {named} and no recorded space of softmax M=17")
    assert "\n" not in error
