"""Numbers and words as a person reads them."""

from __future__ import annotations

import pytest
from scripted import DEFAULT

from tuner.cli.text import failure_lines
from tuner.records import Outcome
from tuner.report.explanation import Failure
from tuner.report.text import bytes_text, configs_text, failures_text


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 configs"), (1, "1 config"), (2, "2 configs"), (1653, "1,653 configs")]
)
def test_configs_are_counted(count: int, text: str) -> None:
    assert configs_text(count) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (16, "16 B"), (1023, "1,023 B"), (1024, "1 KiB"), (65536, "64 KiB"), (232448, "227 KiB")],
)
def test_little_shared_memory_is_told_in_bytes(count: int, text: str) -> None:
    assert bytes_text(count) == text


def test_the_commonest_failure_is_told_first() -> None:
    assert failures_text({"crashed": 1, "timeout": 1234}) == "1,234 timeout, 1 crashed"


def test_the_example_of_a_failure_is_whole() -> None:
    why = "needs 253992 bytes of shared memory, a block has 232448, and neither fits in eighty columns"
    head, _ = failure_lines(Failure(Outcome.INFEASIBLE, 1, "compile", why, DEFAULT))
    assert head == f"      1  infeasible (compile): {why}"
