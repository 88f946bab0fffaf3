from __future__ import annotations

import json
from itertools import pairwise
from math import inf, nan

import drawn
import pytest
from markupsafe import Markup

from tuner.api.pages.plots import (
    Bar,
    Heading,
    Level,
    Limits,
    RatePoint,
    Ratio,
    Rung,
    Spark,
    TrialPoint,
    bars,
    best_so_far,
    intervals,
    progress_points,
    ratio_points,
    roofline,
    scatter_ratio,
    sparkline,
)
from tuner.api.pages.plots.points import MAX_BYTES
from tuner.api.pages.plots.scales import tick_texts

HEADING = Heading("plot", "Plot", "What it shows.")
HOSTILE = "<img src=x onerror=alert(1)>\"'&\x00\u202e" + "x" * 10_000


def test_bars_have_their_values_beside_them() -> None:
    root = drawn.read(bars(HEADING, [Bar("BLOCK_N", 0.41, href="/b"), Bar("num_stages", 0.002)]))

    assert drawn.texts(root) == ["BLOCK_N", "41%", "num_stages", "< 1%"]
    widths = [float(node.get("width") or 0) for node in root.iter(f"{drawn.SVG}rect")]
    assert widths[0] > 50 * widths[1] > 0


def test_more_bars_than_shown_are_counted() -> None:
    root = drawn.read(bars(HEADING, [Bar(f"b{place}", 1.0) for place in range(30)], " us", most=10))

    assert drawn.texts(root)[-1] == "and 20 more"


def test_a_roofline_has_the_limits_and_each_point() -> None:
    points = [RatePoint("answer", "answer", 1e12, 1e9, 2000.0, "/p"), RatePoint("torch", "vendor", 1e12, 1e9, 2500.0)]

    root = drawn.read(roofline(HEADING, Limits(4000.0, 800.0, "bf16"), points))

    assert {"800 TFLOP/s bf16", "4 TB/s", "answer", "torch"} <= set(drawn.texts(root))
    assert "answer\n500 TFLOP/s, 500 GB/s\n62% of the roofline" in drawn.tooltips(root)
    assert drawn.marks(root, "answer")[0].tag == f"{drawn.SVG}path"


def test_a_problem_without_arithmetic_is_compared_with_the_bandwidth() -> None:
    root = drawn.read(roofline(HEADING, Limits(4000.0, 800.0), [RatePoint("answer", "answer", 0, 1e9, 500.0)]))

    assert drawn.texts(root) == ["answer", "2,000 GB/s", "copy limit", "4,000 GB/s"]


def test_the_best_so_far_only_falls_and_failures_have_a_row_by_kind() -> None:
    trials = [TrialPoint(float(place), 100.0 - place % 7, "ok", f"c{place}") for place in range(50)]
    trials += [TrialPoint(3.5, None, "compile_error", "bad"), TrialPoint(9.5, inf, "timeout", "slow")]

    root = drawn.read(best_so_far(HEADING, trials, "seconds", [Level("default", 97.0), Level("torch", nan)]))

    heights = [float(part.split("V")[1]) for part in (drawn.marks(root, "steps")[0].get("d") or "").split("H")[1:-1]]
    assert all(later >= earlier for earlier, later in pairwise(heights))
    assert {"1 compile error", "1 timeout", "94 us", "default", "seconds"} <= set(drawn.texts(root))
    assert len(drawn.marks(root, "failure")) == 2
    assert len(drawn.marks(root, "trial")) == 50


def test_a_search_in_which_nothing_ran_shows_its_failures() -> None:
    root = drawn.read(best_so_far(HEADING, [TrialPoint(0.0, None, "timeout", "slow")], "trial"))

    assert "No config ran so far." in drawn.texts(root)


def test_thousands_of_trials_are_thinned_on_the_page_and_whole_in_the_points() -> None:
    trials = [TrialPoint(place / 3, 50.0 + 1000 / (place + 1), "ok", HOSTILE) for place in range(3000)]

    root = drawn.read(best_so_far(HEADING, trials[::-1], "seconds"))
    document = json.loads(progress_points(trials, "seconds", [Level("torch", 60.0), Level("x", nan)]))

    assert len(drawn.marks(root, "better")) == 60  # each trial of this search is an improvement
    assert len(drawn.marks(root, "trial")) <= 460
    assert (drawn.marks(root, "steps")[0].get("d") or "").count("V") == 2999
    assert len(document["ys"][0]) == 3000
    assert document["ys"][1] == sorted(document["ys"][1], reverse=True)


def test_contenders_are_ordered_with_intervals_and_kinds() -> None:
    rungs = [
        Rung("b", 54.0, (53.8, 54.2), "answer"),
        Rung("torch", 60.0, None, "vendor"),
        Rung("a", 53.9, (53.7, 54.5)),
    ]

    root = drawn.read(intervals(HEADING, rungs))

    assert [text for text in drawn.texts(root) if text in ("a", "b", "torch")] == ["a", "b", "torch"]
    assert {"53.9 us", "54.0 us answer", "60.0 us"} <= set(drawn.texts(root))
    assert len(drawn.marks(root, "interval")) == 2
    assert len(drawn.marks(root, "band")) == 1


def test_a_sparkline_has_gaps_and_a_last_value() -> None:
    root = drawn.read(sparkline(HEADING, [Spark(5.0, "1"), Spark(None, "2"), Spark(4.0, "3", True), Spark(4.5, "4")]))

    assert (drawn.marks(root, "line")[0].get("d") or "").count("M") == 2
    assert len(drawn.marks(root, "ring")) == len(drawn.marks(root, "last")) == 1


def test_ratios_are_sorted_counted_and_named_at_both_ends() -> None:
    at = [0.9 + place / 100 for place in range(21)]
    ratios = [Ratio(f"p{place}", r, (r * 0.993, r * 1.007), f"/p{place}") for place, r in enumerate(at)]

    root = drawn.read(scatter_ratio(HEADING, ratios[::-1]))

    assert len(root.findall(f".//{drawn.SVG}a")) == 21
    assert {"▼ 10 slower", "2 same", "9 faster ▲", "p0", "p20"} <= set(drawn.texts(root))
    assert drawn.tooltips(root)[0] == "p0\n0.90x, 0.89x to 0.91x at 95 %"


def test_many_ratios_are_thinned_but_counted_whole() -> None:
    ratios = [Ratio(HOSTILE, 0.5 + place / 4000, href="/p") for place in range(8000)]

    root = drawn.read(scatter_ratio(HEADING, ratios))
    data = ratio_points(ratios)

    assert len(root.findall(f".//{drawn.SVG}a")) == 500
    assert len(data) < MAX_BYTES
    assert len(json.loads(data)["ys"][0]) == 4000


@pytest.mark.parametrize(
    "plot",
    [
        bars(HEADING, [Bar(HOSTILE, 1.0, HOSTILE, HOSTILE)]),
        roofline(HEADING, Limits(4000.0, 800.0, HOSTILE[:40]), [RatePoint(HOSTILE, "tie", 1e9, 1e6, 20.0, HOSTILE)]),
        best_so_far(
            HEADING, [TrialPoint(1.0, 5.0, "ok", HOSTILE, HOSTILE), TrialPoint(2.0, None, HOSTILE, "")], HOSTILE[:9]
        ),
        intervals(HEADING, [Rung(HOSTILE, 5.0, (4.0, 6.0), "", HOSTILE)]),
        sparkline(HEADING, [Spark(1.0, HOSTILE)]),
        scatter_ratio(HEADING, [Ratio(HOSTILE, 1.5, None, HOSTILE), Ratio(HOSTILE, nan), Ratio(HOSTILE, -1.0)]),
    ],
)
def test_hostile_texts_are_text(plot: Markup) -> None:
    root = drawn.read(plot)

    assert not root.findall(f".//{drawn.SVG}img")
    assert any(text.startswith("<img") for text in [*drawn.tooltips(root), *drawn.texts(root)])
    assert all(len(text) <= 72 for text in drawn.texts(root))


@pytest.mark.parametrize(
    "plot",
    [
        bars(HEADING, [Bar("x", nan)]),
        roofline(HEADING, Limits(4000.0, None), [RatePoint("x", "answer", 0, 1e9, inf)]),
        best_so_far(HEADING, [], "trial"),
        intervals(HEADING, [Rung("x", nan, None)]),
        sparkline(HEADING, [Spark(None, "x"), Spark(nan, "y")]),
        scatter_ratio(HEADING, [Ratio("p", inf)]),
    ],
)
def test_without_data_there_is_a_sentence(plot: Markup) -> None:
    assert plot.startswith('<p class="plot-empty">')


def test_a_ratio_whose_interval_holds_1_is_the_same_as_in_the_table() -> None:
    root = drawn.read(scatter_ratio(HEADING, [Ratio("p", 1.3, (0.9, 1.6)), Ratio("q", 0.7, (0.6, 1.2))]))
    assert {"▼ 0 slower", "2 same", "0 faster ▲"} <= set(drawn.texts(root))


def test_the_values_of_an_axis_differ() -> None:
    assert tick_texts([176.0, 176.5, 177.0]) == ["176.0", "176.5", "177.0"]
    assert tick_texts([50.0, 100.0]) == ["50", "100"]
    assert tick_texts([10000.25, 10000.5]) == ["10,000.2", "10,000.5"]
    root = drawn.read(intervals(HEADING, [Rung("a", 176.05, (175.8, 176.6)), Rung("b", 176.48, (176.3, 176.8))]))
    shown = [text for text in drawn.texts(root) if text.startswith("17") and "us" not in text]
    assert len(shown) == len(set(shown)) > 1
