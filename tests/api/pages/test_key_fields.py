"""The key of an answer beside a pasted one: what is read from a text, and what follows from each difference."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from stored import HERE, PROBLEM, SCALE, answer, answered

from tuner.api.pages.key import LONGEST_KEY, PastedKey, effect, key_fields, key_in, paste
from tuner.api.view import View, Watcher
from tuner.db.store import Store
from tuner.errors import UsageError
from tuner.records import StoredAnswer
from tuner.records.answer import IMPORTED

PARAMETERS = ("M", "N", "K", "dtype", "layout")
WHY = """{
  "op": "gemm",
  "problem": {"M": 4096, "N": 64, "dtype": "bf16", "layout": "nn"},
  "device": "nvidia-h200",
  "asked": {"triton": "3.7.1", "source": null, "policy": "cold-events-1"},
  "answers": [{"tuned_with": {"triton": "3.6.0", "source": "083aeae133bc05c6"}}]"""


@pytest.fixture
def stored() -> StoredAnswer:
    return StoredAnswer(7, answer(), HERE, "2026-11-29T18:47:00.000+00:00", 1)


@pytest.fixture
def view(tmp_path: Path) -> View:
    store = Store.open(tmp_path / "tuner.db")
    answered(store)
    watcher = Watcher(store, {}, lambda error: pytest.fail(str(error)))
    watcher.poll()
    store.close()
    return watcher.view


class TestReading:
    @pytest.mark.parametrize(
        ("text", "found"),
        [
            ("triton=3.6.0\ndriver: 580.95\n ptxas = '12.9'", {"triton": "3.6.0", "driver": "580.95", "ptxas": "12.9"}),
            ("M=4096 N=64 dtype=bf16, triton=3.7", {"M": "4096", "N": "64", "dtype": "bf16", "triton": "3.7"}),
            ("compared with triton 3.7.1, source 9f2c", {"triton": "3.7.1", "source": "9f2c"}),
            ("{'triton': '3.6.0', 'definition': None}", {"triton": "3.6.0"}),
            ('layout="n t" device=nvidia-h200', {"layout": "n t", "device": "nvidia-h200"}),
        ],
    )
    def test_names_and_values_are_found_in_any_form(self, text: str, found: dict[str, str]) -> None:
        assert key_in(text, PARAMETERS) == found

    def test_json_of_a_command_is_read_though_it_is_cut_off(self) -> None:
        found = {"op": "gemm", "M": "4096", "N": "64", "dtype": "bf16", "layout": "nn", "device": "nvidia-h200"}
        asked = {"triton": "3.7.1", "policy": "cold-events-1"}  # not what was found, nor its source
        assert key_in(WHY, PARAMETERS) == found | asked

    def test_a_text_without_a_field_is_refused(self) -> None:
        for text in ("hello", "tritons=3", "my-M=3", "triton=null"):
            with pytest.raises(UsageError, match="no field of a key was found; write one a line"):
                key_in(text, PARAMETERS)
        with pytest.raises(UsageError, match="a key has up to 4,000 characters, and this text has 4,001"):
            key_in("x" * (LONGEST_KEY + 1), PARAMETERS)


class TestConsequences:
    def test_each_field_has_the_consequence_of_the_lookups_rule(self, stored: StoredAnswer) -> None:
        for name in ("triton", "source", "definition", "driver", "ptxas"):
            assert effect(stored, name, "other") == "stale"
            assert effect(stored, name, stored.provenance.as_json()[name]) == "exact"
        assert effect(stored, "policy", "warm-graph-1") == "refused"

    def test_an_unknown_definition_is_not_compared(self, stored: StoredAnswer) -> None:
        unknown = replace(stored, provenance=replace(HERE, definition=""))
        assert effect(unknown, "definition", "other") == "exact"
        assert (
            "this answer does not state it" in {each.name: each.if_other for each in key_fields(unknown)}["definition"]
        )

    def test_without_a_pasted_key_the_fields_say_what_a_difference_would_do(self, stored: StoredAnswer) -> None:
        fields = {each.name: each for each in key_fields(stored)}
        assert list(fields)[:4] == ["op", "problem", "device", "triton"]
        assert fields["problem"].value == "M=4096 N=4096 dtype=bf16"
        assert fields["triton"].if_other.startswith("Stale")
        assert fields["policy"].if_other.startswith("Refused")
        assert {each.given for each in fields.values()} == {None}

    def test_an_imported_answer_is_compared_like_others(self, stored: StoredAnswer) -> None:
        imported = replace(stored, answer=replace(stored.answer, kind=IMPORTED))
        assert effect(imported, "triton", HERE.environment.triton) == "exact"


class TestPasting:
    def pasted(self, view: View, text: str) -> tuple[PastedKey, dict[str, str]]:
        shown = next(iter(view.tables["scale", "nvidia-h200"]))
        pasted = paste(text, view, shown, SCALE)
        return pasted, {each.name: each.consequence for each in key_fields(shown, pasted)}

    def test_a_key_is_looked_up(self, view: View) -> None:
        pasted, consequences = self.pasted(view, "M=4096 triton=3.7.1 source=9f2c0a1b2c3d4e5f")
        assert pasted.found is not None
        assert (pasted.found.match, pasted.found.stale) == ("stale", ("triton: tuned with 3.6.0, the query has 3.7.1",))
        stated = {"problem": "exact", "triton": "stale", "source": "exact"}
        assert consequences == {**dict.fromkeys(consequences, "not compared"), **stated}

    def test_another_policy_gets_no_answer(self, view: View) -> None:
        pasted, consequences = self.pasted(view, "policy=warm-graph-1")
        assert pasted.found is not None
        assert (pasted.found.match, pasted.found.stored, consequences["policy"]) == ("none", None, "refused")

    def test_another_problem_is_looked_up_with_what_the_key_leaves_out(self, view: View) -> None:
        pasted, consequences = self.pasted(view, "N=8")
        assert pasted.found is not None
        assert (pasted.found.problem.text, pasted.found.match) == ("scale M=4096 N=8 dtype=bf16", "none")
        assert consequences["problem"] == "another answer"

    @pytest.mark.parametrize(
        ("text", "error"),
        [
            ("op=gemm", "the key is of gemm, and this answer is of scale"),
            ("M=x", "M is a whole number from 1 to"),
            ("device=nvidia-l4 triton=3.6.0", "no device is called 'nvidia-l4'"),
            ("nothing", "no field of a key was found"),
        ],
    )
    def test_a_key_that_cannot_be_looked_up_says_why(self, view: View, text: str, error: str) -> None:
        pasted, consequences = self.pasted(view, text)
        assert pasted.found is None
        assert error in pasted.error
        if text.startswith("device"):
            assert (consequences["device"], consequences["triton"]) == ("another answer", "exact")


def test_the_problem_is_named_as_in_its_canonical_text() -> None:
    assert PROBLEM.text == "scale M=4096 N=4096 dtype=bf16"
