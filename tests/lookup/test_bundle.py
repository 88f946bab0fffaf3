"""Answers in one file: they are read as they were written, and any other file is refused in a sentence."""

from __future__ import annotations

import copy
import json
import pickle
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from bad_servers import bomb, signed
from helpers import A100, H200
from stored import HERE, NASTY, PROBLEM, SCALE, SETTINGS, answer, config

from tuner.errors import BadBundle, UsageError
from tuner.lookup import bundle
from tuner.lookup.query import Query
from tuner.lookup.table import Table
from tuner.records import Device, Environment, Evidence, Provenance, StoredAnswer, Tie
from tuner.records.signatures import checked_config

PLAIN = StoredAnswer(7, answer(), HERE, "2026-11-28T08:00:00.000+00:00", 3, 40, SETTINGS)
FULL = StoredAnswer(
    2**40,
    replace(
        answer(SCALE.problem({"M": 1, "N": 2**31 - 1, "dtype": "fp8e4m3", "layout": "nt"}), 0.1 + 0.2),
        kind="default",
        speedup=None,
        speedup_interval=None,
        default_latency_us=None,
        vendor_latency_us=1e-7,
        ties=(Tie(config(64), 1.0021234567890123, (1.001, 1.003)), Tie(config(256), 1.0, (0.9, 1.1))),
        unresolved=True,
        evidence=Evidence(2**-9, 2**-7, ("normal", "special"), 51),
        marks=("launch_bound", "contended"),
        basis="agreement",
        flops=2**62,
        bytes=2**50,
    ),
    Provenance(
        Device("NVIDIA H100 80GB HBM3", (9, 0), 132, 2**36, 2**25, 232_448, "10de:2330", "1g.10gb"),
        Environment("3.7.1", "13.0", "2.11.0", "580.159.04"),
        NASTY,
        "warm-graph-1",
        "scale-4096-fp32-nvidia-h100",
        "0.2.0",
    ),
    "2026-11-28T08:00:01.000+00:00",
    4,
    0,
    {"seed": None, "note": NASTY, "budget_s": 1.5, "list": [1, True, "x"]},
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "answers.json"


@pytest.mark.parametrize("name", ["answers.json", "answers.json.gz"])
def test_what_is_written_is_what_is_read(tmp_path: Path, name: str) -> None:
    file = tmp_path / name
    written = bundle.write(file, "a-b-c:9", [SCALE], [PLAIN, FULL, replace(FULL, id=9)])
    held = bundle.read(file)
    assert held == written
    assert held.answers == (PLAIN, FULL, replace(FULL, id=9))
    assert (held.snapshot, held.signatures, held.skipped) == ("a-b-c:9", {"scale": SCALE}, ())
    for before, after in zip((PLAIN, FULL), held.answers, strict=False):
        assert repr(after) == repr(before)  # types and order too
        assert after.answer.config.text == before.answer.config.text
    assert file.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")


def test_the_same_answers_make_the_same_file(tmp_path: Path) -> None:
    files = [tmp_path / "a.json.gz", tmp_path / "b.json.gz"]
    for file in files:
        bundle.write(file, "a-b-c:9", [SCALE], [PLAIN])
    assert files[0].read_bytes() == files[1].read_bytes()


def test_answers_that_todays_signature_does_not_describe_are_skipped_with_a_reason(file: Path) -> None:
    older = replace(SCALE, dims=SCALE.dims[:1])
    stored = replace(PLAIN, answer=answer(older.problem({"M": 8})))
    newer = replace(SCALE, knobs=SCALE.knobs[1:])
    assert bundle.write(file, "a:1", [SCALE], [PLAIN, stored]).answers[0] == PLAIN
    held = bundle.write(file, "a:1", [newer], [PLAIN])
    assert held.answers == ()
    assert held.skipped == ("a scale config has the knobs EVICT, PIPELINED, num_warps, num_stages, not 'BLOCK'",)


class TestDamage:
    @pytest.fixture(autouse=True)
    def written(self, file: Path) -> None:
        bundle.write(file, "a-b-c:9", [SCALE], [PLAIN, FULL])
        bundle.write(file.with_suffix(".gz"), "a-b-c:9", [SCALE], [PLAIN, FULL])

    def test_cut_off(self, file: Path) -> None:
        data = file.read_bytes()
        for length in (100, len(data) // 2, len(data) - 1):
            file.write_bytes(data[:length])
            with pytest.raises(BadBundle, match=f"{file} ends in its middle; copy or export it again"):
                bundle.read(file)

    def test_cut_off_and_compressed(self, file: Path) -> None:
        packed = file.with_suffix(".gz")
        data = packed.read_bytes()
        for length in (3, len(data) // 2, len(data) - 1):
            packed.write_bytes(data[:length])
            with pytest.raises(BadBundle, match="ends in its middle"):
                bundle.read(packed)
        packed.write_bytes(data[:40] + b"\x00\x00\x00\x00" + data[44:])
        with pytest.raises(BadBundle, match=f"{packed} is damaged: .*; export it again"):
            bundle.read(packed)

    @pytest.mark.parametrize(
        "edit",
        [
            lambda text: text.replace('"BLOCK":128', '"BLOCK":256', 1),
            lambda text: text.replace("a-b-c:9", "a-b-c:8"),
            lambda text: json.dumps(json.loads(text), indent=1),
            lambda text: f"{text}\n",
        ],
        ids=["a config", "the snapshot", "the layout", "a line"],
    )
    def test_altered(self, file: Path, edit: Callable[[str], str]) -> None:
        file.write_text(edit(file.read_text()))
        with pytest.raises(BadBundle, match=f"{file} was altered: its content does not match its sha256"):
            bundle.read(file)

    def test_of_a_newer_format(self, file: Path) -> None:
        file.write_bytes(signed(json.loads(file.read_text()) | {"format": 2, "answers": {"laid": "out anew"}}))
        with pytest.raises(BadBundle, match="has format 2, and this version reads 1; update triton-tuner"):
            bundle.read(file)

    def test_a_field_of_a_newer_version_is_passed_over(self, file: Path) -> None:
        document = json.loads(file.read_text())
        document["answers"][0]["mood"] = document["mood"] = document["devices"][0]["mood"] = "good"
        file.write_bytes(signed(document))
        assert bundle.read(file).answers == (PLAIN, FULL)

    def test_too_large_when_it_is_unpacked(self, file: Path) -> None:
        file.write_bytes(bomb(256))
        assert file.stat().st_size < 2_000_000
        with pytest.raises(BadBundle, match="is larger than 256 MiB, the most that is read; export one op or device"):
            bundle.read(file)

    @pytest.mark.parametrize(
        "content",
        [
            b"",
            b"null",
            b"[]",
            b"{}",
            b'{"format": 1, "rows": []}',
            b"not json",
            b"[" * 100_000,
            b"\xff\xfe",
            b'{"format":' + b"9" * 5000 + b"}",
            pickle.dumps({"format": 1}),
        ],
    )
    def test_something_else(self, file: Path, content: bytes) -> None:
        file.write_bytes(content)
        with pytest.raises(BadBundle, match=f"{file} is no bundle of answers; tuner export FILE writes one"):
            bundle.read(file)

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(BadBundle, match=r"missing\.json cannot be read: No such file or directory"):
            bundle.read(tmp_path / "missing.json")
        with pytest.raises(BadBundle, match="cannot be read: it is a folder, not a regular file"):
            bundle.read(tmp_path)
        with pytest.raises(BadBundle, match="cannot be read: embedded null byte"):
            bundle.read(tmp_path / "\x00")


HOSTILE_ANSWERS: list[tuple[str, Any, str]] = [
    ("basis", "trust", "the basis of an answer is reference or agreement, not 'trust'"),
    ("basis", None, "the basis of an answer is reference or agreement, not 'None'"),
    ("signature", 9, "an answer comes with the signature of its op"),
    ("signature", "0", "signature is a whole number, not '0'"),
    ("id", True, "id is a whole number, not 'True'"),
    ("id", -1, "id is a whole number, not '-1'"),
    ("id", 2**63, "id is a whole number"),
    ("op", "gemm", "there is none of 'gemm'"),
    ("device", 5, "an answer's device is one of the 1 in the list, not number 5"),
    ("problem", {"M": 0}, "scale: M is a whole number from 1 to 2147483647, not 0"),
    ("problem", {"M": 1, "Q": 1}, "scale is described by M, N, dtype, layout, not by 'Q'"),
    ("problem", [], "problem is an object, not list"),
    ("config", {"BLOCK": 64}, "a scale config states every knob; EVICT, PIPELINED, num_warps, num_stages is missing"),
    ("config", {**config(), "os": 1}, "a scale config has the knobs BLOCK, EVICT, PIPELINED, num_warps, num_stages"),
    ("config", {**config(), "BLOCK": "__import__('os').abort()"}, 'scale: BLOCK is int, not "__import__'),
    ("config", {**config(), "BLOCK": True}, "scale: BLOCK is int, not 'True'"),
    ("config", {**config(), "BLOCK": 2**40}, "scale: BLOCK is int, not '1099511627776'"),
    ("config", {**config(), "EVICT": "x" * 1000}, "scale: EVICT is str"),
    ("config", {**config(), "PIPELINED": 1}, "scale: PIPELINED is bool, not '1'"),
    ("latency_us", "10", "an answer has a number as latency_us, not '10'"),
    ("latency_us", 0, "an answer has a positive number as latency_us, not '0'"),
    ("latency_us", 10**4000, "an answer has a number as latency_us"),
    ("interval_us", [1], "an answer has a list of 2 as interval_us, not '[1]'"),
    ("speedup", False, "an answer has a number as speedup, not 'False'"),
    ("ties", [{"config": {}}], "a scale config states every knob"),
    ("unresolved", 1, "an answer has true or false as unresolved, not '1'"),
    ("marks", [1], "an answer has a list of texts as marks"),
    ("tuned_with", {}, "tuned_with has triton, and here it is missing"),
    ("tuned_at", "x" * 20_000, "an answer has a text as tuned_at"),
    ("settings", None, "settings is an object, not NoneType"),
]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    HOSTILE_ANSWERS,
    ids=[f"{field}-{str(value)[:20]}" for field, value, _ in HOSTILE_ANSWERS],
)
def test_an_answer_that_makes_no_sense_is_skipped_and_the_others_serve(field: str, value: Any, reason: str) -> None:
    document = json.loads(bundle.packed("a:1", [SCALE], [PLAIN, PLAIN]))
    document["answers"][0][field] = value
    held = bundle.unpacked(signed(document), "it")
    assert held.answers == (PLAIN,)
    (skipped,) = held.skipped
    assert reason in skipped


def edited(change: Callable[[dict[str, Any]], object]) -> bytes:
    document = copy.deepcopy(json.loads(bundle.packed("a:1", [SCALE], [PLAIN])))
    change(document)
    return signed(document)


HOSTILE: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda it: it.update(answers={}), "a bundle's answers must be a list"),
    (lambda it: it.update(snapshot=1), "a bundle's snapshot must be a str"),
    (lambda it: it.pop("devices"), "a bundle's devices must be a list"),
]


@pytest.mark.parametrize(("change", "reason"), HOSTILE, ids=[reason[:40] for _, reason in HOSTILE])
def test_a_document_that_nothing_can_be_read_with_is_refused(
    change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    with pytest.raises(BadBundle) as refused:
        bundle.unpacked(edited(change), "https://tuner.example/table")
    assert str(refused.value).startswith("https://tuner.example/table cannot be used: ")
    assert reason in str(refused.value)


HOSTILE_PARTS: list[tuple[Callable[[dict[str, Any]], object], str]] = [
    (lambda it: it.update(signatures=[1]), "a signature is an object, not int"),
    (lambda it: it["signatures"][0].update(op="../../x"), "an op's name is lower-case letters"),
    (lambda it: it["signatures"][0].update(dims=[]), "scale: a signature has at least one dim and one dtype"),
    (lambda it: it["signatures"][0].update(dtypes=["fp7"]), "a dtype is one of"),
    (lambda it: it["signatures"][0]["dims"][0].update(name="M; rm"), "a name is letters, digits and _, not 'M; rm'"),
    (lambda it: it["signatures"][0]["dims"][0].update(default="N"), "scale: M defaults to a dim before it, not to 'N'"),
    (lambda it: it["signatures"][0]["dims"][0].update(default=0), "a dim's default is a size or another dim's name"),
    (lambda it: it["signatures"][0]["knobs"][0].update(choices=[]), "BLOCK: choices are numbers, yes or no, or texts"),
    (lambda it: it["signatures"][0]["knobs"][0].update(choices=[[1]]), "BLOCK: choices are numbers, yes or no, or"),
    (lambda it: it["signatures"][0]["knobs"][0].update(default="x"), "BLOCK: the default is one of the choices"),
    (lambda it: it["signatures"][0]["attributes"][0].update(default=None), "layout: the default is one of the choices"),
    (lambda it: it["signatures"][0]["knobs"].pop(), "scale: every config states num_stages; add the knob"),
    (lambda it: it["devices"][0].update(capability=[9, "0"]), "capability is a whole number, not '0'"),
    (lambda it: it["devices"][0].update(sm_count=-1), "sm_count is a whole number, not '-1'"),
    (lambda it: it["devices"][0].update(name=None), "a device has a text as name"),
]


@pytest.mark.parametrize(("change", "reason"), HOSTILE_PARTS, ids=[reason[:40] for _, reason in HOSTILE_PARTS])
def test_a_part_that_cannot_be_read_is_skipped_with_the_answers_that_need_it(
    change: Callable[[dict[str, Any]], object], reason: str
) -> None:
    held = bundle.unpacked(edited(change), "it")
    first, *others = held.skipped
    assert reason in first
    assert (len(held.answers), len(others)) == (0, 1)


def test_a_reader_finds_a_whole_file_while_it_is_rewritten(file: Path) -> None:
    bundle.write(file, "a:0", [SCALE], [PLAIN])
    many = [replace(PLAIN, id=number) for number in range(41)]

    def write() -> None:
        for number in range(9):
            bundle.write(file, f"a:{number}", [SCALE], many[: 1 + number * 5])

    writer = Thread(target=write)
    writer.start()
    read = []
    while writer.is_alive():
        read.append(len(bundle.read(file).answers))
    writer.join()
    assert sorted(read) == read
    assert [left.name for left in file.parent.iterdir()] == [file.name]


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be written: No such file or directory"):
        bundle.write(tmp_path / "nowhere" / "answers.json", "a:1", [SCALE], [PLAIN])
    (tmp_path / "folder").mkdir()
    with pytest.raises(UsageError, match="folder cannot be written: it is a folder, not a regular file"):
        bundle.write(tmp_path / "folder", "a:1", [SCALE], [PLAIN])
    assert [left.name for left in tmp_path.iterdir()] == ["folder"]


def test_cards_of_one_name_stay_apart() -> None:
    """Half the memory, and another card."""
    slower = replace(A100, memory_bytes=A100.memory_bytes // 2)
    stored = [replace(PLAIN, provenance=replace(HERE, device=card)) for card in (A100, slower, H200, A100)]
    held = bundle.unpacked(bundle.packed("a:1", [SCALE], stored), "it")
    assert [read.provenance.device for read in held.answers] == [A100, slower, H200, A100]
    assert held.answers[0].answer.problem == PROBLEM


JUNK: list[Any] = [None, True, -1, 2**63, 10**4000, 1e308, "", "nn" * 200, "\ud800", [], {}, [[]], {"M": 1}, "M", 4096]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of each value in a document."""
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def test_whatever_is_put_anywhere_is_refused_or_makes_answers_that_work() -> None:
    whole = json.loads(bundle.packed("a:1", [SCALE], [PLAIN, FULL]))
    chance = random.Random(1)
    for *path, last in chance.sample([place for place in places(whole) if place], 200):
        document = json.loads(json.dumps(whole))
        around = document
        for key in path:
            around = around[key]
        around[last] = chance.choice(JUNK)
        try:
            held = bundle.unpacked(signed(document), "it")
        except BadBundle:
            continue
        for stored in held.answers:
            assert Table(H200.id, held.answers).find(Query(stored.answer.problem)).stored is not None
            assert checked_config(SCALE, stored.answer.config).text == stored.answer.config.text
