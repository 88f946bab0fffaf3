"""Whole numbers on the command line and in files of shapes are written in the digits 0 to 9."""

from __future__ import annotations

from pathlib import Path

import pytest
from invoked import Invoked

NO_NUMBERS = ["\uff11\uff10", "\u0661\u0660", "1_0", "+10", " 10", "10 ", "1e1", "10.0", "0x10", "\u00b2", ""]
SEARCH = ("search", "softmax", "--M", "8192", "--N", "8192", "--dtype", "fp32")


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoked:
    return Invoked.alone(tmp_path, monkeypatch)


@pytest.mark.parametrize("text", NO_NUMBERS)
@pytest.mark.parametrize(
    "command", [(*SEARCH, "--trials"), (*SEARCH, "--seed"), ("jobs", "--limit"), ("show",), ("serve", "--port")]
)
def test_an_option(tuner: Invoked, command: tuple[str, ...], text: str) -> None:
    refused = tuner(*command, text).exception
    assert str(refused) == f"a whole number is written in the digits 0 to 9, not {text!r}"


@pytest.mark.parametrize("text", [text for text in NO_NUMBERS if text.strip() == text != ""])
def test_a_size(tuner: Invoked, text: str) -> None:
    rule = "softmax: M is a whole number from 1 to 2147483647, not"
    assert rule in str(tuner("search", "softmax", "--M", text, "--N", "8192").exception)
    (tuner.folder / "shapes.csv").write_text(f"M,N\n{text},8192\n", encoding="utf-8")
    assert rule in str(tuner("search", "softmax", "--shapes", "shapes.csv", "--trials", "5").exception)
