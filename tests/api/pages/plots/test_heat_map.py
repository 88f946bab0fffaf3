from __future__ import annotations

import re
from pathlib import Path

import drawn
import pytest

from tuner.api.pages.plots import (
    Bin,
    ColourScale,
    Covered,
    Heading,
    State,
    around_one,
    from_low_to_high,
    grid,
    heat_map,
    shares,
)

HEADING = Heading("heat", "Speed-up", "Speed-up of each problem.")
CSS = Path(__file__).parents[4] / "api" / "pages" / "assets" / "plots.css"


def covered(x: int, y: int, value: float | None, state: State = State.TUNED) -> Covered:
    return Covered(x, y, value, state, f"gemm {x} x {y}", f"/p?M={x}&N={y}")


def test_a_cell_has_its_problem_state_and_link() -> None:
    states = [covered(16, 4096, 1.5), covered(64, 4096, None, State.MISSED), covered(64, 512, 0.9, State.STALE)]

    root = drawn.read(heat_map(HEADING, grid("M", "N", states), around_one("speed-up", [1.5, 0.9])))

    links = [node.get("href") for node in root.iter(f"{drawn.SVG}a")]
    assert links == ["/p?M=16&N=4096", "/p?M=64&N=512", "/p?M=64&N=4096"]
    assert drawn.tooltips(root)[1] == "gemm 64 x 512\n0.90x, stale"
    assert {"1.50x", "0.90x", "stale", "asked and missed"} <= set(drawn.texts(root))
    assert len(drawn.marks(root, "stale")) == 2  # the cell and the legend
    assert len(drawn.marks(root, "none")) == 1


def test_a_cell_with_several_problems_shows_their_median_and_number() -> None:
    problems = [covered(size, 8, float(size)) for size in range(32, 64)] + [
        covered(2**power, 8, 1.0) for power in range(5)
    ]

    cells = grid("M", "N", [*problems, covered(40, 8, None, State.MISSED)])
    root = drawn.read(
        heat_map(HEADING, cells, from_low_to_high("us", [1, 60]), lambda column, row: f"/list?{column.low}")
    )

    assert cells.columns[-1] == Bin(32, 63)
    assert cells.cells[-1].count == 33
    assert cells.cells[-1].median == 47.5
    assert cells.cells[-1].state is State.MISSED
    assert "33 problems, M 32 to 63, N 8\nmedian 47.5\n32 tuned, 1 asked and missed" in drawn.tooltips(root)
    assert "n=33" in drawn.texts(root)
    assert root.findall(f".//{drawn.SVG}a")[-1].get("href") == "/list?32"


def test_thousands_of_cells_are_drawn_without_labels() -> None:
    problems = [covered(x, y, 1.0 + x / 100) for x in range(1, 51) for y in range(1, 41)]

    root = drawn.read(heat_map(HEADING, grid("M", "N", problems, most_distinct=100), shares("share")))

    assert len(drawn.marks(root, "cell")) == 2000 + 1  # with the legend
    assert len(drawn.texts(root)) < 100


def test_hostile_labels_are_text_and_no_problem_is_a_sentence() -> None:
    hostile = Covered(1, 1, float("nan"), State.TUNED, "<script>" + "x" * 10_000, '/p?q="><script>')

    root = drawn.read(heat_map(HEADING, grid("M<b>", "N", [hostile]), around_one("<i>", [float("inf")])))

    assert drawn.tooltips(root)[0].startswith("<script>xxx")
    assert len(drawn.tooltips(root)[0]) < 500
    assert "No problem" in heat_map(HEADING, grid("M", "N", []), around_one("x", []))


@pytest.mark.parametrize(
    ("scale", "value", "css"),
    [
        (around_one("x", [0.5, 2.0]), 1.0, "d4"),
        (around_one("x", [0.5, 2.0]), 3.0, "d8"),
        (around_one("x", [0.5, 2.0]), 0.1, "d0"),
        (around_one("x", []), 1.001, "d4"),
        (shares("x"), 0.0, "s0"),
        (shares("x"), 1.0, "s8"),
        (from_low_to_high("x", [5, 5]), 5, "s4"),
    ],
)
def test_colours_are_nine_steps(scale: ColourScale, value: float, css: str) -> None:
    assert scale.css(value) == css


def luminance(colour: str) -> float:
    colour = "#" + "".join(2 * digit for digit in colour[1:]) if len(colour) == 4 else colour
    parts = [int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_colours_can_be_read_in_both_themes() -> None:
    css = CSS.read_text()
    colours = dict(re.findall(r"--([scd]\d): (light-dark\(.*?\));", css))
    on_cells = dict(re.findall(r"\.plot \.([sd]\d) \{ --fill: .*? --on: (.*?); \}", css))

    assert len(colours) == 26
    for place, surface in enumerate(("#ffffff", "#11161b")):
        value = {name: re.findall(r"#\w+", text)[place] for name, text in colours.items()}
        on = {name: (re.findall(r"#\w+", text) * 2)[place] for name, text in on_cells.items()}
        assert {name for name in on if contrast(on[name], value[name]) < 4.5} == set()
        assert {name for name in value if name[0] == "c" and contrast(value[name], surface) < 3} == set()
        steps = [luminance(value[f"s{step}"]) for step in range(9)]
        assert steps in (sorted(steps), sorted(steps, reverse=True))
