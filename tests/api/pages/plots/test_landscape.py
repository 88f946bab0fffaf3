from __future__ import annotations

import json

import drawn
import pytest

from tuner.api.pages.plots import (
    Heading,
    Landscape,
    landscape,
    landscape_points,
    live_plot,
    parallel_coordinates,
    slices,
)
from tuner.api.pages.plots.landscape import thinned
from tuner.recorded import shipped
from tuner.records import Outcome

HEADING = Heading("space", "Landscape", "Each config that ran.")


@pytest.fixture(scope="module")
def found() -> Landscape:
    space = shipped.load("softmax-8192x8192-fp32-nvidia-h200")
    return landscape(space.measurements, {space.best.text: ["answer"]})


def test_a_landscape_has_the_configs_that_ran_and_the_knobs_that_differ(found: Landscape) -> None:
    space = shipped.load("softmax-8192x8192-fp32-nvidia-h200")

    ran = [measurement for measurement in space.measurements if measurement.outcome is Outcome.OK]

    assert len(found.tried) == len(ran)
    assert found.latencies == tuple(sorted(measurement.latency_us for measurement in ran))
    assert found.knobs[0].choices == ("256", "512", "1024", "2048", "4096", "8192")
    assert found.same == {"SHARED": "False"}
    assert found.text(found.tried[0]).startswith("BLOCK_N=8192 ROWS=")


def test_each_config_is_a_line_with_the_fastest_above(found: Landscape) -> None:
    root = drawn.read(parallel_coordinates(HEADING, found))

    tooltips = drawn.tooltips(root)
    assert len(tooltips) == len(found.tried)
    assert tooltips[-1].startswith("134 us")
    assert len(drawn.marks(root, "fast")) >= 5
    assert {"BLOCK_N", "latency, us", "134 us"} <= set(drawn.texts(root))


def test_more_lines_than_the_limit_are_thinned_but_the_marked_and_the_fastest_stay(found: Landscape) -> None:
    few = thinned(found, 40)

    assert len(few.tried) == 40
    assert few.tried[:10] == found.tried[:10]
    assert any("answer" in config.marks for config in few.tried)
    assert few.tried[-1].latency_us > found.latencies[len(found.latencies) // 2]


def test_each_knob_has_a_slice_with_its_best_choice(found: Landscape) -> None:
    root = drawn.read(slices(HEADING, found))

    assert len(root.findall(f"{drawn.SVG}svg")) == len(found.knobs)
    assert len(drawn.marks(root, "strip")) == sum(len(knob.choices) for knob in found.knobs)
    assert len(drawn.marks(root, "best")) == len(found.knobs)
    names = [node.get("id") for node in root.iter() if node.get("id")]
    assert len(names) == len(set(names))


def test_points_hold_every_config_in_few_bytes(found: Landscape) -> None:
    document = json.loads(landscape_points(found))

    assert document["ys"][0][0] == pytest.approx(found.latencies[0], rel=1e-4)
    choices = {name: names[ord(codes[0]) - 48] for name, names, codes in document["knobs"]}
    assert " ".join(f"{name}={choice}" for name, choice in choices.items()) == found.text(found.tried[0])
    assert "answer" in document["marks"].values()


def test_a_live_plot_shows_the_plot_of_the_server_until_the_script_has_drawn(found: Landscape) -> None:
    plot = live_plot(HEADING, "/points?a=1&b=2", slices(HEADING, found), "At most 60 points of a choice.")

    root = drawn.read(plot)

    assert root.get("data-plot-src") == "/points?a=1&b=2"
    assert drawn.marks(root, "plot-fallback")[0].find(f".//{drawn.SVG}svg") is not None
    assert live_plot(HEADING, "", slices(HEADING, found), "").count("data-plot-src") == 0


def test_without_a_config_that_ran_there_is_a_sentence() -> None:
    nothing = landscape([])

    assert "No config ran" in parallel_coordinates(HEADING, nothing)
    assert "No config ran" in slices(HEADING, nothing)
