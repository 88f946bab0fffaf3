"""The Markdown of a retune: what a reader of a job summary sees, what is escaped, and its size."""

from __future__ import annotations

from dataclasses import replace

import pytest
from retuned import finding, generation, now, reading, retune
from stored import SCALE

from tuner.records import CardState
from tuner.records.retune import Action, Cause, Finding
from tuner.report.retune.markdown import MarkdownSettings, markdown
from tuner.report.retune.report import RetuneReport

NASTY = "a|b `c` ``d`` <img src=x> [e](f) **g** $h$ @triton\n\x1b[31mred\x1b[0m\x00 \\| ~~i~~ #1"


def lines(report: RetuneReport, **settings: int) -> list[str]:
    return markdown(report, MarkdownSettings(**settings)).splitlines()


def test_the_outcome_is_said_first() -> None:
    head = lines(RetuneReport(retune(planned=9)))[:8]
    assert head[0] == "# Retune 12 on nvidia-h200: 2 regressions, 1 not measured"
    assert head[2].startswith("**5 of 9 answers measured again: 2 unchanged, 1 order moved, ")
    assert head[4:] == [
        "- 2 regressions found (exit code 4), 2 not repaired.",
        "- Done: 1 replaced (1.052 x as fast), 1 retired, 1 confirmed.",
        "- Latencies on this card are 1.000 x those stored (median).",
        "- 3 not reached, since the budget was spent: the least valuable ones.",
    ]


def test_the_settings_that_are_on_are_said() -> None:
    settings = {"stale": True, "demand": False, "op": None, "problems": ["a_1", "b"], "threshold": 0.02}
    assert r"- Settings: stale, problems a\_1, b, threshold 0.02." in lines(RetuneReport(retune(settings=settings)))


def test_what_moved_is_a_row_with_both_latencies_and_what_was_done() -> None:
    text = markdown(RetuneReport(retune()))
    assert (
        "| `scale 256 x 4352 bf16` | slower: kernel or compiler | 10.00 us (9.99 - 10.01) | 11.10 us (11.09 - 11.11) | "
        "+11.0 % | 1.100 (1.099 - 1.101) | 0.991 (0.990 - 0.992) | kept |"
    ) in text.splitlines()
    assert "replaced by answer 71, 1.052 x as fast (1.050 - 1.054) |" in text
    assert "- changed: PyTorch 2.10.0, now 2.11.0" in text.splitlines()
    assert "scale 128 x 4352" not in text  # unchanged
    assert "scale 768 x 4352" not in text  # confirmed


def test_a_clean_night_is_short() -> None:
    text = markdown(RetuneReport(retune(*(finding(answer) for answer in range(1, 61)))))
    assert "# Retune 12 on nvidia-h200: no regressions" in text
    assert "- No regressions (exit code 0)." in text
    assert "What moved" not in text
    assert "Details" not in text
    assert len(text) < 1000


def test_environment_and_card_stand_side_by_side() -> None:
    before = reading(state=CardState(1980, 3201, 40, 300.0), marks=("contended",))
    other = reading(provenance=replace(before.provenance, tuner="0.0.9"))
    today = now(state=CardState(1400, 3201, 80, 310.5, ("thermal",)), marks=("throttled",))
    found = [finding(1, then=before, now=today), finding(2, then=before, now=today), finding(3, then=other)]
    text = lines(RetuneReport(retune(*found)))
    for row in (
        "| Triton | 3.6.0 | 3.7.1 |",
        "| tuner | 0.1.0 (2), 0.0.9 (1) | 0.1.0 |",
        "| host | | node-7 |",
        "| SM clock | 1,980 MHz | 1,400 MHz |",
        "| clocks lowered by |  | thermal (2) |",
        "| marks | contended (2) | throttled (2) |",
    ):
        assert row in text


def test_texts_of_others_are_read_as_text() -> None:
    found = finding(1, Cause.BROKEN, now=None, text=NASTY, error=NASTY, reasons=(NASTY,))
    missing = finding(2, Cause.NOT_MEASURED, now=None, error=NASTY)
    text = markdown(RetuneReport(retune(found, missing)))
    assert "\x1b" not in text
    assert "\x00" not in text
    row = next(line for line in text.splitlines() if line.startswith("| `scale 256"))
    assert row == (
        "| `scale 256 x 4352 bf16` | a\\|b \\`c\\` \\`\\`d\\`\\` \\<img src=x\\> \\[e\\](f) \\*\\*g\\*\\* \\$h\\$ "
        "@\u200btriton |"
    )
    block = text.split("```text\n")[1].split("\n```\n")[0]
    assert block == "a|b `c` ``d`` <img src=x> [e](f) **g** $h$ @triton\nred \\| ~~i~~ #1"


def test_a_fence_is_longer_than_those_in_the_error() -> None:
    text = markdown(RetuneReport(retune(finding(1, Cause.BROKEN, now=None, error="```\ninner\n````\n"))))
    assert "\n`````text\n```\ninner\n````\n`````\n" in text


def test_attributes_with_bars_and_ticks_stay_in_their_cell() -> None:
    odd = replace(SCALE, attributes=(replace(SCALE.attributes[0], choices=None, default=""),))
    problem = odd.problem({"M": 64, "layout": "a|b`c"})
    text = markdown(RetuneReport(retune(finding(1, Cause.ORDER, problem=problem))))
    assert any(
        line.startswith("| `` scale 64 x 64 bf16 layout=a\\|b`c `` | order moved |") for line in text.splitlines()
    )


@pytest.mark.parametrize(
    ("status", "said"), [("interrupted", "Interrupted (exit code 130)"), ("running", "3 not reached: ")]
)
def test_one_that_did_not_end_says_so(status: str, said: str) -> None:
    text = markdown(RetuneReport(retune(planned=9, status=status), left={1000: SCALE.problem({"M": 77})}))
    assert f", {status}\n" in text
    assert said in text
    assert "the same command continues" in text
    assert "## Not reached\n\n`scale 77 x 77 bf16`\n" in text


def test_the_history_of_what_moved_is_a_chart() -> None:
    generations = [generation(20 + month, 12 - month / 2, f"2026-0{month}-01T02:00:00") for month in (1, 2)]
    text = markdown(RetuneReport(retune(), {2: generations}))
    assert 'x-axis ["01-01", "02-01", "then", "now"]' in text
    assert "    line [11.5, 11, 10, 11.1]\n" in text
    assert text.count("```mermaid") == 2
    assert "Latencies in us, oldest first: answer (blue), default (orange), vendor (green)." in text


def test_a_thousand_regressions_stay_below_the_limit_of_a_job_summary() -> None:
    """Rows and details are left out, and their numbers said."""
    found = [regression(answer) for answer in range(1, 1001)]
    text = markdown(RetuneReport(retune(*found)))
    assert len(text.encode()) <= 1000 * 1024
    assert text.count("```mermaid") == 20
    assert text.endswith("more are left out for size; `retune.json` has them.\n")
    assert text.count("\n| `scale ") == 1000
    small = markdown(RetuneReport(retune(*found)), MarkdownSettings(most_bytes=20_000))
    assert len(small.encode()) <= 20_000
    rows = small.count("\n| `scale ")
    assert 20 < rows < 100
    assert f"{1000 - rows} more rows are left out for size" in small
    assert "## Environment" in small


def regression(answer: int) -> Finding:
    return finding(answer, Cause.BROKEN, Action.KEPT, now=now(), error="error \u00fc\n" * 2000)
