"""`tuner history`, `rollback`, `pin` and `unpin`, on the generations of one problem."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from found import finding
from helpers import H200
from stored import COMPARISON, HERE, PROBLEM, SCALE, SECONDS, answer, answered, config, started

from tuner.cli.history import command as history
from tuner.cli.list import command as list_command
from tuner.cli.pin import command as pin
from tuner.cli.rollback import command as rollback
from tuner.cli.unpin import command as unpin
from tuner.db.import_rules import ImportedAnswer
from tuner.db.store import Store
from tuner.errors import NothingFound, UsageError
from tuner.kernels.spec import Problem
from tuner.records import IMPORTED, Answer
from tuner.records.retune import Action, Cause, Finding

NEWER = replace(HERE, environment=replace(HERE.environment, triton="3.7.1"))
OF = ("scale", "--M", "4096")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """Yield a store with three generations; a retune replaced the second by the third."""
    monkeypatch.setattr("tuner.measure.device.count", lambda: 0)
    made = Store.open(tmp_path / "tuner.db")
    answered(made, generation(64))
    second = answered(made, generation(128), NEWER)
    retune = made.retunes.start(H200.id, {"all": True}, [second], {"triton": "3.7.1"})

    def found(new: int) -> Finding:
        why = replace(finding(second), cause=Cause.ORDER, action=Action.REPLACED, text="the runner-up is 3 % faster")
        return replace(why, new_answer_id=new)

    made.add_answer(
        started(made, provenance=NEWER),
        generation(256),
        NEWER,
        "trials",
        SECONDS,
        COMPARISON,
        retune=retune,
        finding=found,
    )
    yield made
    made.close()


def generation(block: int, problem: Problem = PROBLEM) -> Answer:
    return replace(answer(problem, latency_us=float(block)), config=config(block))


def run(command: Any, store: Store, *words: str) -> int:
    return int(command.main([*words, "--db", str(store._database)], standalone_mode=False) or 0)


def printed(command: Any, store: Store, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Return the document that a command prints."""
    capsys.readouterr()
    assert run(command, store, *words, "--json") == 0
    return json.loads(capsys.readouterr().out)


class TestHistory:
    def test_each_generation_says_what_changed_and_what_made_it(
        self, store: Store, capsys: pytest.CaptureFixture[str]
    ) -> None:
        store.pins.add(3, "tested")
        assert run(history, store, *OF) == 0
        lines = capsys.readouterr().out.splitlines()
        heads = [line.split("UTC  ")[1] for line in lines if "UTC  " in line]
        assert heads == [
            "tuned, 64.00 us (63.90 - 64.10), 1.250 x default",
            "tuned, 128.00 us (127.90 - 128.10), 1.250 x default",
            "tuned, 256.00 us (255.90 - 256.10), 1.250 x default; serves; pinned (tested)",
        ]
        assert lines[0].endswith("on nvidia-h200")
        assert "   triton 3.7.1, before 3.6.0" in lines
        assert "   retune 1: order moved, replaced: the runner-up is 3 % faster" in lines

    def test_the_document_has_all_of_it(self, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
        store.forget([1])
        document = printed(history, store, capsys, *OF)
        assert (document["device"], document["serves"], document["pinned"]) == (H200.id, 3, None)
        first, second, third = document["generations"]
        assert [each["id"] for each in document["generations"]] == [1, 2, 3]
        assert (first["forgotten_at"] is None, second["changed"]) == (False, ["triton 3.7.1, before 3.6.0"])
        assert second["retune"] is None
        assert third["retune"] == {
            "id": 1,
            "cause": "order moved",
            "action": "replaced",
            "text": "the runner-up is 3 % faster",
        }
        assert third["config"] == dict(config(256))

    def test_a_problem_without_answers_has_none(self, store: Store) -> None:
        with pytest.raises(NothingFound, match=r"no answer was ever stored for scale M=64 .*; tuner search scale"):
            run(history, store, "scale", "--M", "64")


class TestRollback:
    def test_the_one_before_serves_again(self, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
        assert run(rollback, store, *OF) == 0
        shown = capsys.readouterr()
        assert "128.00 us (127.90 - 128.10), measured with Triton 3.7.1" in shown.out
        assert "Answer 4 serves the config of answer 2." in shown.err
        document = printed(history, store, capsys, *OF)
        assert (document["serves"], document["generations"][-1]["restored"]) == (4, 2)

    def test_again_it_takes_that_back(self, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
        run(rollback, store, *OF)
        document = printed(rollback, store, capsys, *OF)
        assert (document["answer"], document["restored"], document["replaced"]) == (5, 3, 4)
        assert document["config"] == dict(config(256))

    def test_any_other_is_named_by_its_id(self, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
        document = printed(rollback, store, capsys, *OF, "--to", "1")
        assert (document["restored"], document["latency_us"]) == (1, 64.0)
        with pytest.raises(UsageError, match=r"--to names an answer to scale M=4096 .*: 1, 2, 3, 4, not 9"):
            run(rollback, store, *OF, "--to", "9")

    def test_the_same_config_and_imported_ones_are_passed_over(self, store: Store) -> None:
        other = SCALE.problem({"M": 64})
        answered(store, generation(64, other))
        store.import_answers([ImportedAnswer(SCALE, Answer(other, IMPORTED, config(128)), NEWER, "x.json")])
        answered(store, generation(64, other), NEWER)
        with pytest.raises(NothingFound, match="no earlier answer with another config than that of answer 6"):
            run(rollback, store, "scale", "--M", "64")

    def test_list_and_best_say_so(self, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
        from tuner.cli.best import command as best

        run(rollback, store, *OF)
        capsys.readouterr()
        run(list_command, store)
        assert "restored from answer 2" in capsys.readouterr().out
        run(best, store, *OF)
        assert "restored from answer 2, which was measured with triton 3.7.1" in capsys.readouterr().out


class TestPins:
    def test_what_serves_is_pinned_until_it_is_unpinned(self, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
        document = printed(pin, store, capsys, *OF, "--note", "the merge was tested with it")
        assert (document["answer"], document["note"]) == (3, "the merge was tested with it")
        assert printed(history, store, capsys, *OF)["pinned"]["answer"] == 3
        with pytest.raises(UsageError, match="a pinned answer is not replaced"):
            run(rollback, store, *OF)
        assert run(unpin, store, *OF) == 0
        assert "answer 3 is not pinned any more" in capsys.readouterr().out
        with pytest.raises(NothingFound, match="no answer is pinned for scale M=4096"):
            run(unpin, store, *OF)
        assert run(rollback, store, *OF) == 0

    def test_list_marks_them(self, store: Store, capsys: pytest.CaptureFixture[str]) -> None:
        answered(store, answer(SCALE.problem({"M": 64})))
        run(pin, store, *OF, "--note", "[good]")
        capsys.readouterr()
        run(list_command, store)
        assert capsys.readouterr().out.count("pinned ([good])") == 1
        rows = printed(list_command, store, capsys)
        assert sorted((row["problem"]["M"], row["pinned"]) for row in rows) == [(64, False), (4096, True)]

    def test_nothing_in_service_cannot_be_pinned(self, store: Store) -> None:
        store.forget([1, 2, 3])
        with pytest.raises(NothingFound, match="no answer is in service to be pinned"):
            run(pin, store, *OF)


@pytest.mark.parametrize("command", [rollback, pin, unpin])
def test_a_database_that_is_not_there_is_not_made(command: Any, tmp_path: Path) -> None:
    with pytest.raises(NothingFound, match="there are no answers"):
        command.main(["gemm", "--M", "64", "--db", str(tmp_path / "none.db")], standalone_mode=False)
    assert [*tmp_path.iterdir()] == []
