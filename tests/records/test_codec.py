"""Records as JSON values."""

from __future__ import annotations

from fractions import Fraction

import pytest
from stored import measured

from tuner.records.codec import plain


def test_a_record_becomes_json_values() -> None:
    document = plain(measured(10.0))
    assert document["samples"] == [10.0, 10.0, 10.0]
    assert document["config"]["BLOCK"] == 128
    assert document["outcome"] == "ok"


@pytest.mark.parametrize("value", [Fraction(1, 3), b"bytes", object(), {1}], ids=lambda value: type(value).__name__)
def test_a_value_that_json_cannot_hold_is_an_error(value: object) -> None:
    with pytest.raises(TypeError, match=type(value).__name__):
        plain((1.0, value))
