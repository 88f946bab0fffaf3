"""Figures and page of a suite."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from helpers import A100, H200
from scripted import BEST, DEFAULT, TOY, ScriptedMeasurer

from tuner.kernels.spec import Config
from tuner.records import COLD, Environment, Provenance, RooflineLimits
from tuner.tuning.bench import Subject, bench
from tuner.tuning.bench_row import Row

pytest.importorskip("plotly")

from tuner.cli.bench_plot import bandwidth_figure, page, roofline_figure, vendor_figure

HERE = Provenance(H200, Environment("3.6.0", "12.8", "2.11.0", "580.1"), "9f2c", COLD.text)


def row(
    size: int, answer: Config | None, *, flops: int = 0, vendor_us: float = 120.0, provenance: Provenance = HERE
) -> Row:
    roofline_limits = RooflineLimits(4000.0, {"fp32": 50.0}, {})
    subject = Subject(
        TOY.problem({"N": size}), provenance, answer, DEFAULT, flops, bytes=200_000_000, roofline_limits=roofline_limits
    )
    made = bench(subject, ScriptedMeasurer(vendor_us=vendor_us))
    assert made is not None
    return made


def drawn(figure: Any) -> dict[str, Any]:
    return {trace.name: trace for trace in figure.data}


def test_two_bars_are_the_speedups_of_default_and_answer_over_torch() -> None:
    bars = drawn(vendor_figure([row(1, BEST), row(2, None), row(3, BEST, vendor_us=90.0)]))
    assert bars.keys() == {"tuned", "untuned"}
    assert list(bars["tuned"].x) == pytest.approx([1.2, 0.9])
    assert list(bars["tuned"].y) == ["toy 1 fp32", "toy 3 fp32"]
    assert list(bars["untuned"].x) == pytest.approx([0.48, 0.48, 0.36])


def test_a_roofline_bends_at_the_ridge() -> None:
    marks = drawn(roofline_figure([row(1, BEST, flops=2_000_000_000), row(2, None, flops=4_000_000_000)]))
    roof = marks.pop("fp32: 50 TFLOP/s, 4,000 GB/s")
    assert roof.x[1] == 12.5
    assert list(roof.y[1:]) == [50.0, 50.0]
    assert roof.y[0] == roof.x[0] * 4
    assert list(marks["answer"].x) == [10.0, 20.0]
    assert list(marks["answer"].y) == pytest.approx([20.0, 16.0])
    assert list(marks["torch"].y) == pytest.approx([2000 / 120, 4000 / 120])
    assert list(marks["default"].y) == pytest.approx([8.0])  # the default of the first row, which is not the answer


def test_kernels_that_only_move_data_are_drawn_by_bandwidth() -> None:
    figure = bandwidth_figure([row(1, BEST)])
    assert list(drawn(figure)["answer"].y) == pytest.approx([2000.0])
    assert figure.layout.annotations[0].text == "device copy, 4,000 GB/s"


def test_a_page_has_the_figures_of_its_rows() -> None:
    moving, computing = row(1, BEST), row(2, BEST, flops=1_000_000)
    assert "Roofline" not in page("toys", [moving])
    assert "Bandwidth" not in page("toys", [computing])
    told = page("toys", [moving, computing])
    assert "The worst untuned: 0.480 x torch, toy 1 fp32; tuned 1.200; 0.480 x torch, toy 2 fp32; tuned 1.200." in told
    assert "<td>toy</td><td>untuned x torch</td><td>2</td><td>0.480</td><td>0.480</td><td>0.480</td>" in told
    assert "<td>toy</td><td>tuned x torch</td><td>2</td><td>1.200</td><td>1.200</td><td>1.200</td>" in told
    alone = page("toys", [replace(moving, default=None)])
    assert "<td>tuned x torch</td>" in alone
    assert "<td>untuned x torch</td>" not in alone


def test_two_cards_have_separate_bars_and_means() -> None:
    elsewhere = replace(HERE, device=A100)
    rows = [row(1, BEST), row(2, BEST, vendor_us=90.0, provenance=elsewhere)]
    drawn_page = page("toys", rows)
    assert "<td>nvidia-a100-sxm4-80gb</td><td>toy</td><td>tuned x torch</td><td>1</td><td>0.900</td>" in drawn_page
    assert "<td>nvidia-h200</td><td>toy</td><td>tuned x torch</td><td>1</td><td>1.200</td>" in drawn_page
    names = list(drawn(vendor_figure(rows))["tuned"].y)
    assert names == ["toy 1 fp32 on nvidia-h200", "toy 2 fp32 on nvidia-a100-sxm4-80gb"]
    both = vendor_figure([row(1, BEST), row(1, BEST, provenance=elsewhere)])
    assert list(drawn(both)["tuned"].y) == ["toy 1 fp32 on nvidia-h200", "toy 1 fp32 on nvidia-a100-sxm4-80gb"]
