"""`tuner retune` as its users have it, over recorded spaces that play the nights before and after a change."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import Result
from invoked import Invoked
from nights import after, before, held, written

from tuner.cli.retune_options import Share
from tuner.cli.retune_progress import RetuneProgress
from tuner.db.store import Store
from tuner.errors import MeasureError, NoDevice, NothingFound, UsageError
from tuner.kernels.spec import Config
from tuner.recorded import RecordedSpace
from tuner.records import StoredAnswer

SEARCH = ("search", "softmax", "--M", "8192")


class Night(Invoked):
    """Runs `tuner retune` on spaces, and reads the store."""

    def retune(self, space: RecordedSpace | None = None, *arguments: str) -> Result:
        replay = "auto" if space is None else written(space, self.folder)
        return self("retune", "--replay", replay, *arguments)

    def document(self, space: RecordedSpace | None = None, *arguments: str) -> dict[str, Any]:
        done = self.retune(space, "--json", *arguments)
        assert done.exception is None, done.exception
        document: dict[str, Any] = json.loads(done.stdout)
        assert document.get("summary", {}).get("exit_code", 0) == done.return_value
        return document

    def answers(self) -> list[StoredAnswer]:
        store = Store.open(self.db)
        try:
            return store.answers()
        finally:
            store.close()


@pytest.fixture
def night(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Night:
    """A store with the answer of a small space."""
    night = Night.alone(tmp_path, monkeypatch)
    assert night(*SEARCH, "--replay", written(before(), tmp_path)).return_value == 0
    return night


def slowed(config: Config) -> Any:
    """Return factors by which one config alone is 11 % slower."""
    return lambda other: 1.11 if other == config else 1.0


def causes(document: dict[str, Any]) -> list[tuple[str, str]]:
    return [(finding["cause"], finding["action"]) for finding in document["findings"]]


def test_a_calm_night_is_four_lines_and_changes_nothing(night: Night) -> None:
    stored = night.answers()
    for number in (1, 2):
        done = night.retune(before())
        assert done.return_value == 0, done.exception
        title, counts, *others = done.stdout.splitlines()
        assert title == f"retune {number} on nvidia-h200"
        assert counts.startswith("1 of 1 answers measured again: 1 unchanged; ")
        assert others[-2:] == ["No regressions (exit code 0).", f"replayed from {before().name}: not measured here"]
    assert night.answers() == stored


def test_a_config_that_lost_under_a_new_compiler_is_replaced_and_the_next_night_is_calm(night: Night) -> None:
    (old,) = night.answers()
    space = after(before(), slowed(old.answer.config), changed={"triton": "3.7.1"})
    done = night.retune(space, "--report", "out")
    assert done.return_value == 4, done.exception
    text = " ".join(done.stdout.split())
    assert "softmax 8192 x 8192 fp32 slower: kernel or compiler " in text
    assert "1 regression found (exit code 4), all repaired." in text
    assert "replaced by answer 2, 1." in text
    assert done.stderr.endswith("Report written to out: Markdown, JSON and JUnit, and 1 plot.\n")
    new = night.answers()[-1]
    assert new.answer.config != old.answer.config
    assert new.provenance.environment.triton == "3.7.1"
    document = json.loads((night.folder / "out/retune.json").read_text())
    assert causes(document) == [("slower: kernel or compiler", "replaced")]
    (finding,) = document["findings"]
    assert finding["reasons"] == [f"Triton {before().environment.triton}, now 3.7.1"]
    assert finding["gain_interval"][0] > 1.02
    markdown = (night.folder / "out/retune.md").read_text()
    assert f"| Triton | {before().environment.triton} | 3.7.1 |" in markdown
    assert "```mermaid" in markdown
    suite = ElementTree.parse(night.folder / "out/retune.xml").getroot()[0]
    assert suite.find("testcase/failure") is not None
    again = night.document(space)
    assert causes(again) == [("unchanged", "kept")]
    shown = night("retunes", "1")
    assert shown.stdout == done.stdout


def test_a_machine_that_slowed_is_named_as_such(night: Night) -> None:
    stored = night.answers()
    done = night.retune(after(before(), lambda _: 1.08, vendor=1.08))
    assert done.return_value == 4
    assert "slower: machine" in done.stdout
    assert "Latencies on this card are 1.080 x those stored (median)." in done.stdout
    assert night.answers() == stored


def test_a_broken_config_is_replaced_and_its_error_said(night: Night) -> None:
    (old,) = night.answers()
    done = night.retune(after(before(), wrong=[old.answer.config]))
    assert done.return_value == 4
    assert "broken  softmax 8192 x 8192 fp32: " in done.stdout
    assert "deviates" in done.stdout
    assert night.answers()[-1].answer.config != old.answer.config


def test_a_check_names_the_cause_and_changes_nothing(night: Night) -> None:
    """The canary of a pull request: 11 % counts at `--slower 10%`, not at 15 %."""
    (old,) = stored = night.answers()
    space = after(before(), slowed(old.answer.config), changed={"source": "0" * 16})
    for slower, code in (("10%", 4), ("0.15", 0)):
        document = night.document(space, "--check", "--slower", slower)
        assert causes(document) == [("slower: kernel or compiler", "kept")]
        assert document["summary"]["exit_code"] == code
    assert night.answers() == stored


def test_a_stale_answer_that_is_still_the_best_is_confirmed(night: Night) -> None:
    space = after(before(), held, changed={"triton": "3.7.1"})
    assert causes(night.document(space, "--stale")) == [("unchanged", "confirmed")]
    assert "1 confirmed" in night("retunes", "1").stdout
    again = night.retune(space, "--stale")
    assert again.return_value == 0
    assert "no answer is selected: nothing was measured" in again.stdout


def test_the_plan_is_printed_and_nothing_is_measured(night: Night) -> None:
    space = after(before(), changed={"triton": "3.7.1"})
    done = night.retune(space, "--dry-run", "--budget", "20m")
    assert done.return_value == 0
    title, _, head, _, row, *_, end = done.stdout.splitlines()
    assert title == "dry run on nvidia-h200: answers to measure again, in order"
    assert head.split() == ["problem", "answer", "us", "misses", "changed", "since"]
    assert row.split()[:6] == ["softmax", "8192", "x", "8192", "fp32", "1"]
    assert f"Triton {before().environment.triton}, now 3.7.1" in row
    assert end == "1 answer, about 1 s of a budget of 1,200 s, new searches not counted"
    document = night.document(space, "--dry-run")
    assert document["rows"][0]["reasons"] == [f"Triton {before().environment.triton}, now 3.7.1"]
    assert document["rows"][0]["problem"]["M"] == 8192
    assert night("retunes").stdout.startswith("no retune is stored")
    failed = night.retune(space, "--dry-run", "--report", "out")
    assert str(failed.exception).startswith("--report writes what was measured, and --dry-run measures nothing")


def test_an_op_or_a_problem_selects_its_answers(night: Night) -> None:
    assert night("search", "transpose", "--M", "8192", "--trials", "10").return_value == 0
    assert night.document()["summary"]["planned"] == 2
    by_op = night("retune", "softmax", "--replay", "auto", "--json")
    assert [each["op"] for each in json.loads(by_op.stdout)["findings"]] == ["softmax"]
    by_problem = night("retune", "transpose", "--M", "8192", "--replay", "auto", "--json")
    assert [each["op"] for each in json.loads(by_problem.stdout)["findings"]] == ["transpose"]
    by_suite = night("retune", "--suite", "transpose", "--replay", "auto", "--dry-run", "--json")
    assert [each["op"] for each in json.loads(by_suite.stdout)["rows"]] == ["transpose"]
    missing = night("retune", "softmax", "--M", "77", "--replay", "auto")
    assert isinstance(missing.exception, NothingFound)
    assert "tuner search finds one" in str(missing.exception)
    failed = night("retune", "--only", "M=8192", "--replay", "auto")
    assert isinstance(failed.exception, UsageError)


def test_what_the_budget_leaves_is_said(night: Night) -> None:
    done = night.retune(None, "--budget", "0.000001")
    assert done.return_value == 0, done.exception
    assert "0 of 1 answers measured again: nothing" in done.stdout
    assert "1 not reached, since the budget was spent: the least valuable ones." in done.stdout


def test_one_that_is_interrupted_says_so_and_the_same_command_goes_on(
    night: Night, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The signal comes with the first of two findings."""
    assert night("search", "transpose", "--M", "8192", "--trials", "10").return_value == 0
    with monkeypatch.context() as patched:
        patched.setattr(RetuneProgress, "found", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
        done = night.retune(None, "--report", "out")
    assert done.return_value == 130, done.exception
    assert "Interrupted (exit code 130): the same command continues from here." in done.stdout
    document = json.loads((night.folder / "out/retune.json").read_text())
    assert (document["status"], len(document["findings"])) == ("interrupted", 1)
    again = night.retune(None)
    assert again.return_value == 0
    assert "2 of 2 answers measured again: 2 unchanged" in again.stdout
    assert again.stdout.startswith("retune 1 on ")
    assert night.retune(None).stdout.startswith("retune 2 on ")


def test_one_that_fails_reports_what_it_found(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise MeasureError("the worker process ended 3 times in a row")

    monkeypatch.setattr(RetuneProgress, "found", fail)
    done = night.retune(before(), "--report", "out")
    assert isinstance(done.exception, MeasureError)
    assert "1 of 1 answers measured again: 1 unchanged; " in done.stdout
    assert (night.folder / "out/retune.md").read_text().startswith("# Retune 1 on nvidia-h200: failed\n")
    document = json.loads((night.folder / "out/retune.json").read_text())
    assert (document["status"], document["summary"]["exit_code"]) == ("failed", 1)


def test_no_resume_leaves_one_that_was_killed(night: Night) -> None:
    night.document()
    for arguments, number in (((), 1), (("--no-resume",), 2)):
        store = Store.open(night.db)
        store.retunes.resume(1)  # as if it had been killed
        store.close()
        assert night.document(None, *arguments)["id"] == number


def test_without_a_card_the_way_out_is_named(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.measure.device.count", lambda: 0)
    failed = night("retune")
    assert isinstance(failed.exception, NoDevice)
    assert failed.exception.exit_code == 3
    assert str(failed.exception).endswith("or replay recorded spaces with --replay auto")


@pytest.mark.parametrize("folder", ["taken", "taken/out"])
def test_a_report_that_cannot_be_written_is_refused_before_anything_is_measured(night: Night, folder: str) -> None:
    (night.folder / "taken").touch()
    failed = night.retune(before(), "--report", folder)
    assert isinstance(failed.exception, UsageError)
    taken = night.folder / "taken"
    assert str(failed.exception) == (
        f"--report names a folder that can be written, and {taken} is a file; name another"
    )
    assert night("retunes").stdout.startswith("no retune is stored")


@pytest.mark.parametrize(("text", "share"), [("2%", 0.02), ("0.02", 0.02), ("12.5 %", 0.125), ("0", 0.0), ("0%", 0.0)])
def test_a_share_is_a_percentage_or_a_fraction(text: str, share: float) -> None:
    assert Share().convert(text, None, None) == pytest.approx(share)


@pytest.mark.parametrize("text", ["2", "-1%", "two", "1e-2", "1000%", "", "nan", "2%%"])
def test_other_shares_are_refused(text: str, night: Night) -> None:
    failed = night("retune", "--threshold", text)
    assert isinstance(failed.exception, UsageError)
    assert "--threshold takes a percentage such as 2%, or a fraction such as 0.02, not " in str(failed.exception)
