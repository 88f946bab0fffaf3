"""The coverage page: states of problems, the cells of the map, filters, and the sorted table."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from helpers import A100, H200
from page_site import content, html, site_of
from stored import COMPARISON, HERE, SCALE, SECONDS, answer, answered, started

from tuner.api.pages.covered import (
    Figures,
    Part,
    Row,
    Wanted,
    axes_of,
    by_concern,
    colours_of,
    parts_of,
    rows_of,
    vendor_by_medians,
    vendor_of,
)
from tuner.api.pages.missed import Missed
from tuner.api.pages.plots import State
from tuner.api.pages.served import Served
from tuner.api.pages.texts import ratio
from tuner.db.store import Store
from tuner.errors import UnknownName, UsageError
from tuner.kernels.spec import Dim, Problem
from tuner.records import Answer, Environment, RooflineLimits, StoredAnswer
from tuner.report.vendor import vendor_speedup

NOW = datetime(2026, 11, 30, tzinfo=UTC)


def problem(M: int, **others: object) -> Problem:
    return SCALE.problem({"M": M, "N": 4096, **others})


def stored(id: int, given: Answer) -> StoredAnswer:
    return StoredAnswer(id, given, HERE, "2026-11-28T00:00:00.000+00:00", run_id=id)


def rows() -> list[Row]:
    """Return a problem in each state."""
    tuned, default, stale = (answer(problem(M)) for M in (64, 128, 256))
    exact = [(stored(1, tuned), True), (stored(2, replace(default, kind="default", speedup=1.0)), True)]
    served = Served([*exact, (stored(3, stale), False)], 2)
    misses = [Missed(problem(M), H200.id, M == 512, "", count=M) for M in (512, 1024, 2048)]
    return rows_of(served, misses)


class TestRows:
    def test_each_has_a_state(self) -> None:
        found = {row.problem["M"]: row.state for row in rows()}
        assert found == {
            64: State.TUNED,
            128: State.DEFAULT,
            256: State.STALE,
            512: State.NEIGHBOUR,
            1024: State.MISSED,
            2048: State.MISSED,
        }

    def test_those_of_most_concern_come_first(self) -> None:
        assert [row.problem["M"] for row in sorted(rows(), key=by_concern)] == [2048, 1024, 256, 128, 512, 64]

    def test_figures_of_a_missed_problem_are_not_known(self) -> None:
        figures = Figures(lambda device: RooflineLimits(1000.0, {"bf16": 100.0}, {}), NOW)
        missed = rows()[-1]
        assert (missed.gain, figures.vendor(missed), missed.latency_us, missed.asked) == (None, None, None, 2048)
        assert (figures.share(missed), figures.age_days(missed)) == (None, None)

    def test_figures_of_an_answer(self) -> None:
        figures = Figures(lambda device: RooflineLimits(1000.0, {"bf16": 100.0}, {}), NOW)
        given = replace(answer(problem(64)), vendor_latency_us=9.0, bytes=5_000_000, flops=0)
        row = Row(problem(64), State.TUNED, stored(1, given))
        assert (row.gain, vendor_by_medians(row), row.asked) == (1.25, 0.9, None)
        assert figures.share(row) == pytest.approx(0.5)  # 5 us of 10 us
        assert figures.age_days(row) == pytest.approx(2.0)
        assert vendor_of([row]) == "torch"

    def test_a_share_is_not_known_without_the_limit_of_the_matmul(self) -> None:
        given = replace(answer(problem(64)), bytes=5_000_000, flops=10**9)
        row = Row(problem(64), State.TUNED, stored(1, given))
        for limits in (RooflineLimits(1000.0, {}, {}), None):
            assert Figures(lambda device, known=limits: known, NOW).share(row) is None  # type: ignore[misc]

    def test_each_colour_has_a_scale(self) -> None:
        for colour in colours_of(Figures(lambda device: None, NOW), "torch").values():
            assert colour.scale([1.0, 2.0]).label
            assert colour.scale([]).label
            assert [colour.value(row) for row in rows()][-1] is None


class TestFilters:
    def test_values_words_states_and_ranges(self) -> None:
        fp16, bf16 = (Row(problem(64, dtype=dtype), State.TUNED) for dtype in ("fp16", "bf16"))
        assert Wanted({"dtype": "fp16"}).has(fp16)
        assert not Wanted({"dtype": "fp16"}).has(bf16)
        assert Wanted({}, ("m=64", "bf16")).has(bf16)
        assert not Wanted({}, ("m=64", "fp16")).has(bf16)
        assert not Wanted({}, (), State.STALE).has(bf16)
        assert Wanted({}, ranges={"M": (64, 127)}).has(bf16)
        assert not Wanted({}, ranges={"M": (65, 127)}).has(bf16)
        assert not Wanted({"no": "x"}).has(bf16)

    def test_parts_are_dims_then_the_dtype_and_attributes(self) -> None:
        assert [(part.name, list(part.values), part.is_dim) for part in parts_of(rows())] == [
            ("M", [64, 128, 256, 512, 1024, 2048], True),
            ("N", [4096], True),
            ("dtype", ["bf16"], False),
            ("layout", ["nn"], False),
        ]

    def test_axes_are_the_dims_with_the_most_sizes(self) -> None:
        def parts(**sizes: int) -> list[Part]:
            return [Part(name, range(1, count + 1), True) for name, count in sizes.items()]

        assert axes_of(parts(M=2, N=9, K=3)) == ("N", "K")
        assert axes_of(parts(M=3, N=3, K=3)) == ("M", "N")
        assert axes_of(parts(M=3)) == ("M", None)
        assert axes_of([]) == (None, None)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
class TestPage:
    def test_an_empty_store_says_so(self, store: Store) -> None:
        assert "No answer is stored yet, and nothing was asked for." in html(site_of(store), "coverage")

    def test_it_begins_with_the_op_and_card_with_the_most_answers(self, store: Store) -> None:
        answered(store, answer(problem(64)), replace(HERE, device=A100))
        for M in (64, 128):
            answered(store, answer(problem(M)))
        assert "Coverage of <bdi>scale</bdi> on <bdi>nvidia-h200</bdi>" in html(site_of(store), "coverage")
        assert "on <bdi>nvidia-a100" in html(site_of(store), "coverage", device=A100.id)

    def test_a_card_that_was_only_asked_about_is_shown(self, store: Store) -> None:
        answered(store, answer(problem(64)))
        store.count_requests({("scale", problem(65).text, "nvidia-b200"): 7})
        shown = html(site_of(store), "coverage", op="scale", device="nvidia-b200")
        assert "asked and missed" in shown
        assert "scale 65 x 4096 bf16" in shown

    def test_cells_and_rows_lead_to_the_problem(self, store: Store) -> None:
        answered(store, answer(problem(64)))
        shown = html(site_of(store), "coverage")
        address = "../pages/problem?op=scale&amp;M=64&amp;N=4096&amp;dtype=bf16&amp;device=nvidia-h200"
        assert len(re.findall(re.escape(f'href="{address}"'), shown)) == 2

    def test_a_cell_of_several_problems_leads_to_their_list(self, store: Store) -> None:
        for dtype in ("bf16", "fp16"):
            answered(store, answer(problem(64, dtype=dtype)))
        answered(store, answer(problem(128)))
        site = site_of(store)
        assert "x_range=64-64&amp;y_range=4096-4096#problems" in html(site, "coverage")
        listed = content(site, "coverage", x_range="64-64", y_range="4096-4096").values["table"].rows
        assert [row.problem["M"] for row in listed] == [64, 64]

    def test_missed_problems_that_are_left_out_are_mentioned(self, store: Store) -> None:
        answered(store, answer(problem(1)))
        note = "Of the missed problems, the 500 most frequent ones are shown."
        store.count_requests({("scale", problem(size).text, H200.id): 2 for size in range(1, 500)})
        assert note not in html(site_of(store), "coverage")
        store.count_requests({("scale", problem(9999).text, H200.id): 1})
        assert note in html(site_of(store), "coverage")

    def test_filters_hold_for_the_map_and_the_table(self, store: Store) -> None:
        for dtype in ("bf16", "fp16"):
            answered(store, answer(problem(64, dtype=dtype)))
        values = content(site_of(store), "coverage", at_dtype="fp16", at_layout="").values
        assert [row.problem.dtype for row in values["table"].rows] == ["fp16"]
        assert values["counts"] == [(State.TUNED, 1)]

    def test_a_stale_answer_says_why(self, store: Store) -> None:
        answered(store, answer(problem(64)))
        answered(store, answer(problem(128)), replace(HERE, source="edited", environment=Environment("3.7.1", "12.9")))
        answered(store, answer(problem(256)), replace(HERE, recorded="gemm-h200"))
        shown = html(site_of(store), "coverage")
        assert "source: tuned with 9f2c0a1b2c3d4e5f, the query has edited; triton: tuned with 3.6.0" in shown
        assert "recorded: replayed from gemm-h200, not measured here" in shown

    def test_both_axes_are_never_the_same_dim(self, store: Store) -> None:
        answered(store)
        for query, axes in (({"x": "N"}, ("N", "M")), ({"x": "N", "y": "N"}, ("N", "M")), ({"y": "M"}, ("M", "N"))):
            choice = content(site_of(store), "coverage", **query).values["choice"]
            assert (choice.x, choice.y) == axes

    def test_a_figure_that_no_problem_has_is_said(self, store: Store) -> None:
        answered(store)
        assert "No problem shown here has this figure: a search" in html(site_of(store), "coverage", colour="roofline")
        assert "No problem shown here" not in html(site_of(store), "coverage")

    def test_one_dim_alone_is_one_row_of_cells(self, store: Store) -> None:
        signature = replace(SCALE, op="one", dims=(Dim("M"),))
        about = signature.problem({"M": 64})
        run = store.start_run(signature, about, HERE, {})
        store.add_answer(run, answer(about), HERE, "trials", {}, COMPARISON)
        shown = html(site_of(store), "coverage")
        assert "Coverage of <bdi>one</bdi>" in shown
        assert 'name="y"' not in shown

    @pytest.mark.parametrize(
        ("query", "message"),
        [
            ({"x": "Q"}, "x is one of"),
            ({"y": "Q"}, "y is one of"),
            ({"colour": "pink"}, "colour is one of gain, vendor, roofline, age"),
            ({"sizes": "some"}, "sizes is one of grouped, each"),
            ({"x_range": "1-x"}, "x_range is two sizes like 16-31, not '1-x'"),
            ({"sort": "beauty"}, "sort is one of"),
            ({"at_Q": "1"}, "this page takes .*not 'only.Q'"),
            ({"after": "-1"}, "after is a whole number"),
            ({"find": "m " * 101}, "find has up to 200 characters, not 202; shorten it"),
        ],
    )
    def test_what_it_does_not_know_is_an_error(self, store: Store, query: dict[str, str], message: str) -> None:
        answered(store)
        with pytest.raises(UsageError, match=message):
            content(site_of(store), "coverage", op="scale", device=H200.id, **query)

    @pytest.mark.parametrize("query", [{"op": "<b>"}, {"device": "nvidia-none"}])
    def test_an_unknown_op_or_card_is_not_found(self, store: Store, query: dict[str, str]) -> None:
        answered(store)
        with pytest.raises(UnknownName):
            content(site_of(store), "coverage", **query)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_speed_up_over_the_vendor_is_that_of_the_answers_page(store: Store) -> None:
    given = replace(answer(problem(64)), vendor_latency_us=9.0)
    rounds = ((10.0, 12.5, 9.75), (10.1, 12.4, 10.1), (10.5, 12.4, 10.5))
    run = started(store, given.problem)
    store.add_answer(run, given, HERE, "trials", SECONDS, replace(COMPARISON, rounds=rounds))
    site = site_of(store)
    (stored,) = store.answers()
    found = vendor_speedup(store, stored)
    assert found is not None
    assert found.ratio > 0.97  # 0.9 by median latencies
    shown = f'<td class="number">{ratio(found.ratio)}</td>'
    assert shown in html(site, "coverage")
    assert shown in html(site, "coverage", colour="vendor")
    assert shown in html(site, "coverage", sort="vendor")
    assert ratio(found.ratio) in html(site, "problem", op="scale", **given.problem.stated, device=H200.id)
