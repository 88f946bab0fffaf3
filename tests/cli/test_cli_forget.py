"""`tuner forget`: answers that are retired by hand serve nobody any more: no command, service, snapshot or client."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers import A100, H200, until
from served import serving
from stored import HERE, SCALE, answer, answered

from tuner.api.app import create_app
from tuner.cli.forget import command
from tuner.cli.list import command as list_command
from tuner.cli.show import command as show_command
from tuner.client.tables import TableCache
from tuner.db.import_rules import ImportedAnswer
from tuner.db.store import Store
from tuner.errors import NothingFound, UnknownName, UsageError
from tuner.lookup import bundle

SQUARE, WIDE, HALF = (
    SCALE.problem(values) for values in ({"M": 4096}, {"M": 4096, "N": 64}, {"M": 4096, "N": 64, "dtype": "fp16"})
)


@pytest.fixture
def store(sqlite_store: Store) -> Store:
    for problem in (SQUARE, WIDE, HALF):
        answered(sqlite_store, answer(problem))
    answered(sqlite_store, answer(SQUARE), replace(HERE, device=A100))
    return sqlite_store


def forget(store: Store, *words: str) -> int:
    return run(command, store, *words)


def run(command: Any, store: Store, *words: str) -> int:
    return int(command.main([*words, "--db", str(store._database)], standalone_mode=False) or 0)


def left(store: Store) -> list[int]:
    return [stored.id for stored in store.answers()]


@pytest.mark.parametrize(
    ("words", "stay"),
    [
        (["--N", "64"], [1, 4]),
        (["--M", "4096", "--N", "4096"], [2, 3]),
        (["--dtype", "float16"], [1, 2, 4]),
        (["--device", A100.id], [1, 2, 3]),
        (["--layout", "nn", "--N", "64", "--dtype", "bf16"], [1, 3, 4]),
        ([], []),
    ],
    ids=str,
)
def test_those_are_retired_that_are_named(store: Store, words: list[str], stay: list[int]) -> None:
    assert forget(store, "scale", *words, "--dry-run") == 0
    assert left(store) == [1, 2, 3, 4]
    assert forget(store, "scale", *words) == 0
    assert left(store) == stay


def test_the_count_is_printed(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    forget(store, "scale", "--N", "64", "--dry-run")
    assert capsys.readouterr().out.splitlines() == [
        f"  {WIDE.text}  on nvidia-h200: 1 answer",
        f"  {HALF.text}  on nvidia-h200: 1 answer",
        "2 answers would be retired; a later search or import replaces them",
    ]
    forget(store, "scale", "--N", "64", "--json")
    document = json.loads(capsys.readouterr().out)
    assert (document["forgotten"], document["dry_run"], document["snapshot"]) == (2, False, store.snapshot)
    assert [row["id"] for row in document["answers"]] == [2, 3]
    with pytest.raises(NothingFound, match="no such answer is in service; tuner list shows those that are"):
        forget(store, "scale", "--N", "64")


def test_an_import_is_retired_by_its_file(store: Store) -> None:
    for origin in ("tables/E=8.json", "tables/E=16.json"):
        store.import_answers([ImportedAnswer(SCALE, answer(SCALE.problem({"M": len(origin)})), HERE, origin)])
    assert forget(store, "--file", "E=8.json") == 0
    assert left(store) == [1, 2, 3, 4, 6]
    assert forget(store, "scale", "--imported") == 0
    assert left(store) == [1, 2, 3, 4]
    with pytest.raises(NothingFound, match="no such answer"):
        forget(store, "--imported")


@pytest.mark.parametrize(
    ("words", "error", "message"),
    [
        ([], UsageError, "name an OP"),
        (["scale", "--device", "nvidia-l4"], UnknownName, "no device is called 'nvidia-l4'"),
        (["scale", "--M", "0"], UsageError, "M is a whole number from 1"),
        (["shift"], UnknownName, "no kernel is called 'shift'"),
    ],
)
def test_what_is_not_understood_retires_nothing(
    store: Store, words: list[str], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(command, store, *words) if words else command.main([], standalone_mode=False)
    assert len(left(store)) == 4


def test_a_pinned_one_stays(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    store.pins.add(2)
    with pytest.raises(NothingFound, match="answer 2 is pinned and stays in service; run tuner unpin first"):
        forget(store, "scale", "--N", "64", "--dtype", "bf16")
    assert forget(store, "scale", "--N", "64", "--dry-run", "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert ([row["id"] for row in document["answers"]], [row["id"] for row in document["pinned"]]) == ([3], [2])
    assert forget(store, "scale") == 0
    assert "answer 2 is pinned and stays in service." in capsys.readouterr().err
    assert left(store) == [2]


def test_list_and_show_say_so(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    forget(store, "scale", "--dtype", "fp16")
    capsys.readouterr()
    run(list_command, store)
    shown = capsys.readouterr().out
    assert shown.count("a search finds another") == 1
    assert "forgotten 20" in shown
    run(list_command, store, "--json")
    assert len(json.loads(capsys.readouterr().out)) == 3
    run(show_command, store, "3")
    assert "UTC: it serves no more" in capsys.readouterr().out


def test_a_service_forgets_and_goes_on_with_what_comes_later(store: Store) -> None:
    ask = {"op": "scale", "M": "4096", "device": H200.id}

    def match() -> str:
        return str(client.get("/best-config", params=ask).json()["match"])

    with serving(create_app(store)) as client:
        assert match() == "exact"
        forget(store, "scale", "--M", "4096", "--N", "4096", "--device", H200.id)
        until(lambda: match() == "none")
        (document,) = client.get("/runs/1").json()["answers"]
        assert document["forgotten_at"] is not None
        held = bundle.unpacked(client.get("/table", params={"op": "scale", "device": H200.id}).content, "it")
        assert [stored.id for stored in held.answers] == [2, 3]
        answered(store, answer(SQUARE))
        until(lambda: match() == "exact")


def test_a_client_has_it_no_more(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TUNER_DB", str(store._database))
    cache = TableCache()
    assert cache.best("scale", H200.id, {"M": 4096})[0].match == "exact"
    forget(store, "scale", "--M", "4096", "--N", "4096")
    renewed = cache.renewed()
    assert renewed is not cache
    assert renewed.best("scale", H200.id, {"M": 4096})[0].match == "none"


def test_a_snapshot_is_exported_without_it(store: Store, tmp_path: Path) -> None:
    from tuner.cli.export import command as export

    forget(store, "scale", "--N", "64")
    run(export, store, str(tmp_path / "a.json"))
    assert [stored.id for stored in bundle.read(tmp_path / "a.json").answers] == [1, 4]
