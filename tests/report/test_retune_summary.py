"""The summary of a retune: what counts as a regression, the machine's factor, gains and the exit code."""

from __future__ import annotations

from dataclasses import replace

import pytest
from retuned import TODAY, finding, now, reading, retune

from tuner.records.retune import Action, Cause
from tuner.report.retune.escapes import plain_text
from tuner.report.retune.summary import change, slowdown, summarise
from tuner.report.retune.text import action_counts, cause_counts, done_text, exit_text, moved, outcome

SLOWER = finding(1, Cause.SLOWER_CODE, now=now(11.1, 0.991))


def test_findings_are_counted_by_cause_and_action() -> None:
    summary = summarise(retune(planned=9))
    assert (summary.planned, summary.measured, summary.left) == (9, 5, 3)
    assert (
        cause_counts(summary) == "2 unchanged, 1 order moved, 1 slower (kernel or compiler), 1 broken, 1 not measured"
    )
    assert action_counts(summary) == "1 replaced (1.052 x as fast), 1 retired, 1 confirmed"
    assert outcome(summary) == "2 regressions, 1 not measured"
    assert exit_text(summary) == "2 regressions found (exit code 4), 2 not repaired."
    assert summary.gain == pytest.approx(1.052)


def test_the_exit_code_is_that_of_the_gravest_outcome() -> None:
    calm, missing = finding(2), finding(3, Cause.NOT_MEASURED, now=None)
    codes = [summarise(retune(*found)).exit_code for found in ((calm,), (calm, missing), (missing, SLOWER))]
    assert codes == [0, 1, 4]
    failed = summarise(retune(calm, status="failed"))
    assert failed.exit_code == 1
    assert exit_text(failed) == "The retune failed before its end; no regressions were found so far."
    assert summarise(retune(finding(1, Cause.ORDER), finding(2, Cause.METHOD))).exit_code == 0


def test_a_repaired_regression_counts() -> None:
    repaired = finding(1, Cause.BROKEN, Action.REPLACED, now=None, new_answer_id=9)
    summary = summarise(retune(repaired))
    assert (summary.exit_code, summary.unrepaired) == (4, ())
    assert exit_text(summary) == "1 regression found (exit code 4), all repaired."
    assert done_text(repaired) == "replaced by answer 9"


@pytest.mark.parametrize(("factor", "code"), [(1.04, 0), (1.07, 4)])
def test_a_slower_machine_counts_only_if_the_median_over_all_problems_moved(factor: float, code: int) -> None:
    """Two of the three moved by `factor`, and one alone by more."""
    found = [
        finding(answer, Cause.SLOWER_MACHINE, now=now(10 * by)) for answer, by in enumerate((factor, factor, 1.2), 1)
    ]
    summary = summarise(retune(*found))
    assert summary.machine == pytest.approx(factor)
    assert summary.exit_code == code


def test_the_machines_factor_is_that_of_contenders_whose_code_is_the_same() -> None:
    """The vendor's, although the config slowed; without one, a changed compiler leaves nothing to tell it by."""
    assert summarise(retune(SLOWER)).machine == pytest.approx(1.0, abs=1e-3)
    then, alone = reading(10, None), now(11, None)
    assert summarise(retune(finding(1, then=then, now=alone))).machine is None
    same = reading(11, None)
    assert summarise(retune(finding(1, then=then, now=same))).machine == pytest.approx(1.1)


@pytest.mark.parametrize(("slower", "code"), [(0.0, 4), (0.1, 4), (0.12, 0)])
def test_a_slowdown_counts_if_it_is_above_the_setting_with_confidence(slower: float, code: int) -> None:
    """It is 11.0 %, and 10.8 % at the lower end of its interval."""
    found = slowdown(SLOWER)
    assert found is not None
    assert found[0] == pytest.approx(1.1 / 0.991)
    assert 1.107 < found[1][0] < 1.109
    assert summarise(retune(SLOWER, settings={"slower": slower})).exit_code == code


def test_what_does_not_run_counts_whatever_the_setting() -> None:
    broken = finding(1, Cause.BROKEN, now=None)
    assert summarise(retune(broken, settings={"slower": 0.5})).exit_code == 4


def test_without_a_vendor_the_latency_says_how_much_slower_it_is() -> None:
    """All configs of the kernel slowed alike, as by an edit of its source."""
    then, today = reading(10, None, 1.25), now(11.5, None, 1.25)
    found = slowdown(finding(1, Cause.SLOWER_CODE, then=then, now=today))
    assert found is not None
    assert found[0] == pytest.approx(1.15)
    edited = retune(finding(1, Cause.SLOWER_CODE, then=then, now=today), settings={"slower": 0.1})
    assert summarise(edited).exit_code == 4


def test_latencies_of_other_policies_are_not_compared() -> None:
    assert change(SLOWER) == pytest.approx(1.11)
    other = now(20.0, None, provenance=replace(TODAY, policy="warm-graph-1"))
    assert change(finding(1, Cause.METHOD, now=other)) is None
    assert slowdown(finding(1, Cause.SLOWER_CODE, now=other)) is None


def test_unchanged_ones_are_not_shown_one_by_one_and_broken_ones_come_first() -> None:
    assert [each.answer_id for each in moved(retune())] == [4, 2, 3]
    kept = finding(1, Cause.ORDER, gain=1.01, gain_interval=(1.0, 1.02), searched=40, pinned=True)
    assert done_text(kept) == "kept, pinned; the fastest of 40 configs is 1.010 x as fast (1.000 - 1.020)"


def test_colours_and_control_characters_are_left_out() -> None:
    text = "\x1b[1;31merror\x1b[0m:\r\n\x1b]8;;https://x\x1b\\link\x1b]8;;\x1b\\\x00\x07\ttab\ud800\ufffe\u202e"
    assert plain_text(text) == "error:\nlink\ttab"
