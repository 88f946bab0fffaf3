"""Comparisons of two readings: the interval of a quotient."""

from __future__ import annotations

from math import log, sqrt

import pytest

from tuner.records.readings import quotient


def test_the_quotient_by_an_exact_number_has_the_interval_of_the_other() -> None:
    found, interval = quotient((1.1, (1.08, 1.11)), (2.0, (2.0, 2.0)))
    assert found == pytest.approx(0.55)
    assert interval == pytest.approx((0.54, 0.555))


def test_distances_of_both_intervals_add_up_as_the_root_of_the_sum_of_squares() -> None:
    estimate = (1.0, (0.99, 1.02))
    found, (low, high) = quotient(estimate, estimate)
    assert found == 1.0
    assert log(high) == pytest.approx(-log(low))  # what is the upper end of one is the lower end of the other
    assert sqrt(2) * -log(0.99) < log(high) < sqrt(2) * log(1.02)
