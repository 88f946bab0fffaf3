"""Columns of knobs: numbers by value, what has no order, and knobs of thousands of choices."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from tuner.kernels.spec import Value
from tuner.search.covariance import Floats, blocks, coded


def _distances(columns: Floats) -> Floats:
    return np.asarray(((columns[:, None] - columns) ** 2).sum(2))


def test_numbers_are_ranked_by_value() -> None:
    codes, choices = coded([3, 1, 2.5, 3])
    assert choices == [1, 2.5, 3]
    assert codes.tolist() == [2, 0, 1, 2]
    ranks, _ = next(blocks(choices))
    assert ranks.ravel().tolist() == [0.0, 0.5, 1.0]


def test_none_among_numbers_has_a_place_of_its_own() -> None:
    _, choices = coded([None, 8, 1, 2])
    assert choices == [1, 2, 8, None]
    ranks, kinds, single = (columns for columns, _ in blocks(choices))
    assert ranks.ravel().tolist() == [0.0, 0.5, 1.0, 0.5]
    assert _distances(kinds)[:3, :3].max() == 0
    assert _distances(kinds)[3, :3] == pytest.approx(1)
    assert _distances(single) == pytest.approx(1 - np.eye(4))


@pytest.mark.parametrize("values", [[True, False], ["b", "a", "c"], [None, True, "x"], [None, 4]])
def test_what_has_no_order_differs_by_one(values: list[Value]) -> None:
    (columns, _), *others = blocks(coded(values)[1])
    assert not others
    assert _distances(columns) == pytest.approx(1 - np.eye(len(values)))


@pytest.mark.parametrize("values", [range(40_000), [f"choice {number}" for number in range(5_000)]])
def test_a_knob_of_thousands_of_choices_takes_no_square_matrix(values: list[Value]) -> None:
    tracemalloc.start()
    codes, choices = coded([*values])
    shapes = [columns.shape for columns, _ in blocks(choices)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(set(codes.tolist())) == len(choices) == len(values)
    assert all(width <= 64 for _, width in shapes)
    assert peak < 16e6


def test_many_strings_still_differ_by_about_one() -> None:
    (columns, _), *_ = blocks(coded([f"choice {number}" for number in range(300)])[1])
    apart = _distances(columns)[np.triu_indices(300, 1)]
    assert apart.mean() == pytest.approx(1, abs=0.01)
    assert apart.min() > 0.4
    assert apart.max() < 1.6
