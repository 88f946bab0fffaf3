"""Several vendors by name: in the rows and the table of a bench, in a search and its answer, and as a choice."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from helpers import H200, toy
from scripted import BEST, DEFAULT, SPACE, TOY, ScriptedMeasurer

from tuner import catalog
from tuner.cli.bench_rows import line, print_rows
from tuner.cli.grid import Output
from tuner.db.store import Store
from tuner.errors import UsageError
from tuner.kernels.spec import Config, Problem
from tuner.kernels.vendors import _distributions, library_versions
from tuner.measure.measurer import Measurer
from tuner.records import COLD, VENDOR, Comparison, Environment, Measurement, Provenance, vendor_contender
from tuner.report.vendor import stored_vendor, vendor_speedup
from tuner.search import Budget
from tuner.suites.suite import Entry, Suite
from tuner.tuning.bench import RoundLimits, Subject, bench, compare_configs, still_stands
from tuner.tuning.bench_file import BenchFile
from tuner.tuning.bench_row import Row, vendor_of
from tuner.tuning.effort import Effort
from tuner.tuning.events import Events
from tuner.tuning.run import run_search, stored_answer
from tuner.tuning.target import Target
from tuner.tuning.tuned import Tuned
from tuner.tuning.vendors import check_vendors

PROBLEM = TOY.problem({"N": 64})
MADE = Provenance(H200, Environment("3.6.0", "12.8", "2.11.0", "580.1"), "9f2c", COLD.text)
TIMES = {"torch": 120.0, "torch.compile": 105.0, "liger": 110.0}
MISSING = {"flashinfer": "not installed: No module named 'flashinfer'"}
SUBJECT = Subject(PROBLEM, MADE, BEST, DEFAULT, vendors=(*TIMES, *MISSING))


class Vendors(ScriptedMeasurer):
    """Times each of several vendors, as a bench's measurer; with `name` one that stands for all, as a search's."""

    def __init__(self, times: dict[str, float] = TIMES, name: str = "", ahead_s: float = 0.0, noise: float = 0.0):
        super().__init__(noise=noise, vendor_us=times.get(name, 0.0))
        self._times, self._name, self._ahead_s = times, name, ahead_s
        self._left_out = dict(MISSING)

    def compare(self, configs: Sequence[Config], rounds: int, seconds: float, seed: int) -> Comparison | Measurement:
        found = super().compare(configs, rounds, seconds, seed)
        assert isinstance(found, Comparison)
        found = replace(found, vendor=self._name, left_out=self._left_out, ahead_s=self._ahead_s)
        self._ahead_s = 0.0
        if self._name:
            return found
        contenders = (*found.contenders[:-1], *map(vendor_contender, self._times))
        return replace(
            found, contenders=contenders, rounds=tuple((*us[:-1], *self._times.values()) for us in found.rounds)
        )


def benched(measurer: Measurer | None = None, subject: Subject = SUBJECT) -> Row:
    row = bench(subject, measurer or Vendors())
    assert row is not None
    return row


def test_a_row_has_each_vendor_and_counts_the_fastest() -> None:
    row = benched()
    assert {name: rival.latency_us for name, rival in row.vendors.items()} == TIMES
    assert {name: round(rival.speedup, 6) for name, rival in row.vendors.items()} == {
        "torch": 1.2,
        "torch.compile": 1.05,
        "liger": 1.1,
    }
    assert (row.vendor_name, row.vendor) == ("torch.compile", row.vendors["torch.compile"])
    assert row.left_out == MISSING
    document = json.loads(json.dumps(row.as_json()))
    assert document["vendors"].keys() == TIMES.keys()
    assert Row.from_json(PROBLEM, document) == row


def test_a_vendor_without_a_latency_is_left_out_of_its_row() -> None:
    row = benched(Vendors(TIMES | {"liger": float("nan")}))
    assert row.vendors.keys() == {"torch", "torch.compile"}
    assert row.left_out["liger"] == "in some round its latency was not finite and above 0"
    assert still_stands(row, SUBJECT)


def test_a_row_stands_while_the_libraries_of_its_vendors_are_the_same() -> None:
    """A library that was missing may be installed since, or another version of it."""
    subject = replace(SUBJECT, libraries={"liger": "liger_kernel 0.5"})
    row = benched(subject=subject)
    assert Row.from_json(PROBLEM, json.loads(json.dumps(row.as_json()))) == row
    assert still_stands(row, subject)
    for libraries in ({}, {"liger": "liger_kernel 0.6"}, {**subject.libraries, "flashinfer": "flashinfer 0.2"}):
        assert not still_stands(row, replace(subject, libraries=libraries))
    assert still_stands(row, replace(subject, libraries={}, vendors=("torch",)))  # it is not asked for


def library(problem: Problem, tensors: Mapping[str, Any]) -> object:
    def inner() -> None:
        import absent_library  # type: ignore[import-not-found]  # noqa: F401

    from a_library.ops import add  # type: ignore[import-not-found]

    return add(inner)


def test_libraries_are_those_that_a_vendor_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = replace(catalog.load("silu"), vendors={"one": library, "two": lambda problem, tensors: None})
    assert library_versions(kernel, ("torch", "one", "two")) == {}
    (tmp_path / "a_library").mkdir()
    (tmp_path / "a_library" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert library_versions(kernel, ("one", "two")) == {"one": "a_library"}
    info = tmp_path / "a_library-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: a-library\nVersion: 1.2\n")
    (info / "top_level.txt").write_text("a_library\n")
    _distributions.cache_clear()
    try:
        assert library_versions(kernel, ("one", "two")) == {"one": "a_library 1.2"}
    finally:
        _distributions.cache_clear()


def test_a_row_of_an_older_version_has_the_vendor_that_it_names(tmp_path: Path) -> None:
    row = benched(ScriptedMeasurer(), replace(SUBJECT, vendors=(), vendor_name="cuBLAS"))
    older = {name: value for name, value in row.as_json().items() if name not in ("vendors", "left_out")}
    file = tmp_path / "rows.json"
    file.write_text(json.dumps({"format": 2, "rows": [older]}))
    kept = BenchFile(file).row(replace(SUBJECT, vendors=(), vendor_name="cuBLAS"))
    assert kept == row
    assert kept.vendors.keys() == {"cuBLAS"}
    assert BenchFile(file).row(SUBJECT) is None  # it has not all vendors that are asked for now


@pytest.mark.parametrize(("field", "value"), [("vendors", []), ("default", {"latency_us": 1.0}), ("interval_us", 3)])
def test_a_row_of_another_form_ends_in_one_line(field: str, value: object, tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text(json.dumps({"format": 2, "rows": [{**benched().as_json(), field: value}]}))
    with pytest.raises(UsageError, match=r"rows\.json is not what tuner bench --out wrote: .*; name another file"):
        BenchFile(file).row(SUBJECT)


def test_the_table_has_a_column_for_each_vendor_and_one_for_the_best() -> None:
    rows = [benched(), replace(benched(Vendors({"torch": 240.0})), left_out={})]
    assert line(rows[0]).endswith(" x torch.compile, 2.500 x default")
    written = StringIO()
    print_rows("toys", rows, Output(file=written, width=200, color_system=None))
    out = written.getvalue()
    for title in ("x torch ", "x torch.compile", "x liger", "x best vendor"):
        assert title in out
    assert "flashinfer: not installed: No module named 'flashinfer' (toy 64 fp32)" in out
    assert vendor_of(rows) == "best vendor"
    assert vendor_of(rows[1:]) == "torch"


def test_compiling_vendors_takes_no_time_from_the_rounds() -> None:
    limits = RoundLimits(limit_s=0.0, first_look_s=0.0)
    configs = [BEST, DEFAULT]
    for ahead_s, rounds in ((0.0, 20), (60.0, 200)):
        measurer = Vendors(ahead_s=ahead_s)
        found = compare_configs(configs, measurer, 0, lambda: False, is_enough=lambda found: False, limits=limits)
        assert isinstance(found, Comparison)
        assert len(found.rounds) == rounds


class Notes(Events):
    """Keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


def searched(store: Store, measurer: Measurer) -> tuple[Tuned, list[str]]:
    target = Target(SPACE, DEFAULT, MADE, COLD, flops=0, bytes=1, measurer=lambda: measurer)
    entry, events = Entry("toy", TOY, PROBLEM), Notes()
    result = run_search(target, store, entry, Effort(Budget(), sampler="grid"), events=events)
    return Tuned.of(store, stored_answer(store, target, entry), result), events.notes


def test_the_vendor_of_an_answer_goes_by_the_name_that_its_rounds_state(tmp_path: Path) -> None:
    with closing(Store.open(tmp_path / "tuner.db")) as store:
        measurer = Vendors(name="liger")
        measurer._left_out |= {
            "other": "deviates from the reference",
            "absent": "not installed: No module named 'absent'",
            "narrow": "not for this problem: it takes no vectors",
        }
        tuned, notes = searched(store, measurer)
        (stored,) = store.answers()
        assert (stored.vendor, stored_vendor(stored), stored.answer.vendor_latency_us) == ("liger", "liger", 110.0)
        assert tuned.vendor is not None
        assert (tuned.vendor.name, round(tuned.vendor.ratio, 6)) == ("liger", 1.1)
        assert tuned.as_json("")["vendor"] == "liger"
        assert notes == ["other is left out: deviates from the reference"]
        speed = vendor_speedup(store, stored)
        assert speed is not None
        assert speed.name == "liger"
        rounds = store.comparison(stored.run_id)
        assert rounds is not None
        assert VENDOR in rounds.contenders


def test_a_measurer_that_states_no_name_leaves_the_targets(tmp_path: Path) -> None:
    with closing(Store.open(tmp_path / "tuner.db")) as store:
        searched(store, ScriptedMeasurer())
        (stored,) = store.answers()
        assert "vendor" not in stored.settings
        assert stored.vendor == "torch"


def suite(*files: str) -> Suite:
    kernels = [(toy(file), catalog.resolve(toy(file)).signature) for file in files]
    return Suite("toys", tuple(Entry(file, signature, signature.problem({"N": 64})) for file, signature in kernels))


def test_a_choice_names_vendors_that_some_kernel_has() -> None:
    for asked in (None, "all", "libraries", "eager", "torch", "torch.compile,returning"):
        check_vendors(suite("vendors", "halve"), asked, None)
    with pytest.raises(UsageError, match=r"vendors of halve are torch, torch\.compile, and groups of them all, "):
        check_vendors(suite("halve"), "torch,liger", None)
    with pytest.raises(UsageError, match="a recorded space has the vendor that it was recorded with"):
        check_vendors(suite("halve"), "eager", "auto")
