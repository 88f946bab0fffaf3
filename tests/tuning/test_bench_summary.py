"""Means of a suite: the untuned default and the tuned answer, each beside the vendors."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod

import pytest

from tuner.kernels.spec import Dim, Knob, Signature
from tuner.suites.suite import Entry, Suite
from tuner.tuning.bench_row import Rival, Row
from tuner.tuning.bench_summary import SummarySettings, document, summary
from tuner.tuning.spread import groups, ranged_dims

KNOBS = tuple(Knob(name, (1,)) for name in ("num_warps", "num_stages"))
ADD, COPY = (Signature(op, (Dim("N"),), ("fp32",), KNOBS) for op in ("add", "copy"))


def row(N: int, untuned: float, tuned: float | None = None, signature: Signature = ADD) -> Row:
    """Return a row with these speed-ups over the only vendor."""
    served = untuned if tuned is None else tuned
    kind = "untuned" if tuned is None else "default" if tuned == untuned else "tuned"
    default, vendor = Rival(100 * served / untuned, served / untuned, (1, 1)), Rival(100 * served, served, (1, 1))
    made = Row(signature.problem({"N": N}), "card", kind, config={}, latency_us=100.0, default=default)
    return replace(made, vendor=vendor, vendors={"torch": vendor})


FAILED = Row(ADD.problem({"N": 9}), "card", "failed", error="crashed")


def test_untuned_and_tuned_stand_beside_each_other() -> None:
    totals = summary([row(1, 0.5, 1.0), row(2, 2.0, 2.0), row(3, 0.25), FAILED])
    assert (totals.rows, totals.failed, totals.without_answer) == (4, 1, 1)
    untuned, tuned = totals.untuned["torch"], totals.tuned["torch"]
    assert (untuned.problems, tuned.problems) == (3, 2)
    assert untuned.mean == pytest.approx(prod((0.5, 2.0, 0.25)) ** (1 / 3))
    assert tuned.mean == pytest.approx(2**0.5)
    assert (untuned.least, untuned.least_problem["N"]) == (0.25, 3)
    assert (untuned.below, tuned.below) == ({1.0: 2, 0.95: 2}, {1.0: 0, 0.95: 0})
    assert totals.of_tuned is not None
    assert (totals.of_tuned.problems, totals.of_tuned.least) == (2, 0.5)
    assert totals.of_tuned.mean == pytest.approx(0.5**0.5)


def test_a_tenth_of_the_problems_is_below_the_10th_percentile() -> None:
    totals = summary([row(N, N / 10) for N in range(1, 22)])
    assert totals.untuned["torch"].tenth == pytest.approx(0.3)
    assert summary([row(1, 0.7)]).untuned["torch"].tenth == 0.7


def test_the_worst_untuned_are_those_below_the_vendor_and_a_few_more() -> None:
    rows = [row(N, speed) for N, speed in enumerate((1.2, 0.9, 1.1, 0.8, 1.3, 0.7, 0.99), 1)]
    assert [each.problem["N"] for each in summary(rows).worst_untuned] == [6, 4, 2, 7]
    assert len(summary(rows, SummarySettings(most=2)).worst_untuned) == 2
    assert [each.problem["N"] for each in summary(rows[:3]).worst_untuned] == [2, 3, 1]


def test_a_default_that_does_not_run_is_no_speed_up() -> None:
    broken = replace(row(1, 1.0, 1.5), default=None, default_failure="infeasible: as scripted")
    totals = summary([broken, row(2, 1.1)])
    assert (totals.untuned["torch"].problems, totals.tuned["torch"].problems) == (1, 1)
    assert totals.of_tuned is None
    assert (broken.untuned(), broken.tuned()) == (None, 1.5)


def test_of_several_vendors_the_fastest_counts_and_each_has_its_own_spread() -> None:
    first = row(1, 1.0, 2.0)
    slow = Rival(600.0, 6.0, (1, 1))
    first = replace(first, vendor_name="compiled", vendors={"torch": slow, "compiled": first.vendors["torch"]})
    totals = summary([first, row(2, 3.0)])
    assert list(totals.untuned) == ["best vendor", "torch", "compiled"]
    assert [spread.problems for spread in totals.untuned.values()] == [2, 2, 1]
    assert totals.untuned["torch"].mean == pytest.approx(3.0)
    assert totals.tuned["torch"].mean == 6.0
    assert totals.tuned["best vendor"].mean == 2.0


def test_a_document_has_a_summary_of_each_op() -> None:
    told = json.loads(json.dumps(document("both", [row(1, 0.5, 1.0), row(1, 3.0, signature=COPY)])))
    assert told["summary"]["ops"].keys() == {"add", "copy"}
    add = told["summary"]["ops"]["add"]
    assert add["tuned"]["torch"]["mean"] == 1.0
    assert add["untuned"]["torch"]["least_problem"] == "add N=1 dtype=fp32"
    assert add["worst_untuned"] == [{"problem": "add N=1 dtype=fp32", "untuned": 0.5, "tuned": 1.0}]
    assert told["summary"]["ops"]["copy"]["tuned"] == {}
    assert [each["untuned_speedup"] for each in told["rows"]] == [0.5, 3.0]
    assert "ops" not in document("one", [row(1, 0.5)])["summary"]
    assert document("none", [FAILED])["summary"]["untuned"] == {}
    assert document("interrupted", [])["summary"]["rows"] == 0


def test_rows_are_grouped_by_the_ranges_of_a_dim() -> None:
    ranged = Signature("ranged", (Dim("N", ranges=(16, 1200)),), ("fp32",), KNOBS)
    rows = [row(N, N / 100, signature=ranged) for N in (1201, 17, 16, 1)]
    dims = {"ranged": ranged.dims[0]}
    assert [name for name, _ in groups(rows, dims)] == [
        *("ranged", "ranged, N 1-16", "ranged, N 17-1,200", "ranged, N above 1,200")
    ]
    assert [name for name, _ in groups([*rows[2:], row(1, 1.0)], dims)] == ["ranged", "add", "all"]
    ranges = document("one", rows, dims)["summary"]["ranges"]
    assert {name: each["rows"] for name, each in ranges.items()} == {"N 1-16": 2, "N 17-1,200": 1, "N above 1,200": 1}
    suite = Suite("both", tuple(Entry(each.op, each, each.problem({"N": 1})) for each in (ranged, ADD)))
    assert ranged_dims(suite) == dims
