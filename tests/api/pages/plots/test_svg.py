from __future__ import annotations

from xml.etree.ElementTree import fromstring

import pytest

from tuner.api.pages.plots import Heading
from tuner.api.pages.plots.scales import Scale, log_scale, short, spread
from tuner.api.pages.plots.svg import cut, element, link, number

HOSTILE = "<script>alert('x')</script>\"&amp;\x00\x1b[31m\u202e\ud800\nnext"


def test_texts_and_attributes_are_escaped() -> None:
    made = element("g", HOSTILE, element("path", d="M0 0"), data_name=HOSTILE, class_=None)

    read = fromstring(made)

    assert read.text == "<script>alert('x')</script>\"&amp;\nnext"
    assert read.get("data-name") == "<script>alert('x')</script>\"&amp; next"
    assert read.keys() == ["data-name"]
    assert [child.tag for child in read] == ["path"]


def test_a_mark_without_an_address_is_no_link() -> None:
    assert link("", "x") == "<g>x</g>"
    assert link("/p?a=1&b=2", "x") == '<a href="/p?a=1&amp;b=2">x</a>'


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_coordinate_is_finite(value: float) -> None:
    with pytest.raises(ValueError, match="a coordinate is finite, not"):
        number(value)


def test_a_key_is_a_plain_name() -> None:
    with pytest.raises(ValueError, match="lower-case letters, digits and dashes"):
        Heading('a" onload="', "title", "description")


def test_a_long_text_is_cut_in_the_middle() -> None:
    assert cut("abcdefghij", 7) == "abc…hij"
    assert cut("abc", 7) == "abc"
    assert len(cut("x" * 10_000, 40)) == 40


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1234, "0.123"), (4.5678, "4.57"), (78.91, "78.9"), (100.0, "100"), (1234.5, "1,234"), (0, "0")],
)
def test_numbers_have_three_digits(value: float, text: str) -> None:
    assert short(value) == text


def test_ticks_are_round_and_within_the_range() -> None:
    assert Scale(53, 1346, 0, 1, is_log=True).ticks(5) == [100, 200, 500, 1000]
    assert Scale(0, 250, 0, 1).ticks(6) == [0, 50, 100, 150, 200, 250]
    assert Scale(5, 5, 0, 1).ticks() == [5]
    assert log_scale([3.0], 0, 100).at(3.0) == pytest.approx(50)
    with pytest.raises(ValueError, match="needs a value above 0"):
        log_scale([0.0, float("nan")], 0, 1)


def test_labels_do_not_overlap_and_stay_within_the_room() -> None:
    placed = spread([50, 51, 99, 100, 0], 10, 0, 100)

    assert sorted(placed) == placed[4:5] + placed[:4]
    assert all(later - earlier >= 10 for earlier, later in zip(sorted(placed), sorted(placed)[1:], strict=False))
    assert min(placed) >= 0
    assert max(placed) <= 100
    assert spread([], 10, 0, 1) == []
