"""What became of a default without a latency, and the vendor's own name: in the store, in lines and in tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from databases import sqlite_store
from helpers import H200
from scripted import DEFAULT, SPACE, TOY, ScriptedMeasurer, only

from tuner.cli.bench_rows import line, print_rows
from tuner.cli.problem_rows import print_tuned
from tuner.cli.text import give
from tuner.db.store import Store
from tuner.kernels.spec import Config
from tuner.measure.measurer import Measurer
from tuner.records import COLD, VENDOR, Comparison, Environment, Measurement, Outcome, Provenance
from tuner.search import Budget
from tuner.suites.suite import Entry
from tuner.tuning.bench import Subject, bench
from tuner.tuning.effort import Effort
from tuner.tuning.progress import tuned_line
from tuner.tuning.run import run_search, stored_answer
from tuner.tuning.target import Target
from tuner.tuning.tuned import Tuned

MADE = Provenance(H200, Environment("3.6.0", "12.8", "2.11.0", "580.1"), "9f2c", COLD.text)
ENTRY = Entry("toy", TOY, TOY.problem({"N": 64}))
REFUSED = f"{DEFAULT.text} is refused by fits (toy.py line 7): the block fits the row"


class WithoutVendor(ScriptedMeasurer):
    """Measures a kernel that has no vendor."""

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        comparison = super().compare(configs, rounds, seconds, seed)
        assert isinstance(comparison, Comparison)
        return comparison.among([name for name in comparison.contenders if name != VENDOR])


store = sqlite_store


def target(measurer: Measurer | None = None) -> Target:
    return Target(SPACE, DEFAULT, MADE, COLD, flops=0, bytes=1, measurer=lambda: measurer or ScriptedMeasurer())


def searched(store: Store, target: Target) -> Tuned:
    result = run_search(target, store, ENTRY, Effort(Budget(), sampler="grid"))
    return Tuned.of(store, stored_answer(store, target, ENTRY), result)


def printed(tuned: Tuned, store: Store, capsys: pytest.CaptureFixture[str]) -> tuple[str, str]:
    """Return the table of several problems, and that of one."""
    print_tuned("toys", [tuned], 1.0)
    several = capsys.readouterr().out
    assert tuned.found is not None
    give(tuned.found, store, as_json=False)
    return several, capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "failure"),
    [
        (target(ScriptedMeasurer(outcome=only(DEFAULT, Outcome.WRONG_RESULT))), "wrong_result: as scripted"),
        (target(ScriptedMeasurer(outcome=only(DEFAULT, Outcome.CRASHED))), "crashed: as scripted"),
        (target(ScriptedMeasurer(fails_recheck=[DEFAULT])), "wrong_result: wrong on other inputs"),
        (replace(target(), default=None, refused=REFUSED), f"infeasible: {REFUSED}"),
    ],
)
def test_a_default_that_failed_is_a_row_with_its_outcome(
    given: Target, failure: str, store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = searched(store, given)
    outcome = failure.partition(":")[0]
    assert tuned.default_failure == failure
    assert tuned.as_json("")["default_failure"] == failure
    assert f"default {outcome}" in tuned_line(tuned)
    several, one = printed(tuned, store, capsys)
    row = next(row for row in several.splitlines() if " tuned " in row)
    assert outcome in row.split()
    assert f"default  toy 64 fp32: {failure}" in " ".join(several.split()).replace("default toy", "default  toy")
    assert ["default", outcome] in [line.split() for line in one.splitlines()]
    assert f"default: {failure}" in " ".join(one.split())


def test_a_default_that_ran_has_its_speed(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    tuned = searched(store, target())
    assert tuned.default_failure == ""
    assert "default_failure" not in tuned.as_json("")
    assert "default:" not in "".join(printed(tuned, store, capsys))


def test_the_vendor_goes_by_its_name(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    tuned = searched(store, replace(target(), vendor_name="cuBLAS"))
    assert " x cuBLAS, " in tuned_line(tuned)
    several, one = printed(tuned, store, capsys)
    assert "x cuBLAS" in several
    assert "cuBLAS" in one
    assert "torch" not in several


def test_without_a_vendor_there_is_no_row_of_it(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    tuned = searched(store, target(WithoutVendor()))
    assert tuned.vendor is None
    assert tuned.answer is not None
    assert tuned.answer.vendor_latency_us is None
    assert " x torch" not in tuned_line(tuned)
    assert "torch" not in printed(tuned, store, capsys)[1].replace("torch 2.11.0", "")


def test_a_bench_names_the_vendor_and_the_failed_default(capsys: pytest.CaptureFixture[str]) -> None:
    subject = Subject(ENTRY.problem, MADE, SPACE[0], DEFAULT, vendor_name="cuBLAS")
    rows = [
        bench(subject, ScriptedMeasurer(outcome=only(DEFAULT, Outcome.OUT_OF_MEMORY))),
        bench(replace(subject, vendor_name="Liger"), ScriptedMeasurer()),
        bench(subject, WithoutVendor()),
    ]
    failed, named, without = [row for row in rows if row is not None]
    assert line(failed).endswith(" x cuBLAS, default out_of_memory")
    assert " x Liger, " in line(named)
    assert without.vendor is None
    print_rows("toys", [failed])
    out = capsys.readouterr().out
    assert "x cuBLAS" in out
    assert "default          toy 64 fp32: out_of_memory: as scripted" in out
    print_rows("toys", [failed, named])
    assert "x vendor" in capsys.readouterr().out
