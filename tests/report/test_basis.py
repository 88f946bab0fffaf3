"""Answers that agree and are not verified, in each command that shows them; and options of open attributes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from called import LARGE, REFERENCE, SIZED, SMALL, UNSIZED, answered
from click.testing import Result
from invoked import Invoked
from stored import HERE

from tuner.db.store import Store

LABEL = "agreeing, not verified"
OF_SIZED = ("main_kernel", "--n", "64", "--k", "3", "--dtype", "fp32", "--y_dtype", "bf16")
OF_UNSIZED = ("main_kernel", "--n=64", "--k=None", "--act", str(UNSIZED.key["act"]), "--dtype=fp32", "--y_dtype=bf16")


@pytest.fixture
def tuner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoked:
    made = Invoked.alone(tmp_path, monkeypatch)
    with closing(Store.open(made.db)) as store:
        for call in (SIZED, UNSIZED):
            answered(store, call)
    return made


def text(result: Result) -> str:
    assert result.exception is None, result.exception
    return " ".join(result.output.split())


@pytest.mark.parametrize(("words", "config"), [(OF_SIZED, SMALL), (OF_UNSIZED, LARGE)], ids=["sized", "unsized"])
def test_best_says_so(tuner: Invoked, words: tuple[str, ...], config: dict[str, int]) -> None:
    shown = text(tuner("best", *words))
    assert f"BLOCK={config['BLOCK']}" in shown
    assert f"{LABEL}: the outputs are equal to those of other configs; there is no reference" in shown
    document = tuner.json("best", *words)
    assert (document["config"], document["basis"]) == (config, "agreement")


def test_strictly_it_is_a_miss_with_the_reason(tuner: Invoked) -> None:
    result = tuner("best", *OF_SIZED, "--strict", "--triton", "3.6.0")
    assert result.return_value == 1
    assert f"is refused: basis: {LABEL}: its outputs were compared with those of other configs" in text(result)
    assert "to tune it: tuner search --captured main_kernel" in text(result)


def test_list_explain_why_and_forget_take_them(tuner: Invoked) -> None:
    listed = text(tuner("list"))
    assert listed.count(f"x default, {LABEL}") == 2
    assert 'main_kernel n=64 dtype=fp32 k=None act="a [b] \u00fc" y_dtype=bf16 on nvidia-h200' in listed
    explained = text(tuner("explain", *OF_UNSIZED))
    assert LABEL in explained
    assert "Interleaved comparison" in explained
    assert 'act="a [b] \u00fc"' in text(tuner("show", "2"))
    assert "answer 1 serves, and is exact" in text(tuner("why", *OF_SIZED))
    near = text(tuner("why", *OF_UNSIZED[:2], "--k=None", "--act=[/]", "--dtype=fp32"))
    assert "act: tuned a [b] \u00fc, the query has [/]" in near
    assert tuner.json("forget", *OF_UNSIZED[:3])["answers"][0]["id"] == 2
    assert LABEL not in text(tuner("best", *OF_UNSIZED))


def test_a_verified_answer_has_no_label(tuner: Invoked) -> None:
    with closing(Store.open(tuner.db)) as store:
        answered(store, SIZED, HERE, basis=REFERENCE)
    assert LABEL not in text(tuner("best", *OF_SIZED))
    assert tuner("best", *OF_SIZED, "--strict", "--triton", "3.6.0").return_value == 0
    assert tuner.json("best", *OF_SIZED)["basis"] == "reference"
    assert text(tuner("list")).count(LABEL) == 1


def test_the_options_are_those_of_both(tuner: Invoked) -> None:
    shown = text(tuner("best", "main_kernel", "--help"))
    assert "--n SIZE" in shown
    assert "--act TEXT any text" in shown
    assert "--y_dtype TEXT" in shown
    assert str(tuner("best", "main_kernel", "--n=64", f"--act={'x' * 201}").exception).startswith(
        "main_kernel: act is a text of up to 200 printable characters, not 'xxx"
    )


def test_the_page_of_an_explanation_says_so(tuner: Invoked) -> None:
    pytest.importorskip("plotly")
    text(tuner("explain", *OF_SIZED, "--plot", "a.html"))
    page = (tuner.folder / "a.html").read_text(encoding="utf-8")
    assert f"<p>{LABEL}: the outputs are equal to those of other configs; there is no reference</p>" in page
