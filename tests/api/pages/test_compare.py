"""The compare page: ratios and their direction, sides of each kind, and the CSV."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from io import StringIO
from typing import Any

import pytest
from helpers import A100, H200
from page_site import content, data, html, site_of
from retuned import finding, now, stored_retune
from stored import HERE, SCALE, answer, answered, config

from tuner.api.pages.compared import (
    Entry,
    Pair,
    Summary,
    Verdict,
    entries_of,
    entries_of_night,
    pairs_of,
    verdict_of,
)
from tuner.api.pages.sides import Side
from tuner.db.store import Store
from tuner.errors import UnknownName, UsageError
from tuner.kernels.spec import Problem
from tuner.records import Environment, Interval, Provenance, StoredAnswer
from tuner.records.retune import Action, Cause, Retune

NEWER = replace(HERE, environment=Environment("3.7.1", "12.9", "2.11.0", "590.1"))
ON_A100 = replace(HERE, device=A100)


def problem(M: int) -> Problem:
    return SCALE.problem({"M": M, "N": 4096})


def entry(
    latency_us: float | None = 10.0, interval: Interval | None = (9.95, 10.05), block: int = 128, policy: str = "cold"
) -> Entry:
    return Entry(problem(64), config(block), latency_us, interval, policy)


def pair(left: Entry | None, right: Entry | None) -> Pair:
    sides = ({} if each is None else {problem(64).text: each} for each in (left, right))
    (found,) = pairs_of(*sides)
    return found


class TestPairs:
    def test_a_ratio_above_1_is_a_faster_right_side(self) -> None:
        found = pair(entry(20.0, (19.9, 20.1)), entry(10.0))
        assert (found.ratio, found.verdict) == (2.0, Verdict.FASTER)
        assert found.interval is not None
        assert found.interval[0] < 2 < found.interval[1]
        assert pair(entry(10.0), entry(20.0, (19.9, 20.1))).verdict is Verdict.SLOWER

    def test_a_difference_within_the_noise_is_none(self) -> None:
        assert pair(entry(10.5, (9.0, 12.0)), entry(10.0)).verdict is Verdict.SAME
        assert verdict_of(1.02, (0.99, 1.05)) is Verdict.SAME
        assert verdict_of(1.009, (1.008, 1.01)) is Verdict.SAME
        assert verdict_of(1.02, None) is Verdict.FASTER
        assert verdict_of(0.98, (0.97, 0.99)) is Verdict.SLOWER

    @pytest.mark.parametrize("interval", [None, (0.0, 11.0), (11.0, 12.0), (9.0, float("inf"))])
    def test_without_a_sound_interval_the_ratio_has_none(self, interval: Interval | None) -> None:
        found = pair(entry(20.0, interval), entry(10.0))
        assert (found.ratio, found.interval, found.verdict) == (2.0, None, Verdict.FASTER)

    def test_latencies_of_two_policies_are_not_compared(self) -> None:
        assert pair(entry(), entry(policy="warm")).verdict is Verdict.UNKNOWN
        assert pair(entry(), entry(None, None)).verdict is Verdict.UNKNOWN
        assert pair(entry(), entry(policy="warm")).ratio is None

    def test_a_config_that_moved_is_named_by_its_knobs(self) -> None:
        assert pair(entry(), entry()).moved == ()
        found = pair(entry(block=64), entry(block=256))
        assert found.is_moved
        assert found.moved == ("BLOCK 64, then 256",)

    def test_a_problem_of_one_side_is_kept(self) -> None:
        left, right = pair(entry(), None), pair(None, entry())
        assert (left.verdict, right.verdict) == (Verdict.ONLY_LEFT, Verdict.ONLY_RIGHT)
        assert (left.right_us, right.left_us, left.is_moved, right.moved) == (None, None, False, ())

    def test_the_summary_counts_them(self) -> None:
        faster, slower = pair(entry(20.0, None), entry()), pair(entry(), entry(20.0, None, 64))
        found = Summary.of([faster, slower, pair(entry(), entry()), pair(entry(), None), pair(None, entry())])
        assert (found.compared, found.faster, found.slower, found.moved) == (3, 1, 1, 1)
        assert (found.only_left, found.only_right) == (1, 1)
        assert found.mean == pytest.approx(1.0)
        assert Summary.of([pair(entry(), None)]).mean is None


class TestEntries:
    def test_the_answer_that_serves_is_compared(self) -> None:
        several = [
            StoredAnswer(id, answer(problem(64), latency_us), made, "", run_id=id)
            for id, latency_us, made in ((1, 10.0, HERE), (2, 9.0, NEWER), (3, 11.0, HERE))
        ]
        assert [each.latency_us for each in entries_of(several).values()] == [11.0]
        assert [each.latency_us for each in entries_of(several, "3.7.1").values()] == [9.0]
        assert entries_of(several, "3.5.0") == {}

    def test_a_night_has_what_it_measured(self) -> None:
        replaced = finding(
            3, Cause.ORDER, Action.REPLACED, now=now(10.0), new_config=config(256), gain=1.25, gain_interval=(1.2, 1.3)
        )
        broken = finding(4, Cause.BROKEN, now=None)
        night = Retune(1, H200.id, {}, (), {}, "done", "", None, (finding(1, now=now(12.0)), replaced, broken))
        found = list(entries_of_night(night, "scale").values())
        assert [each.latency_us for each in found] == [12.0, 8.0]
        assert [each.config["BLOCK"] for each in found] == [128, 256]
        assert found[1].interval_us is not None
        assert found[1].interval_us[0] < 8.0 < found[1].interval_us[1]
        assert entries_of_night(night, "gemm") == {}


def two_cards(store: Store) -> None:
    for M in (64, 128, 256):
        answered(store, answer(problem(M), 10.0))
        answered(store, answer(problem(M), 20.0 if M < 256 else 5.0), ON_A100)
    answered(store, answer(problem(512)))


def sides(store: Store, **query: object) -> tuple[Side, Side]:
    choice: Any = content(site_of(store), "compare", **query).values["choice"]
    return choice.left, choice.right


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
class TestSides:
    def test_two_cards_come_first(self, store: Store) -> None:
        two_cards(store)
        answered(store, answer(problem(64)), NEWER)
        assert sides(store) == (Side(A100.id), Side(H200.id))

    def test_then_two_versions_of_triton(self, store: Store) -> None:
        for made in (HERE, NEWER):
            answered(store, answer(problem(64)), made)
        assert sides(store) == (Side(H200.id, "3.6.0"), Side(H200.id, "3.7.1"))

    def test_then_two_nights(self, store: Store) -> None:
        first, second = stored_retune(store), stored_retune(store)
        assert sides(store) == (Side(H200.id, night=first), Side(H200.id, night=second))

    def test_else_both_are_the_same(self, store: Store) -> None:
        answered(store)
        assert sides(store) == (Side(H200.id), Side(H200.id))
        assert "Both sides are the same." in html(site_of(store), "compare")

    def test_a_side_is_a_state_of_the_past(self, store: Store) -> None:
        first = answered(store, answer(problem(64), 10.0))
        answered(store, answer(problem(64), 5.0))
        uuid = store.tip().uuid
        for snapshot in (first, f"{uuid}:{first}"):
            values = content(site_of(store), "compare", left=H200.id, left_snapshot=snapshot).values
            (row,) = values["table"].rows
            assert (row.left_us, row.right_us, row.ratio) == (10.0, 5.0, 2.0)
        store.forget([first])
        values = content(site_of(store), "compare", left=H200.id, left_snapshot=first).values
        assert [row.left_us for row in values["table"].rows] == [10.0]

    def test_a_night_is_on_its_card(self, store: Store) -> None:
        night = stored_retune(store)
        left, _ = sides(store, op="scale", left=A100.id, left_night=night)
        assert left == Side(H200.id, night=night)

    @pytest.mark.parametrize(
        ("query", "error", "message"),
        [
            ({"left": "nvidia-none"}, UnknownName, "no device is called 'nvidia-none'"),
            ({"left_triton": "9.9"}, UnknownName, "no answer was found with Triton '9.9'; there are 3.6.0"),
            ({"right_night": "7"}, UnknownName, "there is no retune 7"),
            ({"right_night": "7", "right_triton": "3.6.0"}, UsageError, "a night has measurements of its own"),
            ({"left_snapshot": "other:1"}, UsageError, "left_snapshot names a state of this store"),
            ({"left_snapshot": "999"}, UsageError, "left_snapshot is the id of an answer, up to 1, not '999'"),
            ({"left_snapshot": "\u0661"}, UsageError, "left_snapshot is the id of an answer"),
            ({"left_snapshot": "0" * 12 + "9" * 5000}, UsageError, "left_snapshot is the id of an answer"),
            ({"find": "m " * 101}, UsageError, "find has up to 200 characters, not 202; shorten it"),
            ({"show": "all"}, UsageError, "show is one of both, moved, faster"),
            ({"op": "<b>"}, UnknownName, "no op is called"),
            ({"middle": "x"}, UsageError, "this page takes op, left"),
        ],
    )
    def test_what_it_does_not_know_is_an_error(
        self, store: Store, query: dict[str, str], error: type[Exception], message: str
    ) -> None:
        answered(store)
        with pytest.raises(error, match=message):
            content(site_of(store), "compare", **query)


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
class TestPage:
    def test_an_empty_store_says_so(self, store: Store) -> None:
        site = site_of(store)
        assert "No answer is stored yet." in html(site, "compare")
        assert data(site, "compare.csv").body.decode().startswith("op,left,")
        assert json.loads(data(site, "compare.json").body)["ys"] == [[]]

    def test_it_counts_lists_and_plots(self, store: Store) -> None:
        two_cards(store)
        site = site_of(store)
        shown = html(site, "compare")
        assert "nvidia-a100-sxm4-80gb" in shown
        assert "2.000\u00d7" in shown
        assert 'class="plot plot-ratios' in shown
        listed = content(site, "compare", sort="-ratio").values["table"].rows
        assert [row.ratio for row in listed] == [2.0, 2.0, 0.5]
        only = content(site, "compare", show="only right").values["table"].rows
        assert [row.problem["M"] for row in only] == [512]
        assert content(site, "compare", show="slower", find="M=128").values["table"].rows == []

    def test_the_csv_has_all_rows_of_the_table(self, store: Store) -> None:
        two_cards(store)
        found = data(site_of(store), "compare.csv", sort="-ratio", show="both")
        assert (found.media_type, found.file) == ("text/csv", "compare-scale.csv")
        rows = list(csv.DictReader(StringIO(found.body.decode(), newline="")))
        assert [float(row["ratio"]) for row in rows] == [2.0, 2.0, 0.5]
        assert (rows[0]["op"], rows[0]["M"], rows[0]["dtype"], rows[0]["layout"]) == ("scale", "64", "bf16", "nn")
        assert (rows[0]["left"], rows[0]["right"]) == (A100.id, H200.id)
        assert (rows[0]["left_latency_us"], rows[0]["right_latency_us"]) == ("20.0", "10.0")
        assert rows[2]["verdict"] == "slower"

    def test_the_points_are_those_of_the_plot(self, store: Store) -> None:
        two_cards(store)
        found = data(site_of(store), "compare.json")
        assert found.media_type == "application/json"
        assert json.loads(found.body)["ys"] == [[0.5, 2.0, 2.0]]


def test_labels_say_what_a_side_is() -> None:
    made: Provenance = HERE
    assert Side(made.device.id).label == "nvidia-h200"
    assert Side("x", "3.6.0", None, 7).label == "x, Triton 3.6.0, as of answer 7"
    assert Side("x", night=3).label == "night 3 on x"
    assert Side("x", night=3).fields("left") == {
        "left": "x", "left_triton": None, "left_night": 3, "left_snapshot": None
    }  # fmt: skip
